import ssl

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.runtime.coordinator_door import Door


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::"])
def test_without_a_certificate_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(ConfigError, match="only with a certificate"):
        Door(host)


def test_a_url_of_a_door_says_how_to_knock() -> None:
    assert Door().url("127.0.0.1", 80) == "http://127.0.0.1:80"
    assert Door("::", tls=ssl.create_default_context()).url("2001:db8::1", 80) == "https://[2001:db8::1]:80"
