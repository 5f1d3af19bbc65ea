from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.adapters.engines.embedded_model import Model
from hexcloud.adapters.engines.embedded_scheduler import Scheduler, Sequence
from hexcloud.adapters.engines.embedded_weights import Weights, read_config, read_weights
from hexcloud.domain.generation import FinishKind, GenerationRequest, PauseMode


def request(rid: str = "r", prompt: tuple[int, ...] = (1, 5, 6), **fields: Any) -> GenerationRequest:
    return GenerationRequest(rid=rid, input_ids=prompt, **{"max_new_tokens": 8, "ignore_eos": True, **fields})


@pytest.fixture(scope="module")
def models(make_model: Any, save_model: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    theirs = {version: make_model(seed=int(version)) for version in ("1", "2")}
    paths = {version: save_model(model, tmp_path_factory.mktemp("model")) for version, model in theirs.items()}
    return {"theirs": theirs, "paths": paths}


@pytest.fixture(scope="module")
def load(models: Any) -> Callable[[str], Weights]:
    return lambda version: read_weights(models["paths"][version], read_config(models["paths"][version]))


@pytest.fixture(scope="module")
def make(models: Any, load: Any) -> Callable[..., Scheduler]:
    def scheduler(max_running: int = 4, seed: int = 0) -> Scheduler:
        path: Path = models["paths"]["1"]
        made = Scheduler(Model(read_config(path), max_running), max_running, seed)
        made.replace_weights(load("1"), "1", flush_cache=True)
        return made

    return scheduler


def run(scheduler: Scheduler, steps: int = 200) -> None:
    while scheduler.has_work and steps:
        scheduler.step()
        steps -= 1


def true_logprobs(theirs: dict[str, Any], done: Sequence) -> list[float]:
    """What a full forward pass of the version that made each token says about it."""
    result = []
    for index, (token, version) in enumerate(zip(done.tokens, done.versions, strict=True)):
        ids = torch.tensor([[*done.request.input_ids, *done.tokens[:index]]])
        with torch.no_grad():
            logits = theirs[version](input_ids=ids).logits[0, -1] / done.request.temperature
        result.append(float(logits.log_softmax(-1)[token]))
    return result


def test_more_requests_than_rows_all_finish_with_true_logprobs(make: Any, models: Any) -> None:
    scheduler = make(max_running=3)
    asked = [request(str(i), tuple(range(3, 4 + i)), max_new_tokens=3 + i, temperature=0.7) for i in range(8)]
    open_ = [scheduler.submit(one) for one in asked]
    run(scheduler)
    for one in open_:
        assert (one.finish, len(one.tokens)) == (FinishKind.LENGTH, one.request.max_new_tokens)
        assert one.logprobs == pytest.approx(true_logprobs(models["theirs"], one), abs=1e-4)


def test_running_requests_go_on_under_new_weights_with_a_cache_computed_anew(make: Any, models: Any, load: Any) -> None:
    scheduler = make()
    open_ = [scheduler.submit(request(str(i), (1, 3 + i))) for i in range(3)]
    run(scheduler, steps=4)
    scheduler.replace_weights(load("2"), "2", flush_cache=True)
    run(scheduler)
    for one in open_:
        assert one.versions == ["1"] * 4 + ["2"] * 4
        assert one.logprobs == pytest.approx(true_logprobs(models["theirs"], one), abs=1e-4)


def test_without_a_flush_the_old_cache_is_kept(make: Any, models: Any, load: Any) -> None:
    scheduler = make()
    one = scheduler.submit(request())
    run(scheduler, steps=4)
    scheduler.replace_weights(load("2"), "2", flush_cache=False)
    run(scheduler)
    assert one.versions == ["1"] * 4 + ["2"] * 4
    assert one.logprobs[4:] != pytest.approx(true_logprobs(models["theirs"], one)[4:], abs=1e-4)


def test_zero_temperature_takes_the_likeliest_token(make: Any, models: Any) -> None:
    scheduler = make()
    one = scheduler.submit(request(temperature=0.0))
    run(scheduler)
    ids = torch.tensor([[*one.request.input_ids, *one.tokens]])
    with torch.no_grad():
        greedy = models["theirs"]["1"](input_ids=ids).logits.argmax(-1)[0]
    assert one.tokens == greedy[len(one.request.input_ids) - 1 : -1].tolist()


def test_tokens_are_drawn_as_often_as_their_probability_says(make: Any, models: Any) -> None:
    scheduler = make(max_running=64)
    open_ = [scheduler.submit(request(str(i), (1, 9), max_new_tokens=1)) for i in range(4096)]
    run(scheduler)
    with torch.no_grad():
        wanted = models["theirs"]["1"](input_ids=torch.tensor([[1, 9]])).logits[0, -1].softmax(-1)
    seen = torch.bincount(torch.tensor([one.tokens[0] for one in open_]), minlength=21) / len(open_)
    assert float((seen - wanted).abs().max()) < 0.04  # five standard errors of a share near one half


def test_eos_and_stop_tokens_end_a_sequence_unless_ignored(make: Any) -> None:
    scheduler = make()
    everything = tuple(range(21))
    stopped = scheduler.submit(request("a", ignore_eos=False, stop_token_ids=everything))
    ignoring = scheduler.submit(request("b"))
    run(scheduler)
    assert (stopped.finish, len(stopped.tokens)) == (FinishKind.STOP, 1)
    assert (ignoring.finish, len(ignoring.tokens)) == (FinishKind.LENGTH, 8)


def test_pause_modes_differ_in_what_becomes_of_running_requests(make: Any, models: Any) -> None:
    for mode, running, waiting in ((PauseMode.ABORT, 0, 0), (PauseMode.RETRACT, 0, 1), (PauseMode.IN_PLACE, 1, 0)):
        scheduler = make()
        one = scheduler.submit(request())
        run(scheduler, steps=3)
        scheduler.pause(mode)
        assert not scheduler.has_work
        assert (len(scheduler.running), len(scheduler.waiting)) == (running, waiting)
        scheduler.resume()
        run(scheduler)
        assert one.finish is (FinishKind.ABORT if mode is PauseMode.ABORT else FinishKind.LENGTH)
        assert one.logprobs == pytest.approx(true_logprobs(models["theirs"], one), abs=1e-4)


def tokens_of(scheduler: Scheduler, rids: list[str]) -> list[list[int]]:
    open_ = [scheduler.submit(request(rid, max_new_tokens=20)) for rid in rids]
    run(scheduler)
    return [one.tokens for one in open_]


def test_seed_and_name_fix_the_samples_whatever_shares_the_batch(make: Any) -> None:
    alone = tokens_of(make(seed=5), ["a"])[0]
    assert tokens_of(make(seed=5), ["x", "a", "y", "z", "u"])[1] == alone
    assert tokens_of(make(seed=6), ["a"])[0] != alone


def test_requests_of_one_prompt_get_different_samples_in_engines_of_equal_seed(make: Any) -> None:
    here, there = tokens_of(make(seed=5), ["7.0", "7.1"]), tokens_of(make(seed=5), ["7.2", "7.3"])
    assert len({tuple(tokens) for tokens in here + there}) == 4


ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 6)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["step", "update", "retract"]), st.just(0)),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=40))
def test_any_history_ends_every_request_once_with_true_logprobs(
    make: Any, models: Any, load: Any, actions: list[tuple[str, int]]
) -> None:
    scheduler, version = make(max_running=3), "1"
    open_: list[Sequence] = []
    for action, number in actions:
        if action == "submit":
            asked = request(str(len(open_)), (1, *range(3, 3 + number)), max_new_tokens=number)
            open_.append(scheduler.submit(asked))
        elif action == "abort":
            scheduler.abort(frozenset({str(number)}))
        elif action == "update":
            version = "2" if version == "1" else "1"
            scheduler.replace_weights(load(version), version, flush_cache=True)
        elif action == "retract":
            scheduler.pause(PauseMode.RETRACT)
            scheduler.resume()
        elif scheduler.has_work:
            scheduler.step()
    run(scheduler)
    for one in open_:
        assert one.finish is not None and one.finished.is_set()
        assert len(one.tokens) == one.request.max_new_tokens or one.finish is FinishKind.ABORT
        assert one.logprobs == pytest.approx(true_logprobs(models["theirs"], one), abs=1e-4)
