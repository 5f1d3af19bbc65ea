from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload
from hexcloud.estimate.rollout import (
    ALL_REDUCE_LATENCY_S,
    HAND_ON_GB_PER_S,
    Replica,
    decode_step_s,
    generation_p95_s,
    pause_share,
    prefill_s,
    reload_s,
    response_p95_tokens,
    samples_per_s,
    spread_s,
)


def reasoning(model: ModelSpec) -> Workload:
    """Long chains of thought: a mean live context of 8k tokens, as in the AReaL experiments."""
    return Workload(model=model, prompt_tokens=1024, response_tokens=10_256, max_response_tokens=27_648)


def test_h20_rolls_out_nearly_as_fast_as_an_h800(
    models: dict[str, ModelSpec], h800: GpuSpec, h20: GpuSpec, fast: Efficiency, lean: Efficiency
) -> None:
    """AReaL-Hex, table 1: 0.949, 0.962 and 0.946 for 1.5B, 7B and 14B."""
    ratios = []
    for model in models.values():
        job = reasoning(model)
        ratios.append(samples_per_s(Replica(h20, lean, 1, 64), job) / samples_per_s(Replica(h800, fast, 1, 64), job))
    assert sum(ratios) / 3 == pytest.approx(0.95, abs=0.06)
    assert all(0.80 < ratio < 1.15 for ratio in ratios)


def test_without_the_kv_cache_the_ratio_would_be_far_off(
    models: dict[str, ModelSpec], h800: GpuSpec, h20: GpuSpec, fast: Efficiency, lean: Efficiency
) -> None:
    no_cache = Workload(model=models["7B"], prompt_tokens=1, response_tokens=1, max_response_tokens=1)
    ratio = decode_step_s(Replica(h800, fast, 1, 256), no_cache) / decode_step_s(Replica(h20, lean, 1, 256), no_cache)
    assert ratio < 0.65


@pytest.mark.parametrize(("batch", "least", "most"), [(64, 3_000, 8_000), (256, 7_000, 16_000)])
def test_h100_class_gpu_decodes_7b_at_several_thousand_tokens_per_second(
    workload: Workload, h800: GpuSpec, fast: Efficiency, batch: int, least: float, most: float
) -> None:
    """SGLang makes 16k tok/s with short contexts on an H100 (see the catalog); contexts here are 1.5k tokens."""
    made = samples_per_s(Replica(h800, fast, 1, batch), workload) * workload.response_tokens
    assert least < made < most


def test_single_stream_reads_the_weights_once_a_token(workload: Workload, h800: GpuSpec, fast: Efficiency) -> None:
    floor_s = workload.model.weight_bytes / (3350e9 * 0.75)
    assert floor_s < decode_step_s(Replica(h800, fast, 1, 1), workload) < 1.3 * floor_s


@given(batch=st.integers(1, 256), tp=st.sampled_from([1, 2, 4]))
def test_larger_batches_make_more_samples_and_finish_each_later(
    workload: Workload, h800: GpuSpec, fast: Efficiency, batch: int, tp: int
) -> None:
    small, large = Replica(h800, fast, tp, batch), Replica(h800, fast, tp, batch + 1)
    assert samples_per_s(large, workload) > samples_per_s(small, workload)
    assert generation_p95_s(large, workload) > generation_p95_s(small, workload)


def test_tensor_parallelism_is_faster_but_not_for_free(workload: Workload, h800: GpuSpec, fast: Efficiency) -> None:
    alone = decode_step_s(Replica(h800, fast, 1, 64), workload)
    shared = decode_step_s(Replica(h800, fast, 4, 64), workload)
    assert alone / 4 < shared < alone


def test_kv_heads_are_replicated_beyond_their_number(workload: Workload, h800: GpuSpec, fast: Efficiency) -> None:
    """With 4 KV heads, 7 GPUs hold no smaller part of the cache than 4 do."""
    four, seven = (decode_step_s(Replica(h800, fast, tp, 256), workload) for tp in (4, 7))
    assert seven > 0.75 * four


