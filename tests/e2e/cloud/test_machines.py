"""What needs no bed: what a cloud-config lets in, what metadata says, how EC2's seconds are read."""

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.e2e.cloud.bed import _billed
from tests.e2e.cloud.machines import authorized_keys
from tests.e2e.cloud.metadata import Facts, server
from tests.e2e.cloud.scenario import Scenario

INSTANCE: dict[str, Any] = {
    "InstanceId": "i-1",
    "InstanceType": "g5.xlarge",
    "InstanceLifecycle": "spot",
    "PrivateIpAddress": "10.77.0.4",
    "Placement": {"AvailabilityZone": "us-east-1a"},
}
CONFIG = "#cloud-config\nusers:\n  - default\n  - name: ubuntu\n    ssh_authorized_keys:\n      - ssh-rsa AAAA me\n"


class Endpoint:
    """A metadata server that knows one machine, at every address."""

    def __init__(self) -> None:
        self.facts = Facts(INSTANCE, None, None)
        self.server = server("127.0.0.1", 0, lambda address: self.facts)

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_address[1])
        named = {f"X-aws-ec2-metadata-{name.replace('_', '-')}": value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        said = answer.status, answer.read().decode()
        connection.close()
        return said


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


def test_metadata_wants_a_token_first(endpoint: Endpoint) -> None:
    assert endpoint.ask("GET", "/latest/meta-data/instance-id")[0] == 401
    assert endpoint.ask("PUT", "/latest/api/token")[0] == 400
    status, token = endpoint.ask("PUT", "/latest/api/token", token_ttl_seconds="60")
    assert status == 200
    assert endpoint.ask("GET", "/latest/meta-data/instance-id", token="made-up")[0] == 401
    assert endpoint.ask("GET", "/latest/meta-data/instance-id", token=token) == (200, "i-1")


def test_there_is_no_instance_action_until_the_notice(endpoint: Endpoint) -> None:
    _, token = endpoint.ask("PUT", "/latest/api/token", token_ttl_seconds="60")
    path = "/latest/meta-data/spot/instance-action"
    assert endpoint.ask("GET", path, token=token)[0] == 404
    notice = {"action": "terminate", "time": "2026-01-01T00:02:00Z"}
    endpoint.facts = endpoint.facts._replace(action=notice)
    status, said = endpoint.ask("GET", path, token=token)
    assert (status, json.loads(said)) == (200, notice)


def test_a_notice_of_the_scenario_is_as_the_real_one(tmp_path: Any) -> None:
    scenario = Scenario(tmp_path)
    scenario.update(no_capacity=[{"zone": "us-east-1a"}])
    scenario.interrupt("i-1", notice_s=120.0)
    told = json.loads(scenario.path.read_text())
    left_s = datetime.fromisoformat(told["notices"]["i-1"]["time"]).timestamp() - datetime.now(UTC).timestamp()
    assert 115 < left_s <= 120 and told["no_capacity"]
    scenario.reset()
    assert "notices" not in json.loads(scenario.path.read_text())


@pytest.mark.parametrize("times", [0, 1, 2])
def test_keys_are_found_however_often_user_data_is_encoded(times: int) -> None:
    text = CONFIG
    for _ in range(times):
        text = base64.b64encode(text.encode()).decode()
    assert authorized_keys(text) == "ssh-rsa AAAA me\n"


@pytest.mark.parametrize("text", ["", "#!/bin/sh\necho hello", base64.b64encode(b"#!/bin/sh").decode()])
def test_a_machine_without_cloud_config_lets_nobody_in(text: str) -> None:
    assert authorized_keys(text) == ""


def test_seconds_are_those_between_launch_and_termination() -> None:
    begun = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC)
    ended = {"State": {"Name": "terminated"}, "StateTransitionReason": "User initiated (2026-01-01 10:01:30 UTC)"}
    billed = _billed({**INSTANCE, **ended, "LaunchTime": begun, "Tags": [{"Key": "hexcloud-run", "Value": "r"}]})
    assert (billed.seconds, billed.is_running, billed.is_spot) == (90.0, False, True)
    assert billed.tags == {"hexcloud-run": "r"}
