"""GPUs, models and policies: what their own arithmetic must say."""

from pathlib import Path

import pytest

from hexcloud.adapters.files import load_calibration, load_gpus, load_models, load_policy, policy_root
from hexcloud.domain.model import ModelSpec


def _weights(model: ModelSpec, *, tied: bool, biased: bool) -> int:
    """Parameters of a Qwen2 or Llama model, counted from its shape."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention = 2 * model.hidden * queries + 2 * model.hidden * keys + ((queries + 2 * keys) if biased else 0)
    layer = attention + 3 * model.hidden * model.intermediate + 2 * model.hidden
    embeddings = model.vocab * model.hidden * (1 if tied else 2)
    return embeddings + model.layers * layer + model.hidden


@pytest.mark.parametrize("model", load_models().values(), ids=lambda model: model.name)
def test_parameters_follow_from_the_shape(model: ModelSpec) -> None:
    tied = "tied embeddings" in model.source
    assert model.params == _weights(model, tied=tied, biased=not model.name.startswith("Llama"))
    assert model.heads % model.kv_heads == 0


def test_the_models_we_promise_are_there() -> None:
    assert {f"Qwen2.5-{size}" for size in ("0.5B", "1.5B", "3B", "7B", "14B", "32B")} <= set(load_models())
    assert load_models()["tiny-sort"].params == 133_120


def test_gpu_figures_keep_their_order() -> None:
    gpus = load_gpus()
    assert gpus["T4"].hbm_gb_per_s < gpus["A10G"].hbm_gb_per_s < gpus["A100-40GB"].hbm_gb_per_s
    assert gpus["A100-80GB"].bf16_tflops < gpus["H100"].bf16_tflops == gpus["H200"].bf16_tflops
    assert not gpus["T4"].has_bf16 and not gpus["V100"].has_bf16 and gpus["L4"].has_bf16
    assert gpus["H20"].hbm_gb_per_s > gpus["H800"].hbm_gb_per_s
    assert all(gpu.source for gpu in gpus.values())


def test_every_gpu_has_an_efficiency() -> None:
    calibration = load_calibration()
    assert all(calibration.of(gpu).source for gpu in load_gpus())


def test_every_factor_is_about_a_known_gpu_and_says_where_it_comes_from() -> None:
    calibration = load_calibration()
    assert all(factor.gpu in load_gpus() and factor.source for factor in calibration.factors)
    assert len({factor.key for factor in calibration.factors}) == len(calibration.factors)
    large, medium = (calibration.of("A40", load_models()[name]) for name in ("Qwen2.5-14B", "Qwen2.5-7B"))
    assert large.rollout_speed < medium.rollout_speed == 1.0


@pytest.mark.parametrize("path", sorted(policy_root().glob("*.yaml")), ids=lambda path: path.stem)
def test_each_policy_is_named_after_its_file_and_says_for_whom_it_is(path: Path) -> None:
    assert load_policy(path.stem).name == path.stem
    assert path.read_text().startswith("# ")


def test_the_policies_we_promise_are_there() -> None:
    promised = {"cheapest", "fastest", "budget_cap", "spot_cautious", "on_demand_only", "thrifty"}
    assert promised <= {path.stem for path in policy_root().glob("*.yaml")}
