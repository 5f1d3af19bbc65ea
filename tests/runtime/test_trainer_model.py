import pytest
import torch
from transformers import PreTrainedModel

from hexcloud.runtime.tasks import EOS_ID, PAD_ID, SORT_DIGITS
from hexcloud.runtime.trainer_model import accuracy, build_model, config_of, pad, sample, token_logprobs


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return build_model(SORT_DIGITS, seed=4)


def prompts(count: int) -> list[tuple[int, ...]]:
    return [SORT_DIGITS.prompt(0, index)[0] for index in range(count)]


def test_the_model_has_the_measured_size_and_a_tied_head(model: PreTrainedModel) -> None:
    assert sum(parameter.numel() for parameter in model.parameters()) == 133_120
    assert config_of(model)["tie_word_embeddings"] is True
    assert config_of(model)["model_type"] == "qwen2"


def test_the_seed_fixes_the_weights() -> None:
    one, same, other = (build_model(SORT_DIGITS, seed).lm_head.weight for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_padding_on_the_right_changes_no_logprob(model: PreTrainedModel) -> None:
    rows = [(1, 5, 6, 7), (1, 9)]
    with torch.no_grad():
        together = token_logprobs(model, pad(rows))
        alone = [token_logprobs(model, pad([row]))[0] for row in rows]
    assert pad(rows)[1].tolist() == [1, 9, PAD_ID, PAD_ID]
    for row, wanted in zip(together, alone, strict=True):
        torch.testing.assert_close(row[: len(wanted)], wanted)


def test_logprobs_belong_to_the_next_token(model: PreTrainedModel) -> None:
    ids = torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        wanted = model(input_ids=ids).logits.log_softmax(-1)
        found = token_logprobs(model, ids)
    torch.testing.assert_close(found, torch.stack([wanted[0, 0, 5], wanted[0, 1, 6]])[None])


def test_responses_end_at_eos_or_at_the_limit(model: PreTrainedModel) -> None:
    responses = sample(model, prompts(200), 10, torch.Generator().manual_seed(0))
    for response in responses:
        assert 1 <= len(response) <= 10
        assert EOS_ID not in response[:-1]
        assert response[-1] == EOS_ID or len(response) == 10
    assert any(response[-1] == EOS_ID for response in responses)


def test_samples_of_a_batch_follow_each_prompts_own_distribution(model: PreTrainedModel) -> None:
    sharp = build_model(SORT_DIGITS, seed=4)
    with torch.no_grad():
        sharp.model.norm.weight.fill_(1000.0)  # so steep that sampling is greedy
    rows = [(1, 5, 6, 7, 8, 13), (1, 9, 13)]
    together = sample(sharp, rows, 6, torch.Generator().manual_seed(0))
    for prompt, response in zip(rows, together, strict=True):
        for index, token in enumerate(response):
            with torch.no_grad():
                likeliest = sharp(input_ids=torch.tensor([prompt + response[:index]])).logits[0, -1].argmax()
            assert token == likeliest


def test_accuracy_is_a_share_and_repeats_with_its_seed(model: PreTrainedModel) -> None:
    assert accuracy(model, SORT_DIGITS, 64, seed=1) == accuracy(model, SORT_DIGITS, 64, seed=1) == 0.0
