"""Disks follow from what nodes keep there."""

import pytest

from hexcloud.domain.fleet import DEFAULT_DISK_GIB
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.plan import Role
from hexcloud.domain.workload import Workload
from hexcloud.estimate import disk
from hexcloud.estimate.disk import disk_gib, most_disk_gib
from hexcloud.runtime import checkpoint_index, replica_line, rollout_weights, trainer_weights


def workload_of(params: float, **facts: object) -> Workload:
    shape = {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "head_dim": 128, "intermediate": 53248}
    model = ModelSpec.model_validate({"name": "any", "params": int(params), "vocab": 128256, "source": "-", **shape})
    return Workload(model=model).model_copy(update=facts)


LARGE = workload_of(405.85e9)


def test_the_numbers_are_those_of_the_nodes() -> None:
    assert disk.ROLLOUT_WHOLE == rollout_weights.KEEP + 2
    assert disk.ROLLOUT_DELTAS == rollout_weights.KEEP + 1
    assert replica_line.KEPT <= disk.ROLLOUT_WHOLE, "a member keeps no more than its head"
    assert disk.TRAINER_WHOLE == trainer_weights.KEPT + 3
    assert disk.TRAINER_DELTAS == trainer_weights.DELTAS_KEPT + 1
    assert disk.CHECKPOINTS == checkpoint_index.KEPT + 1
    assert disk.DELTA_SHARE_MOST == trainer_weights.MOST_OF_WHOLE


def test_a_small_model_takes_the_disk_that_there_is_unasked() -> None:
    small = workload_of(0.5e9)
    assert disk_gib(Role.ROLLOUT, small) == disk_gib(Role.TRAINER, small) == DEFAULT_DISK_GIB


def test_a_large_model_takes_room_for_all_versions_and_checkpoints() -> None:
    version_gib = LARGE.version_bytes / 2**30
    assert version_gib == pytest.approx(756, rel=0.01)
    assert 4 * version_gib < disk_gib(Role.ROLLOUT, LARGE) < 8 * version_gib
    checkpoint_gib = 6 * version_gib
    assert disk_gib(Role.TRAINER, LARGE) > 3 * checkpoint_gib + 5 * version_gib


def test_a_reference_is_in_checkpoints_and_fp32_makes_versions_twice_as_large() -> None:
    more = disk_gib(Role.TRAINER, LARGE.model_copy(update={"keeps_reference": True})) - disk_gib(Role.TRAINER, LARGE)
    assert more == pytest.approx(3 * 4 * LARGE.model.params / 2**30, abs=2)
    wide = LARGE.model_copy(update={"published_bytes_per_param": 4})
    assert disk_gib(Role.ROLLOUT, wide) == pytest.approx(2 * disk_gib(Role.ROLLOUT, LARGE) - disk.SYSTEM_GIB, abs=2)


def test_clouds_have_a_largest_disk() -> None:
    aws, google = most_disk_gib("aws"), most_disk_gib("gcp")
    assert aws is not None and google is not None and aws < disk_gib(Role.TRAINER, LARGE) < google
    assert most_disk_gib("lambda") is None
