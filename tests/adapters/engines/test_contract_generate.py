"""What every engine makes: the ids and logprobs that Hugging Face makes of the same weights."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from hexcloud.domain.generation import FinishKind
from hexcloud.ports import Engine
from tests.adapters.engines.contract import Subject, ask

PROMPTS = [(1, *range(3, 4 + length)) for length in range(12)]


def test_the_client_is_an_engine_that_is_ready(subject: Subject) -> None:
    port: Engine = subject.client
    assert port.is_healthy()
    assert subject.client.is_ready()
    assert port.info().version == 1


def test_nothing_asked_is_nothing_made(subject: Subject) -> None:
    assert subject.client.generate(()) == ()


def test_a_batch_of_different_lengths_comes_back_in_order_with_true_logprobs(subject: Subject) -> None:
    made = subject.client.generate(tuple(ask(f"b{i}", prompt) for i, prompt in enumerate(PROMPTS)))
    for i, (prompt, one) in enumerate(zip(PROMPTS, made, strict=True)):
        assert (one.rid, len(one.tokens), one.finish) == (f"b{i}", 8, FinishKind.LENGTH)
        assert set(one.versions) == {1}
        subject.assert_true(prompt, one)


def test_greedy_ids_are_those_of_hugging_face(subject: Subject) -> None:
    requests = tuple(ask(f"g{i}", prompt, max_new_tokens=20, temperature=0.0) for i, prompt in enumerate(PROMPTS))
    for prompt, made in zip(PROMPTS, subject.client.generate(requests), strict=True):
        ids = torch.tensor([prompt])
        for _ in range(20):
            with torch.no_grad():
                ids = torch.cat([ids, subject.theirs[1](input_ids=ids).logits[:, -1:].argmax(-1)], dim=1)
        assert made.tokens == tuple(ids[0, len(prompt) :].tolist())
        subject.assert_true(prompt, made)


def test_logprobs_are_of_the_distribution_at_the_temperature_asked_for(subject: Subject) -> None:
    (made,) = subject.client.generate((ask("t", temperature=0.7),))
    for index, token in enumerate(made.tokens):
        with torch.no_grad():
            logits = subject.theirs[1](input_ids=torch.tensor([(1, 5, 6, *made.tokens[:index])])).logits[0, -1]
        assert made.logprobs[index] == pytest.approx(float((logits / 0.7).log_softmax(-1)[token]), abs=1e-4)


def test_samples_of_one_prompt_differ(subject: Subject) -> None:
    made = subject.client.generate(tuple(ask(f"d{i}", max_new_tokens=20) for i in range(8)))
    assert len({one.tokens for one in made}) > 4


def test_a_stop_token_ends_a_generation_and_is_part_of_it(subject: Subject) -> None:
    (made,) = subject.client.generate((ask("s", ignore_eos=False, stop_token_ids=tuple(range(21))),))
    assert (made.finish, len(made.tokens), len(made.logprobs)) == (FinishKind.STOP, 1, 1)


def test_the_models_own_end_of_sequence_ends_a_generation_too(subject: Subject) -> None:
    made = subject.client.generate(tuple(ask(f"e{i}", max_new_tokens=50, ignore_eos=False) for i in range(16)))
    ended = [one for one in made if one.finish is FinishKind.STOP]
    assert ended and all(one.tokens[-1] == 2 and 2 not in one.tokens[:-1] for one in ended)


def test_batches_of_several_callers_do_not_mix(subject: Subject) -> None:
    def call(caller: int) -> None:
        requests = tuple(ask(f"c{caller}.{i}", (1, 3 + caller, 3 + i)) for i in range(4))
        for request, made in zip(requests, subject.client.generate(requests), strict=True):
            assert made.rid == request.rid
            subject.assert_true(request.input_ids, made)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, range(4))) == [None] * 4
