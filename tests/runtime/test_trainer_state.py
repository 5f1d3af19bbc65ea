import torch

from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.trainer_pack import Pack, make_pack
from hexcloud.runtime.trainer_policy import local
from hexcloud.runtime.trainer_state import WholeModel
from tests.runtime.test_trainer_pack import graded
from tests.runtime.training import small_model, state_of


def test_parts_share_their_storage_with_the_policy_and_the_optimizer() -> None:
    state = state_of(small_model(), TrainingSpec())
    state.policy(_pack())[0].sum().backward()
    assert state.gradients()
    before = {name: part.clone() for name, part in state.buffers().items()}
    state.optimizer.step()
    after = state.buffers()
    for kind in ("weight", "exp_avg", "exp_avg_sq"):
        assert any(not torch.equal(after[name], before[name]) for name in after if name.startswith(kind)), kind
    assert state.updates == 1


def test_updates_come_back() -> None:
    state = state_of(small_model(), TrainingSpec())
    state.updates = 7
    assert state.updates == 7


def test_a_reference_is_kept_only_where_it_counts_and_is_frozen() -> None:
    assert state_of(small_model(), TrainingSpec()).reference is None
    state = state_of(small_model(), TrainingSpec(kl_weight=0.1))
    assert state.reference is not None
    assert not any(weight.requires_grad for weight in state.reference.parameters())
    assert "reference.model.norm.weight" in state.tensors()
    with torch.no_grad():
        assert torch.equal(state.reference(_pack())[0], state.policy(_pack())[0])


def test_the_policy_of_one_rank_is_whole() -> None:
    state = state_of(small_model(), TrainingSpec())
    assert WholeModel(is_wanted=True).of(state) is state.policy.model
    assert all(torch.equal(local(weight), weight) for weight in state.policy.parameters())


def _pack() -> Pack:
    return make_pack([[graded(3, 4)]], version=4)
