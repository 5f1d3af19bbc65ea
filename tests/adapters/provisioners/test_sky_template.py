import subprocess
from pathlib import Path

import pytest
from pydantic import JsonValue

from hexcloud.adapters.provisioners.sky_template import filled_template, template_path
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.plan import Role

VALUES: dict[str, JsonValue] = {
    "cluster": "hx-main-1-rollout-0-1",
    "num_nodes": 1,
    "infra": "aws/us-east-1/us-east-1b",
    "instance_type": "g6.xlarge",
    "use_spot": True,
    "image_id": None,
    "disk_gib": None,
    "disk_tier": None,
    "labels": {"hexcloud-run": "main-1"},
    "ports": [8477],
    "autodown_minutes": 10,
    "wheel_folder": "/somewhere/wheel",
    "node_folder": "/somewhere/node",
    "secrets": {"HEXCLOUD_NODE_TOKEN": "hush"},
}


def entry(role: Role, *path: str) -> JsonValue:
    found: JsonValue = filled_template(role, VALUES)
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    return found


@pytest.mark.parametrize("role", list(Role))
def test_a_task_is_filled_with_values_of_their_own_types(role: Role) -> None:
    assert entry(role, "num_nodes") == 1
    assert entry(role, "resources", "use_spot") is True
    assert entry(role, "resources", "labels") == {"hexcloud-run": "main-1"}
    assert entry(role, "file_mounts", "~/hexcloud-wheel") == "/somewhere/wheel"
    assert "<<" not in str(filled_template(role, VALUES))


@pytest.mark.parametrize("role", list(Role))
def test_what_has_no_value_is_left_to_skypilot(role: Role) -> None:
    resources = entry(role, "resources")
    assert isinstance(resources, dict)
    assert not {"image_id", "disk_size", "disk_tier"} & set(resources)


def test_only_the_trainer_opens_a_port() -> None:
    assert entry(Role.TRAINER, "resources", "ports") == [8477]
    rollout = entry(Role.ROLLOUT, "resources")
    assert isinstance(rollout, dict)
    assert "ports" not in rollout


@pytest.mark.parametrize("role", list(Role))
def test_secrets_are_secrets_and_nothing_else_names_them(role: Role) -> None:
    task = filled_template(role, VALUES)
    assert task.pop("secrets") == {"HEXCLOUD_NODE_TOKEN": "hush"}
    assert "hush" not in str(task)
    assert "TOKEN" not in str(task)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("phase", ["setup", "run"])
def test_the_shell_understands_each_phase(role: Role, phase: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(str(entry(role, phase)))
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_a_place_that_nobody_fills_is_named() -> None:
    with pytest.raises(ConfigError, match=r"rollout.yaml: nothing is given for infra, labels"):
        filled_template(
            Role.ROLLOUT, {name: value for name, value in VALUES.items() if name not in ("infra", "labels")}
        )


@pytest.mark.parametrize("role", list(Role))
def test_the_templates_are_part_of_the_product(role: Role) -> None:
    assert template_path(role).is_file()
