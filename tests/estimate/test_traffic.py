"""Times by hand: bytes of a 7B model over links of a known speed, of which NCCL reaches NETWORK_SHARE."""

import pytest

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.load import Load
from hexcloud.estimate.memory import layer_params
from hexcloud.estimate.traffic import HIDDEN_SHARE, NETWORK_SHARE, Wires, Work, exposed_s

FSDP, HSDP, TP = LayoutKind.FSDP, LayoutKind.HSDP, LayoutKind.TP
LOAD = Load(tokens=8 * 2048, passes=8, updates=4)
NO_COMPUTE = Work(LOAD, compute_s=0.0)


@pytest.fixture
def workload(workload: Workload) -> Workload:
    """The default job, with pi_prox for every sample."""
    return workload.model_copy(update={"prox_share": 1.0})


def wires(kind: LayoutKind, machines: int = 2, ranks: int = 4, network: float = 10.0) -> Wires:
    return Wires(Formation(kind, machines, ranks), link_gb_per_s=200.0, network_gb_per_s=network)


def seconds(size_bytes: float, gb_per_s: float) -> float:
    return size_bytes / (gb_per_s * NETWORK_SHARE * 1e9)


def test_every_pass_of_fsdp_goes_round_all_ranks(workload: Workload) -> None:
    once = 7 / 8 * workload.model.params * (3 * 2 + 4)
    assert exposed_s(wires(FSDP), NO_COMPUTE, workload) == pytest.approx(8 * seconds(once, 10.0))


def test_hsdp_gathers_inside_and_sums_gradients_over_machines_once_an_update(workload: Workload) -> None:
    params = workload.model.params
    inside = seconds(3 / 4 * params * (3 * 2 + 4), 200.0)
    across = seconds(2 * 1 / 2 * params * 4, 10.0)  # of all shards of a machine over its one network
    assert exposed_s(wires(HSDP), NO_COMPUTE, workload) == pytest.approx(8 * inside + 4 * across)
    once = Work(LOAD._replace(updates=1), compute_s=0.0)
    assert exposed_s(wires(HSDP), once, workload) == pytest.approx(8 * inside + across)


def test_what_other_policies_are_asked_gathers_weights_as_often(workload: Workload) -> None:
    once = 7 / 8 * workload.model.params
    for prox_share, keeps_reference, gathers in ((0.0, False, 2.0), (0.75, False, 2.75), (0.75, True, 3.75)):
        job = workload.model_copy(update={"prox_share": prox_share, "keeps_reference": keeps_reference})
        assert exposed_s(wires(FSDP), NO_COMPUTE, job) == pytest.approx(8 * seconds(once * (2 * gathers + 4), 10.0))


def test_fp32_gathers_twice_the_bytes(workload: Workload) -> None:
    job = workload.model_copy(update={"published_bytes_per_param": 4})
    once = 7 / 8 * workload.model.params * (3 * 4 + 4)
    assert exposed_s(wires(FSDP), NO_COMPUTE, job) == pytest.approx(8 * seconds(once, 10.0))


def test_a_sum_of_gradients_hides_behind_the_backward_pass_it_ends(workload: Workload) -> None:
    across = seconds(workload.model.params * 4, 10.0)
    work = Work(Load(tokens=8 * 2048, passes=2, updates=1), compute_s=across)
    shown = across - HIDDEN_SHARE * across / 2 * 3 / 5  # backward is three of the five forward passes' worth
    assert exposed_s(wires(HSDP), work, workload) == pytest.approx(shown)


def test_tp_sums_activations_in_the_open(workload: Workload) -> None:
    model = workload.model
    alone = wires(TP, machines=1)
    one_sum = 2 * 3 / 4 * 8 * workload.tokens_per_sample * model.hidden * 2
    wanted = model.layers * (3 * 2 + 5) * seconds(one_sum, 200.0)
    assert exposed_s(alone, NO_COMPUTE, workload) == pytest.approx(wanted)
    assert exposed_s(alone, Work(LOAD, compute_s=1e6), workload) == pytest.approx(wanted)


def test_tp_gathers_its_part_of_the_layers_and_all_of_the_head_over_machines(workload: Workload) -> None:
    model = workload.model
    layers = model.layers * layer_params(model)
    own = layers / 4 + model.params - layers
    across = 8 * seconds(1 / 2 * own * (3 * 2 + 4), 10.0 / 4)
    alone = exposed_s(wires(TP, machines=1), NO_COMPUTE, workload)
    assert exposed_s(wires(TP), NO_COMPUTE, workload) == pytest.approx(alone + across)


def test_one_machine_gathers_the_same_under_fsdp_and_hsdp_whatever_its_network(workload: Workload) -> None:
    slow = exposed_s(wires(FSDP, 1, network=0.001), NO_COMPUTE, workload)
    assert slow == exposed_s(wires(HSDP, 1), NO_COMPUTE, workload) > 0


def test_one_rank_waits_for_nobody(workload: Workload) -> None:
    assert all(exposed_s(wires(kind, 1, 1), NO_COMPUTE, workload) == 0 for kind in LayoutKind)
