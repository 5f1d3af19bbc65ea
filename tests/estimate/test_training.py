import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.load import Load, load_of
from hexcloud.estimate.training import (
    Gang,
    attention_context,
    flops_per_token,
    loaded_step_s,
    mfu,
    samples_per_s,
    step_s,
)


@pytest.fixture
def gang(h800: GpuSpec, fast: Efficiency) -> Gang:
    return Gang(gpu=h800, efficiency=fast, nodes=1, gpus_per_node=8, network_gb_per_s=400)


@pytest.fixture
def lean_gang(h20: GpuSpec, lean: Efficiency) -> Gang:
    return Gang(gpu=h20, efficiency=lean, nodes=1, gpus_per_node=8, network_gb_per_s=400)


def even_rate(gang: Gang, workload: Workload) -> float:
    """Samples/s where ranks wait for nobody, as published trainers come close to."""
    samples = workload.samples_per_step / gang.formation.data_ranks
    load = Load(samples * workload.tokens_per_sample, math.ceil(samples / 4), 1)
    return workload.samples_per_step / loaded_step_s(gang, workload, load)


def test_h20_trains_at_a_ninth_of_an_h800(workload: Workload, gang: Gang, lean_gang: Gang) -> None:
    """AReaL-Hex, table 1: 0.112 per GPU."""
    assert samples_per_s(lean_gang, workload) / samples_per_s(gang, workload) == pytest.approx(0.112, rel=0.05)


def test_all_h20_training_loses_half_of_its_promise_at_scale(workload: Workload, lean_gang: Gang) -> None:
    """AReaL-Hex, figure 3: the 58 or so training H20 of an all-H20 cluster reach 0.4 of what eight of them promise."""
    many = replace(lean_gang, nodes=7)
    scaling = even_rate(many, workload) / 7 / even_rate(lean_gang, workload)
    assert scaling == pytest.approx(0.4, abs=0.07)


def test_h100_class_node_trains_7b_at_the_published_rate(workload: Workload, gang: Gang) -> None:
    """Published pre-training without recomputation and pi_prox: 5.8k to 7.5k tok/s per GPU for 7B to 8B."""
    plain = workload.model_copy(update={"prox_share": 0.0, "activation_recompute": False})
    per_gpu = even_rate(gang, plain) * plain.tokens_per_sample / 8
    assert 5_500 < per_gpu < 8_500


def test_pi_prox_and_recomputation_cost_a_forward_pass_each(workload: Workload) -> None:
    plain, prox, recomputed = (
        flops_per_token(workload.model_copy(update={"prox_share": one, "activation_recompute": other}))
        for one, other in ((0.0, False), (1.0, False), (0.0, True))
    )
    assert prox / plain == pytest.approx(4 / 3)
    assert recomputed / plain == pytest.approx(4 / 3)
    assert plain > 6 * workload.model.params


def test_long_sequences_train_slower_per_token_as_measured(models: dict[str, ModelSpec], gang: Gang) -> None:
    """MPT-7B on 8 H100: 10,203 tok/s per GPU at 1,024 tokens, 3,318 at 32,768 (llm-foundry)."""
    mpt = models["7B"].model_copy(update={"params": 6_658_859_008, "layers": 32, "hidden": 4096, "vocab": 50_368})
    rates = []
    for tokens, micro_batch in ((1_024, 64), (32_768, 2)):
        even = {"prompt_tokens": 1, "response_tokens": tokens - 1, "response_cv": 0.0, "max_response_tokens": tokens}
        fields = {"model": mpt, "samples_per_step": 16 * micro_batch, "minibatches": 1, "prox_share": 0.0, **even}
        job = Workload.model_validate(fields)
        rates.append(samples_per_s(replace(gang, pass_tokens=micro_batch * tokens), job) * tokens)
    assert rates[0] / rates[1] == pytest.approx(10_203 / 3_318, rel=0.3)


