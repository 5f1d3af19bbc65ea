from pathlib import Path
from typing import Any

import pytest
import torch

from hexcloud.adapters.engines.embedded_model import Model
from hexcloud.adapters.engines.embedded_weights import Weights, read_config, read_weights

ROWS, LENGTH = 6, 14


@pytest.fixture(
    params=[(True, 4, "qwen2"), (True, 2, "qwen2"), (False, 1, "qwen2"), (True, 2, "llama")],
    ids=["tied", "grouped", "untied", "llama"],
)
def pair(request: Any, make_model: Any, save_model: Any, tmp_path: Path) -> tuple[Any, Model, Weights]:
    tied, kv_heads, kind = request.param
    theirs = make_model(seed=1, tied=tied, kv_heads=kv_heads, kind=kind)
    config = read_config(save_model(theirs, tmp_path))
    return theirs, Model(config, ROWS + 2), read_weights(tmp_path, config)


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(3, 21, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))


def logprobs_of(theirs: Any, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(theirs(input_ids=tokens).logits).log_softmax(-1)


def positions(start: int, end: int) -> torch.Tensor:
    return torch.arange(start, end).expand(ROWS, end - start)


def test_one_prefill_equals_the_forward_pass_of_transformers(pair: Any, tokens: torch.Tensor) -> None:
    theirs, model, weights = pair
    ours = model.forward(weights, tokens, positions(0, LENGTH), 0).log_softmax(-1)
    torch.testing.assert_close(ours, logprobs_of(theirs, tokens), atol=1e-4, rtol=0)


def test_prefill_then_single_tokens_equals_the_forward_pass_of_transformers(pair: Any, tokens: torch.Tensor) -> None:
    theirs, model, weights = pair
    parts = [model.forward(weights, tokens[:, :5], positions(0, 5), 2)]
    parts += [model.forward(weights, tokens[:, i : i + 1], positions(i, i + 1), 2) for i in range(5, LENGTH)]
    ours = torch.cat(parts, 1).log_softmax(-1)
    torch.testing.assert_close(ours, logprobs_of(theirs, tokens), atol=1e-4, rtol=0)


def test_rows_at_different_positions_share_a_batch(pair: Any, tokens: torch.Tensor) -> None:
    theirs, model, weights = pair
    model.forward(weights, tokens, positions(0, LENGTH), 0)
    at = torch.arange(3, 3 + ROWS)[:, None]
    ours = model.forward(weights, tokens.gather(1, at), at, 0)[:, 0].log_softmax(-1)
    wanted = logprobs_of(theirs, tokens)[torch.arange(ROWS), at[:, 0]]
    torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=0)


def test_a_moved_row_goes_on_where_it_was(pair: Any, tokens: torch.Tensor) -> None:
    theirs, model, weights = pair
    model.forward(weights, tokens[:, :-1], positions(0, LENGTH - 1), 0)
    model.cache.move(ROWS - 1, 0)
    ours = model.forward(weights, tokens[-1:, -1:], torch.tensor([[LENGTH - 1]]), 0).log_softmax(-1)
    torch.testing.assert_close(ours[0, 0], logprobs_of(theirs, tokens)[-1, -1], atol=1e-4, rtol=0)
