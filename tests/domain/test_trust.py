import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.domain.trust import is_loopback, require_private, trusted_by


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.0.0.1", "::", "localhost.example.com", "127.0.0.1.example.com"])
def test_addresses_that_lead_elsewhere(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("url", ["https://1.2.3.4:8477", "http://127.0.0.1:5", "http://[::1]:5"])
def test_nobody_reads_along(url: str) -> None:
    require_private(url)


@pytest.mark.parametrize("url", ["http://1.2.3.4:8477", "http://10.0.0.1", "ftp://10.0.0.1", "", "http://example.com"])
def test_a_token_is_not_sent_where_somebody_may_read_along(url: str) -> None:
    with pytest.raises(EngineError, match="no token is sent there"):
        require_private(url)


def test_what_is_no_authority_is_said() -> None:
    with pytest.raises(EngineError, match="certificate authority cannot be read"):
        trusted_by("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
