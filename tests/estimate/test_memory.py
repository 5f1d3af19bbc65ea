import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.files import load_models
from hexcloud.domain.formation import Formation
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import (
    GIB,
    PASS_TOKENS_PLANNED,
    kv_bytes_per_gpu,
    largest_batch,
    pass_sizes,
    training_bytes,
    usable_bytes,
    usable_training_bytes,
)


def small_gpu(gpu: GpuSpec, gib: float) -> GpuSpec:
    return gpu.model_copy(update={"hbm_gib": gib})


def test_7b_on_an_80_gib_gpu_runs_hundreds_of_samples(workload: Workload, h800: GpuSpec) -> None:
    assert 300 < largest_batch(workload, h800, 1) < 800


def test_batch_is_zero_when_weights_or_one_longest_sample_do_not_fit(workload: Workload, h800: GpuSpec) -> None:
    assert largest_batch(workload, small_gpu(h800, 12), 1) == 0
    just_weights = small_gpu(h800, (workload.model.weight_bytes + 1e6) / GIB / 0.9)
    assert largest_batch(workload, just_weights, 1) == 0


@given(gib=st.floats(16, 200), tp=st.sampled_from([1, 2, 4]))
def test_a_full_batch_fits(workload: Workload, h800: GpuSpec, gib: float, tp: int) -> None:
    gpu = small_gpu(h800, gib)
    batch = largest_batch(workload, gpu, tp)
    cache = batch * workload.mean_context * kv_bytes_per_gpu(workload.model, tp)
    assert batch == 0 or workload.model.weight_bytes / tp + cache <= usable_bytes(gpu)


def test_one_longest_sample_that_fits_is_enough_for_a_replica(models: dict[str, ModelSpec], h800: GpuSpec) -> None:
    """Llama-3.1-8B serves 45,000 tokens on 24 GB (vllm-project/vllm#10517), where no headroom is left."""
    longest = Workload(model=models["7B"], prompt_tokens=44_999, response_tokens=1, max_response_tokens=1)
    room = models["7B"].weight_bytes + 45_100 * models["7B"].kv_bytes_per_token
    assert largest_batch(longest, small_gpu(h800, room / GIB / 0.9), 1) == 1
    assert largest_batch(longest, small_gpu(h800, 0.99 * room / GIB / 0.9), 1) == 0


def test_kv_cache_is_split_over_kv_heads_only(models: dict[str, ModelSpec]) -> None:
    model = models["7B"]
    assert kv_bytes_per_gpu(model, 4) == model.kv_bytes_per_token / 4 == kv_bytes_per_gpu(model, 8)


def test_7b_needs_more_than_one_80_gib_gpu_to_train(workload: Workload, h800: GpuSpec) -> None:
    assert pass_sizes(workload, h800, Formation.flat(1)) == ()
    assert pass_sizes(workload, h800, Formation.flat(8))[-1] >= 8192


@given(ranks=st.integers(1, 64), gib=st.floats(16, 100), recompute=st.booleans())
def test_a_plan_weighs_all_passes_that_fit_with_the_longest_sample(
    workload: Workload, h800: GpuSpec, ranks: int, gib: float, recompute: bool
) -> None:
    job, gpu = workload.model_copy(update={"activation_recompute": recompute}), small_gpu(h800, gib)
    found = pass_sizes(job, gpu, Formation.flat(ranks))
    for tokens in PASS_TOKENS_PLANNED:
        needed = training_bytes(job, Formation.flat(ranks), max(tokens, job.longest_tokens))
        assert (tokens in found) == (needed <= usable_training_bytes(gpu))


def test_the_users_passes_fit_or_nothing_does(workload: Workload, h800: GpuSpec) -> None:
    for asked, found in ((10_000, (10_000,)), (10_000_000, ())):
        job = workload.model_copy(update={"micro_batch_tokens": asked})
        assert pass_sizes(job, h800, Formation.flat(8)) == found


def test_a_reference_takes_its_share_and_its_embeddings_and_head(workload: Workload) -> None:
    asked, params = workload.model_copy(update={"keeps_reference": True}), workload.model.params
    more = [
        training_bytes(asked, Formation.flat(ranks), 8192) - training_bytes(workload, Formation.flat(ranks), 8192)
        for ranks in (1, 8)
    ]
    assert more == pytest.approx([4 * params, 4 * params / 8 + 2 * 2 * workload.model.vocab * workload.model.hidden])