def test_prompts_cost_compute(workload: Workload, h800: GpuSpec, fast: Efficiency) -> None:
    longer = workload.model_copy(update={"prompt_tokens": 2 * workload.prompt_tokens})
    replica = Replica(h800, fast, 1, 64)
    assert prefill_s(replica, longer) == pytest.approx(2 * prefill_s(replica, workload))


def test_p95_length_is_over_the_mean_and_never_over_the_limit(workload: Workload) -> None:
    assert workload.response_tokens < response_p95_tokens(workload) < workload.max_response_tokens
    tight = workload.model_copy(update={"max_response_tokens": 2000})
    assert response_p95_tokens(tight) == 2000
    constant = workload.model_copy(update={"response_cv": 0.0})
    assert response_p95_tokens(constant) == pytest.approx(workload.response_tokens)


def test_pause_share_is_reload_time_per_version(workload: Workload) -> None:
    assert pause_share(workload, 1, 100.0) == pytest.approx(reload_s(workload, 1) / 100.0)
    assert pause_share(workload, 1, 0.1) == 1.0
    assert reload_s(workload, 4) < reload_s(workload, 1)


def _across(replica: Replica, machines: int, gb_per_s: float, latency_s: float = 0.0) -> Replica:
    return replace(replica, machines=machines, network_gb_per_s=gb_per_s, latency_s=latency_s)


def test_over_a_slow_network_a_replica_is_far_slower_and_over_a_fast_one_hardly(
    models: dict[str, ModelSpec], h800: GpuSpec, fast: Efficiency
) -> None:
    """Two 10 Gbit/s machines against two with 3200 Gbit/s, and one that had all the GPUs."""
    job = Workload(model=models["14B"])
    alone = Replica(h800, fast, 8, 64)
    wide = [samples_per_s(_across(alone, 2, rate, 1e-4), job) for rate in (1.25, 400.0)]
    assert wide[0] < 0.3 * samples_per_s(alone, job) and 0.2 < wide[1] / samples_per_s(alone, job) < 1.0


def test_all_reduces_of_decoding_and_of_prompts_cross_the_network(
    workload: Workload, h800: GpuSpec, fast: Efficiency
) -> None:
    """Twice a layer, 2 (k - 1) / k of the activations, at 0.7 of the network, and its latency there and back."""
    alone, latency_s = Replica(h800, fast, 4, 64), 1e-3
    wide, model = _across(alone, 2, 1.25, latency_s), workload.model
    for tokens, took in (
        (64, decode_step_s(wide, workload) - decode_step_s(alone, workload)),
        (workload.prompt_tokens, prefill_s(wide, workload) - prefill_s(alone, workload)),
    ):
        sent = 2 * 3 / 4 * tokens * model.hidden * 2
        inside_s = 0.0 if tokens == workload.prompt_tokens else sent / (h800.link_gb_per_s * 1e9)
        first_s = ALL_REDUCE_LATENCY_S if tokens == workload.prompt_tokens else 0.0
        expected = 2 * model.layers * (sent / (0.7 * 1.25e9) - inside_s + 2 * latency_s + first_s)
        assert took == pytest.approx(expected, rel=1e-9)


def test_the_first_machine_hands_a_version_on_to_each_other_one(
    workload: Workload, h800: GpuSpec, fast: Efficiency
) -> None:
    replica = Replica(h800, fast, 8, 16)
    assert spread_s(replica, workload) == 0.0
    copies = 3 * workload.model.weight_bytes
    assert spread_s(_across(replica, 4, 0.1), workload) == pytest.approx(copies / 0.1e9)
    for fast_gb_per_s in (1.25, 400.0):  # no network makes the head read, hash and send faster
        assert spread_s(_across(replica, 4, fast_gb_per_s), workload) == pytest.approx(
            copies / (HAND_ON_GB_PER_S * 1e9)
        )
