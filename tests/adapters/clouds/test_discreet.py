"""A secret in a URL is in no message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.clouds.discreet import discreet


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('Could not connect: "http://user:hunter2@127.0.0.1:9/"', 'Could not connect: "http://127.0.0.1:9/"'),
        ("https://hunter2@host/x", "https://host/x"),
        ("http://user:hun/ter2?#@host\nis down", "http://host is down"),
        ("Failed to parse: user:hunter2@host:port", "Failed to parse: host:port"),
        ("see http://a:hunter2@b and http://c:hunter2@d", "see http://b and http://d"),
    ],
)
def test_users_and_passwords_of_urls_are_left_out(text: str, said: str) -> None:
    assert discreet(text) == said


@pytest.mark.parametrize(
    "text", ["https://ec2.us-east-1.amazonaws.com/", "arn:aws:iam::123456789012:user/me@example.com may not", "a: b"]
)
def test_all_else_is_told(text: str) -> None:
    assert discreet(text) == text


words = st.text(st.characters(blacklist_categories=("Z", "C")), min_size=1, max_size=12)


@given(words, words)
def test_no_password_is_told_however_it_is_spelt(user: str, password: str) -> None:
    secret = f"s3cr3t{password}"
    assert "s3cr3t" not in discreet(f"ConnectTimeout: http://{user}:{secret}@127.0.0.1:9/ is silent")
