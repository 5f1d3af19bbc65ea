from pathlib import Path

import pytest

from hexcloud.adapters.clouds.aws_keys import sdk_account


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def test_without_settings_there_is_no_account(no_settings: Path) -> None:
    assert sdk_account() is None


def test_a_profile_gives_keys_and_region_and_never_shows_them(
    no_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_settings / "credentials").write_text("[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = hush\n")
    (no_settings / "config").write_text("[profile work]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    account = sdk_account()
    assert account is not None
    keys = account.keys()
    assert (keys["access_key_id"], keys["secret_access_key"], keys["token"]) == ("AKIAWORK", "hush", None)
    assert account.region == "eu-west-1"
    assert "hush" not in repr(account)


def test_a_profile_that_does_not_exist_is_no_account(no_settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert sdk_account() is None