def test_a_step_is_as_long_as_its_passes_of_padded_tokens(workload: Workload, gang: Gang) -> None:
    """Whatever plans say of a gang is said of the passes that the trainer makes."""
    for machines, pass_tokens in ((1, 2048), (1, 32768), (8, 8192)):
        one = replace(gang, nodes=machines, pass_tokens=pass_tokens)
        load = load_of(workload, 8 * machines, pass_tokens)
        assert step_s(one, workload) == loaded_step_s(one, workload, load)
        assert step_s(one, workload) > workload.samples_per_step / even_rate(one, workload)


def test_fp32_trains_six_times_slower(workload: Workload, gang: Gang) -> None:
    alone = replace(gang, gpus_per_node=1)
    wide = workload.model_copy(update={"published_bytes_per_param": 4})
    assert step_s(alone, wide) == pytest.approx(6 * step_s(alone, workload))


def test_attention_sees_longer_sequences_than_the_mean(workload: Workload) -> None:
    assert attention_context(workload) > workload.tokens_per_sample
    even = workload.model_copy(update={"response_cv": 0.0})
    assert attention_context(even) == even.tokens_per_sample


def test_mfu_holds_within_a_node_and_decays_beyond(fast: Efficiency) -> None:
    assert mfu(fast, 1) == mfu(fast, 8) == fast.mfu
    assert mfu(fast, 32) == pytest.approx(fast.mfu * 0.97**2)


@given(nodes=st.sampled_from([1, 2, 4, 8]), gb_per_s=st.floats(0.5, 400))
def test_a_faster_network_never_slows_a_gang(
    workload: Workload, h800: GpuSpec, fast: Efficiency, nodes: int, gb_per_s: float
) -> None:
    slow = Gang(h800, fast, nodes, 8, gb_per_s)
    assert step_s(replace(slow, network_gb_per_s=2 * gb_per_s), workload) <= step_s(slow, workload)


def test_ethernet_between_nodes_makes_two_nodes_slower_than_one(workload: Workload, gang: Gang) -> None:
    assert step_s(replace(gang, nodes=2, network_gb_per_s=1.25), workload) > step_s(gang, workload)
    assert step_s(replace(gang, nodes=2), workload) < step_s(gang, workload)


def test_one_gpu_has_nobody_to_talk_to(workload: Workload, gang: Gang) -> None:
    alone = replace(gang, gpus_per_node=1)
    no_link = replace(alone, gpu=alone.gpu.model_copy(update={"link_gb_per_s": 0.001}))
    assert step_s(alone, workload) == step_s(no_link, workload)


@given(gb_per_s=st.floats(0.5, 400), pass_tokens=st.integers(1024, 32768))
def test_one_machine_trains_as_fast_under_hsdp_as_under_fsdp(
    workload: Workload, h800: GpuSpec, fast: Efficiency, gb_per_s: float, pass_tokens: int
) -> None:
    flat = Gang(h800, fast, 1, 8, gb_per_s, pass_tokens)
    assert step_s(replace(flat, layout=LayoutKind.HSDP), workload) == step_s(flat, workload)


def test_a_slow_network_makes_copies_on_every_machine_faster_and_a_fast_one_makes_it_all_one(
    workload: Workload, gang: Gang
) -> None:
    slow, quick = replace(gang, nodes=2, network_gb_per_s=1.25), replace(gang, nodes=2, network_gb_per_s=400)
    assert step_s(replace(slow, layout=LayoutKind.HSDP), workload) < step_s(slow, workload) / 2
    assert step_s(replace(quick, layout=LayoutKind.HSDP), workload) == step_s(quick, workload)


def test_tensor_parallelism_cuts_everything_but_the_head(workload: Workload) -> None:
    head = 4.75 * 2 * workload.model.vocab * workload.model.hidden
    whole = flops_per_token(workload)
    assert flops_per_token(workload, 4) == pytest.approx(head + (whole - head) / 4)


def test_tensor_parallelism_pays_for_its_sums_on_slow_links(workload: Workload, gang: Gang) -> None:
    four = replace(gang, gpus_per_node=4, layout=LayoutKind.TP)
    pcie = replace(four, gpu=four.gpu.model_copy(update={"link_gb_per_s": 25.0}))
    assert step_s(pcie, workload) > 1.5 * step_s(four, workload)
    assert step_s(four, workload) > step_s(replace(four, layout=LayoutKind.FSDP), workload)
