import pytest
from pydantic import ValidationError

from hexcloud.domain.market import Rejection
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import RolloutColumn

COLUMN = RolloutColumn(
    offer_id=OfferId("acme/us/a/one/spot"), tp=1, replicas=8, batch=4, samples_per_s=1.0, generation_s=2.0
)
NAME = OfferId("acme/us/b/two/spot")


def test_a_twin_is_what_a_checked_copy_would_be() -> None:
    twin = COLUMN.twin(offer_id=NAME)
    checked = COLUMN.model_copy(update={"offer_id": NAME})
    assert twin == checked == RolloutColumn.model_validate(twin.model_dump())
    assert (hash(twin), twin.model_dump_json()) == (hash(checked), checked.model_dump_json())
    assert twin.model_fields_set == checked.model_fields_set
    assert twin.slots == COLUMN.slots


def test_the_first_one_stays_as_it_was_and_neither_can_be_changed() -> None:
    twin = COLUMN.twin(offer_id=NAME)
    assert COLUMN.offer_id != twin.offer_id
    for one in (COLUMN, twin):
        with pytest.raises(ValidationError, match="frozen"):
            one.offer_id = NAME  # type: ignore[misc]


def test_a_field_that_was_left_to_its_default_counts_as_given_in_the_twin() -> None:
    first = Rejection(offer_id=NAME, rule="memory", reason="too small")
    assert first.twin(reason="far too small").model_fields_set == {"offer_id", "rule", "reason"}
    given = COLUMN.model_construct(_fields_set={"tp"}, **dict(COLUMN))
    assert given.twin(batch=8).model_fields_set == {"tp", "batch"}
    assert given.model_fields_set == {"tp"}
