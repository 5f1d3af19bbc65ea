"""How every engine takes other weights: at rest, with requests in flight, and when they are the wrong ones."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import ModelFacts
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import FinishKind, Generation, PauseMode
from tests.adapters.engines.contract import LONG, Answer, Subject, ask


def test_an_update_is_seen_in_info_and_in_every_later_token(subject: Subject) -> None:
    subject.client.update_weights_from_disk(subject.paths[2], 2)
    info = subject.client.info()
    assert (info.version, info.model_path) == (2, subject.paths[2])
    (made,) = subject.client.generate((ask("u"),))
    assert set(made.versions) == {2}
    subject.assert_true((1, 5, 6), made)


def test_an_update_in_flight_splits_the_versions_and_both_parts_are_true(subject: Subject, flying: Answer) -> None:
    """The default update: retract, flush, load, go on. Each span's logprobs are those of the version in the span."""
    subject.client.update_weights_from_disk(subject.paths[2], 2)
    subject.slow_down(0)
    (made,) = flying.result(timeout=30)
    assert len(made.tokens) == LONG
    assert set(made.versions) == {1, 2} and sorted(made.versions) == list(made.versions)
    subject.assert_true((1, 5, 6), made)


def test_an_update_that_aborts_leaves_true_tokens_of_the_old_version(subject: Subject, flying: Answer) -> None:
    """Abort, flush, load, go on: the partial is of the old weights, and what continues it of the new."""
    subject.client.update_weights_from_disk(subject.paths[2], 2, PauseMode.ABORT)
    (made,) = flying.result(timeout=10)
    assert (made.finish, set(made.versions)) == (FinishKind.ABORT, {1})
    subject.assert_true((1, 5, 6), made)
    subject.slow_down(0)
    prompt = (1, 5, 6, *made.tokens)
    (rest,) = subject.client.generate((ask("rest", prompt, max_new_tokens=LONG - len(made.tokens)),))
    assert set(rest.versions) == {2}
    subject.assert_true(prompt, rest)


def test_an_update_in_place_keeps_requests_and_their_cache(subject: Subject, flying: Answer) -> None:
    subject.client.update_weights_from_disk(subject.paths[2], 2, PauseMode.IN_PLACE)
    subject.slow_down(0)
    (made,) = flying.result(timeout=30)
    assert (len(made.tokens), made.finish) == (LONG, FinishKind.LENGTH)
    assert set(made.versions) == {1, 2}
    old = [index for index, version in enumerate(made.versions) if version == 1]
    subject.assert_true((1, 5, 6), made.model_copy(update=first(made, len(old))))


def first(made: Generation, count: int) -> dict[str, object]:
    return {"tokens": made.tokens[:count], "logprobs": made.logprobs[:count], "versions": made.versions[:count]}


def test_several_updates_in_flight_are_told_apart(subject: Subject, flying: Answer) -> None:
    subject.client.update_weights_from_disk(subject.paths[2], 2)
    subject.client.update_weights_from_disk(subject.paths[1], 1)
    subject.slow_down(0)
    (made,) = flying.result(timeout=30)
    assert made.versions[0] == made.versions[-1] == 1
    subject.assert_true((1, 5, 6), made)
    assert subject.client.info().version == 1


def torn(good: Path, bad: Path) -> None:
    content = (good / "model.safetensors").read_bytes()
    (bad / "model.safetensors").write_bytes(content[: len(content) // 2])


def garbage(_good: Path, bad: Path) -> None:
    (bad / "model.safetensors").write_bytes(b"torn")


def empty(_good: Path, _bad: Path) -> None:
    return


def absent(_good: Path, bad: Path) -> None:
    bad.rmdir()


def another_shape(good: Path, bad: Path) -> None:
    state = load_file(good / "model.safetensors")
    save_file({**state, "model.norm.weight": state["model.norm.weight"][:8].clone()}, bad / "model.safetensors")


def one_tensor_less(good: Path, bad: Path) -> None:
    state = load_file(good / "model.safetensors")
    del state["model.norm.weight"]
    save_file(state, bad / "model.safetensors")


@pytest.mark.parametrize("spoil", [torn, garbage, empty, absent, another_shape, one_tensor_less])
def test_wrong_weights_change_nothing(
    subject: Subject, spoil: Callable[[Path, Path], None], tmp_path: Path, flying: Answer
) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    spoil(Path(subject.paths[1]), bad)
    with pytest.raises(EngineError, match=r"cannot be read|another model"):
        subject.client.update_weights_from_disk(str(bad), 9)
    assert subject.client.info().version == 1
    subject.slow_down(0)
    (made,) = flying.result(timeout=30)
    assert set(made.versions) == {1}
    subject.assert_true((1, 5, 6), made)


def test_a_folder_that_vanishes_on_the_way_changes_nothing_either(subject: Subject, tmp_path: Path) -> None:
    """Past the client's own check: the engine refuses a path that is not there."""
    with pytest.raises(EngineError, match="HTTP 400"):
        subject.client.line.tell("/update_weights_from_disk", {"model_path": str(tmp_path / "gone")})
    (made,) = subject.client.generate((ask("w"),))
    assert set(made.versions) == {1}
    subject.assert_true((1, 5, 6), made)


def test_a_load_that_failed_leaves_it_paused(subject: Subject, tmp_path: Path, flying: Answer) -> None:
    """Past the client's own check, as a disk that fails midway would be: nothing is made until somebody decides."""
    unaware = EngineClient(subject.client.url, ModelFacts(subject.client.model.vocab))
    with pytest.raises(EngineError, match="HTTP 400"):
        unaware.update_weights_from_disk(str(tmp_path / "gone"), 9)
    unaware.close()
    subject.slow_down(0)
    time.sleep(1.0)  # at full speed all its tokens would take less
    assert subject.client.is_healthy() and not subject.client.is_ready() and not flying.done()
    subject.client.resume()  # only this folder is known to have changed nothing
    (made,) = flying.result(timeout=30)
    assert set(made.versions) == {1}
    subject.assert_true((1, 5, 6), made)


def test_the_old_folders_may_be_deleted(subject: Subject, tmp_path: Path) -> None:
    """A node keeps the newest two versions only."""
    for version, path in ((3, tmp_path / "3"), (4, tmp_path / "4")):
        path.mkdir()
        for file in Path(subject.paths[2]).iterdir():
            (path / file.name).write_bytes(file.read_bytes())
        subject.client.update_weights_from_disk(str(path), version)
        for file in path.iterdir():
            file.unlink()
    assert subject.client.info().version == 4
    assert json.loads(json.dumps(subject.client.generate((ask("x"),))[0].versions)) == [4] * 8


def test_a_label_that_is_no_number_reads_as_none(subject: Subject) -> None:
    body: dict[str, Any] = {"model_path": subject.paths[2], "weight_version": "first", "flush_cache": True}
    subject.client.line.tell("/update_weights_from_disk", body)
    assert subject.client.info().version == -1
