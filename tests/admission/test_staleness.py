import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hexcloud.admission.staleness import StalenessLaw

LAW = StalenessLaw(samples_per_step=8, group_size=4, eta=2)

laws = st.builds(
    lambda groups, size, eta: StalenessLaw(samples_per_step=groups * size, group_size=size, eta=eta),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 8),
)


def test_room_ends_at_eta_plus_one_batches() -> None:
    assert LAW.most_outstanding == 24
    assert LAW.room(0) == 24
    assert LAW.room(20) == 4
    assert LAW.room(24) == 0


def test_room_is_never_negative() -> None:
    assert LAW.room(1000) == 0


def test_a_batch_must_consist_of_whole_groups() -> None:
    with pytest.raises(ValidationError, match="not a multiple"):
        StalenessLaw(samples_per_step=9, group_size=4, eta=0)


def test_age_is_the_training_step_minus_the_oldest_token() -> None:
    assert LAW.age(step=7, oldest_version=5) == 2
    assert LAW.oldest_trainable(7) == 5


@given(laws, st.integers(0, 100), st.data())
def test_the_newest_weights_are_always_young_enough_for_a_group_that_has_room(
    law: StalenessLaw, version: int, data: st.DataObject
) -> None:
    groups_ahead = data.draw(st.integers(0, law.most_outstanding // law.group_size - 1))
    due = law.due_step(version, groups_ahead * law.group_size)
    assert law.oldest_trainable(due) <= version


@given(laws, st.integers(0, 100))
def test_what_is_just_trainable_has_age_eta(law: StalenessLaw, step: int) -> None:
    assert law.age(step, law.oldest_trainable(step)) == law.eta
