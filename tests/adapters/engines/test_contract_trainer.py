"""What an engine says of the tokens it made, the trainer says of them: its own packed pass over the same ids."""

from collections.abc import Sequence

import pytest
import torch

from hexcloud.domain.generation import Generation
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.packing import layouts
from hexcloud.domain.sample import Sample
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.trainer_pack import Graded, Pack, make_pack
from hexcloud.runtime.trainer_state import state_alone
from tests.adapters.engines.contract import LONG, Answer, Subject, ask

PROMPTS = [(1, *range(3, 4 + length)) for length in range(12)]
Made = tuple[tuple[int, ...], Generation]
"""Prompt, and what was made of it."""


def packed(made: Sequence[Made]) -> Pack:
    """Lay all out in one pass, several side by side in a row, as a step does."""
    samples = [
        Sample(
            lease=LeaseId(one.rid),
            attempt=0,
            group=GroupId(0),
            index=index,
            epoch=0,
            prompt_ids=prompt,
            tokens=one.tokens,
            logprobs=one.logprobs,
            versions=one.versions,
            reward=0.0,
        )
        for index, (prompt, one) in enumerate(made)
    ]
    (rows,) = layouts([Graded(sample, 1.0) for sample in samples], TrainingSpec().pass_tokens)
    assert len({one.length for row in rows for one in row}) > 1 and max(map(len, rows)) > 1
    return make_pack(rows, version=0)


def trained(subject: Subject, version: int, pack: Pack) -> torch.Tensor:
    """The logprobs [tokens] that the trainer's policy of a version gives the pack's tokens."""
    with torch.no_grad():
        logprobs: torch.Tensor = state_alone(subject.theirs[version], TrainingSpec()).policy(pack)[0]
    return logprobs


def test_engine_and_trainer_agree_on_every_token_of_a_pack(subject: Subject) -> None:
    asked = [ask(f"p{i}", prompt, max_new_tokens=4 + 3 * i) for i, prompt in enumerate(PROMPTS)]
    pack = packed(list(zip(PROMPTS, subject.client.generate(tuple(asked)), strict=True)))
    assert len(pack.targets) == sum(one.max_new_tokens for one in asked)
    assert trained(subject, 1, pack).tolist() == pytest.approx(pack.tokens.behave.tolist(), abs=1e-4)
    assert trained(subject, 2, pack).tolist() != pytest.approx(pack.tokens.behave.tolist(), abs=0.1), "other weights"


def test_each_span_of_an_update_in_flight_is_what_the_trainer_of_its_version_says(
    subject: Subject, flying: Answer
) -> None:
    """The default update: retract, flush, load, go on. A token's version says whose logprob its behaviour is."""
    subject.client.update_weights_from_disk(subject.paths[2], 2)
    subject.slow_down(0)
    short = subject.client.generate(tuple(ask(f"s{i}", prompt) for i, prompt in enumerate(PROMPTS)))
    (long,) = flying.result(timeout=30)
    assert (len(long.tokens), set(long.versions)) == (LONG, {1, 2}), "made before and after the update"
    pack = packed([((1, 5, 6), long), *zip(PROMPTS, short, strict=True)])
    versions = -pack.tokens.age.long()  # of tokens trained at version 0
    for version in (1, 2):
        of_it = versions == version
        behave = pack.tokens.behave[of_it].tolist()
        assert trained(subject, version, pack)[of_it].tolist() == pytest.approx(behave, abs=1e-4)
        assert trained(subject, 3 - version, pack)[of_it].tolist() != pytest.approx(behave, abs=0.1)