def test_fp32_activations_take_twice_the_room(workload: Workload) -> None:
    wide = workload.model_copy(update={"published_bytes_per_param": 4})
    grown, grown_more = (
        training_bytes(job, Formation.flat(64), 200_000) - training_bytes(job, Formation.flat(64), 100_000)
        for job in (workload, wide)
    )
    assert grown_more == pytest.approx(2 * grown)


def test_states_take_18_bytes_a_parameter_over_all_ranks(workload: Workload) -> None:
    difference = training_bytes(workload, Formation.flat(8), 8192) - training_bytes(workload, Formation.flat(16), 8192)
    assert difference == pytest.approx(18 * workload.model.params / 16)


def test_checkpointing_saves_most_of_the_activations(workload: Workload) -> None:
    kept = workload.model_copy(update={"activation_recompute": False})
    grown, grown_less = (
        training_bytes(job, Formation.flat(64), 32768) - training_bytes(job, Formation.flat(64), 16384)
        for job in (kept, workload)
    )
    assert grown > 5 * grown_less


def test_a_unit_at_work_is_gathered_whole_and_its_gradient_too(
    workload: Workload, models: dict[str, ModelSpec]
) -> None:
    """On one rank nothing is gathered: states alone differ otherwise."""
    states = 18 * workload.model.params
    alone = training_bytes(workload, Formation.flat(1), 8192) - states
    shared = training_bytes(workload, Formation.flat(2), 8192) - states / 2
    head = workload.model.vocab * workload.model.hidden
    assert shared - alone == pytest.approx(6 * head)


@pytest.mark.parametrize(("gib", "fits"), [(23.5, False), (40.0, True)])
def test_llama_8b_runs_out_of_eight_24_gb_gpus(h800: GpuSpec, gib: float, fits: bool) -> None:
    """hiyouga/LlamaFactory#5977: full fine-tuning at 1,024 tokens, fully sharded, one sample a rank."""
    llama = load_models()["Llama-3.1-8B"]
    job = Workload(model=llama, prompt_tokens=1, response_tokens=1023, max_response_tokens=1023, response_cv=0)
    assert (training_bytes(job, Formation.flat(8), 1024) <= usable_training_bytes(small_gpu(h800, gib))) == fits


def test_qwen_32b_runs_out_of_eight_80_gb_gpus(h800: GpuSpec) -> None:
    """hiyouga/LlamaFactory#6999 and simplescaling/s1#13; sixteen are enough."""
    qwen = load_models()["Qwen2.5-32B"]
    job = Workload(model=qwen, prompt_tokens=1, response_tokens=1023, max_response_tokens=1023, response_cv=0)
    eight, sixteen = (training_bytes(job, Formation.flat(ranks), 1024) for ranks in (8, 16))
    assert sixteen <= usable_training_bytes(h800) < eight


@given(machines=st.integers(1, 16), ranks=st.sampled_from([1, 2, 4, 8]), tokens=st.integers(1, 32768))
def test_copies_on_every_machine_never_take_less_than_shares(
    workload: Workload, machines: int, ranks: int, tokens: int
) -> None:
    flat, copied = (
        training_bytes(workload, Formation(kind, machines, ranks), tokens)
        for kind in (LayoutKind.FSDP, LayoutKind.HSDP)
    )
    if machines == 1:
        assert copied == flat
    elif ranks > 1:
        assert copied > flat
    else:  # a whole model has nothing to gather, but its states
        assert copied > flat - 18 * workload.model.params


def test_tensor_parallelism_leaves_every_rank_the_head_and_cuts_the_work_of_a_layer(workload: Workload) -> None:
    model = workload.model
    one_more = [
        training_bytes(workload, Formation(LayoutKind.TP, 1, 4), many + 1000)
        - training_bytes(workload, Formation(LayoutKind.TP, 1, 4), many)
        for many in (160_000, 320_000)  # enough for a layer to take more than the loss
    ]
    per_unit = 2 * model.layers + 10 + 24 / 4
    assert one_more == pytest.approx([1000 * model.hidden * per_unit] * 2)
    head = 2 * model.vocab * model.hidden
    states = 18 * ((model.params - head) / 4 + head)
    assert training_bytes(workload, Formation(LayoutKind.TP, 1, 4), 8192) > states
    assert training_bytes(workload, Formation(LayoutKind.TP, 2, 4), 8192) > states / 2
