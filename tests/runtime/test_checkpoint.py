import random
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from hexcloud.domain.errors import EngineError
from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.checkpoint import Counters, config_at, load_checkpoint, save_checkpoint
from hexcloud.runtime.checkpoint_index import CheckpointInfo, is_whole, newest_checkpoint
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_state import TrainingState
from hexcloud.runtime.trainer_step import Moment, TrainingStep
from tests.runtime.training import ALONE, act, groups_of, right_and_wrong, small_model, state_of

COUNTERS = Counters(epoch=0, version=3, trained_samples=24, accuracy_before=0.25)
SETTINGS = TrainingSpec(ramp_steps=1)
ONE = Ranks(0, ALONE)


def train(state: TrainingState, versions: range, ranks: Ranks = ONE, settings: TrainingSpec = SETTINGS) -> None:
    step, model = TrainingStep(state, ranks, settings), small_model(4)
    for version in versions:
        step.run(groups_of(model, right_and_wrong(2), drift=0.2), Moment(version, 10), random.Random(version))


def write(folder: Path, version: int = 3, state: TrainingState | None = None) -> CheckpointInfo:
    counters = COUNTERS.model_copy(update={"version": version})
    return save_checkpoint(folder, counters, state or state_of(small_model(), SETTINGS), ONE)


def read(info: CheckpointInfo, settings: TrainingSpec = SETTINGS) -> TrainingState:
    state = state_of(small_model(5), settings)
    load_checkpoint(info, state, ONE)
    return state


def test_a_resumed_trainer_goes_on_exactly_like_one_that_never_stopped(tmp_path: Path) -> None:
    state = state_of(small_model(), SETTINGS)
    train(state, range(3))
    info = write(tmp_path, state=state)
    drawn = torch.rand(3)
    train(state, range(3, 6))

    again = state_of(small_model(5), SETTINGS)
    assert load_checkpoint(info, again, ONE) == COUNTERS
    assert torch.equal(torch.rand(3), drawn)
    train(again, range(3, 6))
    for name, part in state.buffers().items():
        assert torch.equal(again.buffers()[name], part), name
    assert again.updates == state.updates == 24


def test_a_fresh_optimizer_can_be_saved_and_loaded_and_the_head_stays_tied(tmp_path: Path) -> None:
    state = read(write(tmp_path))
    train(state, range(1))
    assert state.policy.model.lm_head.weight is state.policy.model.model.embed_tokens.weight


def test_the_configuration_of_the_model_is_kept(tmp_path: Path) -> None:
    assert config_at(write(tmp_path))["hidden_size"] == config_of(small_model())["hidden_size"] == 64


def test_a_reference_comes_back(tmp_path: Path) -> None:
    settings = TrainingSpec(kl_weight=0.1)
    state = state_of(small_model(), settings)
    train(state, range(1), settings=settings)
    again = read(write(tmp_path, state=state), settings)
    assert again.reference is not None
    assert torch.equal(again.reference.model.lm_head.weight, small_model().lm_head.weight)


@pytest.mark.parametrize("victim", ["__0_0.distcp", ".metadata", "counters.json", "config.json"])
def test_a_torn_checkpoint_is_refused_before_it_is_unpickled_and_the_one_before_serves(
    tmp_path: Path, victim: str
) -> None:
    good, torn = write(tmp_path), write(tmp_path, 4)
    (path,) = torn.path.rglob(victim)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(EngineError, match="torn"):
        read(torn)
    assert newest_checkpoint(tmp_path) == good


def test_only_the_last_two_are_kept(tmp_path: Path) -> None:
    for version in range(4):
        write(tmp_path, version)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0-2", "0-3"]


def test_a_torn_checkpoint_makes_room_for_one_of_its_name_and_a_whole_one_does_not(tmp_path: Path) -> None:
    info = write(tmp_path)
    with pytest.raises(FileExistsError):
        write(tmp_path)
    (info.path / "counters.json").write_text("{")
    assert write(tmp_path) == info
    read(info)


_opened: list[str] = []
"""Files of which content was asked for while `opened` listened: every `open` for reading, whoever calls it."""
_is_listening = False


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _is_listening and event == "open" and str(arguments[1]).startswith("r"):
        _opened.append(Path(str(arguments[0])).name)


def test_a_save_reads_nothing_back_to_hash_it_and_prunes_by_manifests(tmp_path: Path) -> None:
    global _is_listening
    state = state_of(small_model(), SETTINGS)
    for version in range(2):
        write(tmp_path, version, state)
    sys.addaudithook(_hear)
    _is_listening = True
    info = write(tmp_path, 2, state)
    _is_listening = False
    assert sorted(_opened) == ["config.json", "counters.json", *["manifest.json"] * 3]
    assert is_whole(info.path)


def _save(ranks: Ranks, folder: Path, settings: TrainingSpec) -> None:
    state = state_of(small_model(), settings, ranks)
    train(state, range(2), ranks, settings)
    save_checkpoint(folder, COUNTERS, state, ranks)


def _load(ranks: Ranks, folder: Path, settings: TrainingSpec) -> None:
    info = newest_checkpoint(folder)
    assert info is not None
    state, alone = state_of(small_model(5), settings, ranks), read(info)
    assert load_checkpoint(info, state, ranks) == COUNTERS
    assert state.updates == alone.updates == 8
    weights = dict(alone.weights())
    assert all(torch.equal(weight, weights[name]) for name, weight in state.weights())


@pytest.mark.slow
@pytest.mark.parametrize("kind", LayoutKind)
def test_what_some_ranks_saved_loads_into_any_number_of_them(kind: LayoutKind, tmp_path: Path) -> None:
    settings = TrainingSpec(ramp_steps=1, layout=kind)
    act(partial(_save, folder=tmp_path, settings=settings), Formation(kind, 2, 2), settings, tmp_path)
    act(partial(_load, folder=tmp_path, settings=settings), Formation(kind, 3, 1), settings, tmp_path)
