import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from hexcloud.domain.errors import EngineError
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.trainer_policy import blank, named_tensors, require_cut, require_exact
from tests.runtime.training import small_model, state_of


def test_a_blank_model_takes_no_room_and_a_policy_built_from_it_is_the_model() -> None:
    model = small_model()
    assert all(weight.is_meta for weight in blank(config_of(model)).parameters())
    policy = state_of(model, TrainingSpec()).policy
    ids = torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        assert torch.equal(policy.model(input_ids=ids).logits, model(input_ids=ids).logits)
    assert policy.model.lm_head.weight is policy.model.model.embed_tokens.weight


def test_tensors_have_one_name_each_and_a_tied_head_none_of_its_own() -> None:
    names = set(named_tensors(state_of(small_model(), TrainingSpec()).policy))
    assert "weight.model.embed_tokens.weight" in names and "weight.lm_head.weight" not in names
    assert "buffer.model.rotary_emb.inv_freq" in names


def test_the_default_model_is_exact() -> None:
    require_exact(small_model())


def test_models_that_would_be_computed_wrongly_are_refused() -> None:
    sliding = Qwen2Config(
        vocab_size=21,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=0,
    )
    with pytest.raises(EngineError, match="sliding_attention are not trained"):
        require_exact(Qwen2ForCausalLM(sliding))


def test_a_window_that_a_model_tells_for_all_layers_is_refused() -> None:
    def mistral(window: int | None) -> MistralForCausalLM:
        sizes = {"vocab_size": 21, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
        return MistralForCausalLM(MistralConfig.from_dict({**sizes, **heads, "sliding_window": window}))

    with pytest.raises(EngineError, match="sliding_attention are not trained"):
        require_exact(mistral(4))
    require_exact(mistral(None))


def test_tensor_parallelism_cuts_what_divides_by_its_ranks() -> None:
    require_cut(small_model(), 4)
    for field, count in [("intermediate_size", 90), ("num_attention_heads", 2), ("num_key_value_heads", 1)]:
        with pytest.raises(EngineError, match=f"{count}.* do not all divide by 4 ranks"):
            require_cut(blank(config_of(small_model()) | {field: count}), 4)
    with pytest.raises(EngineError, match="q_norm of this model would be computed wrongly"):
        require_cut(blank({"model_type": "qwen3", "num_hidden_layers": 1}), 1)


@pytest.mark.parametrize("model", ["qwen2", "phi", "starcoder2"])
def test_no_dropout_of_a_configuration_is_kept(model: str) -> None:
    asked = {"attention_dropout": 0.5, "resid_pdrop": 0.5, "residual_dropout": 0.5, "num_hidden_layers": 1}
    policy = blank(asked | {"model_type": model})
    dropouts = [module.p for module in policy.modules() if isinstance(module, torch.nn.Dropout)]
    assert not any([*dropouts, policy.config.attention_dropout])
