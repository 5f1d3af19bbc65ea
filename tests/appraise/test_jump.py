from collections.abc import Callable
from typing import Any

import pytest

from hexcloud.appraise.jump import Steps
from hexcloud.appraise.known import Known
from hexcloud.domain.prices import Held
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]


def past(row: Row, price: float, said_in: str = "USD", known: Known | None = None, **held: Any) -> Known:
    """A source that last said `price`, and perhaps a row in quarantine since an earlier snapshot."""
    waits = {"offer_id": row.id, "source": row.source, "rule": "step", "reason": "?", "currency": row.currency}
    rows = (Held.model_validate({**waits, "content": "old", "at_s": 0.0, **held}),) if held else ()
    update = {"last": {(row.source, row.id): (price, said_in)}, "held": rows}
    return (known or Known()).model_copy(update=update)


def waits(row: Row, known: Known, content: str = "new") -> bool:
    return Steps(known, content).doubt(row) is not None


@pytest.mark.parametrize(("price", "jumps"), [(51.9, False), (52.1, True), (28.1, False), (27.9, True), (40.0, False)])
def test_a_price_may_move_by_three_tenths_up_or_down(row: MakeRow, price: float, jumps: bool) -> None:
    assert waits(row(price=price), past(row(), 40.0)) is jumps


def test_a_source_that_never_spoke_of_the_offer_makes_no_step(row: MakeRow) -> None:
    assert not waits(row(price=4000.0), past(row(zone="b"), 40.0))
    assert not waits(row(price=4000.0, source="tracker"), past(row(), 40.0))


def test_a_price_per_gpu_is_compared_as_a_machines_price(row: MakeRow) -> None:
    assert not waits(row(price=5.0, per="gpu"), past(row(), 40.0))
    assert waits(row(price=40.0, per="gpu"), past(row(), 40.0))


def test_a_second_snapshot_with_other_content_frees_a_step(row: MakeRow) -> None:
    known = past(row(), 80.0, list_price=40.0)
    assert not waits(row(), known, "new")
    assert not waits(row(price=44.0), known, "new"), "prices go on moving"
    assert not waits(row(price=28.1), known, "new")
    assert not waits(row(price=55.0), known, "new")
    assert waits(row(price=27.9), known, "new"), "a fall that goes on by as much is another step"
    assert waits(row(price=105.0), known, "new"), "on the other side"


def test_a_look_that_is_nearer_to_the_last_accepted_price_confirms_nothing(row: MakeRow) -> None:
    known = past(row(), 50.0, list_price=100.0)
    assert waits(row(price=74.0), known, "new") and not waits(row(price=76.0), known, "new")
    assert not waits(row(price=190.0), known, "new"), "too dear is never an error"


def test_a_step_from_where_the_price_is_now_accepted_waits_again(row: MakeRow) -> None:
    assert waits(row(price=70.0), past(row(), 50.0, list_price=60.0), "new"), "what was held is no step by now"


@pytest.mark.parametrize("daily", [1.06, 1.1, 0.92])
def test_a_price_that_keeps_moving_is_followed_one_look_behind(row: MakeRow, daily: float) -> None:
    last, held, price = 50.0, None, 50.0 * (1.4 if daily > 1 else 0.6)
    for _ in range(12):
        known = past(row(), last, list_price=held) if held else past(row(), last)
        last, held = (last, price) if waits(row(price=price), known) else (price, None)
        price *= daily
    assert last == pytest.approx(price / daily, rel=0.3)


@pytest.mark.parametrize("content", ["old", ""])
def test_the_same_snapshot_once_more_confirms_nothing(row: MakeRow, content: str) -> None:
    assert waits(row(), past(row(), 80.0, list_price=40.0), content)


@pytest.mark.parametrize(
    "odd",
    [
        {"rule": "far_too_cheap"},
        {"currency": "CNY"},
        {"source": "tracker"},
        {"content": ""},
        {"offer_id": "aws/us-east-1/b/big/on_demand"},
    ],
)
def test_what_waits_for_another_reason_confirms_nothing(row: MakeRow, odd: dict[str, Any]) -> None:
    assert waits(row(), past(row(), 80.0, list_price=40.0, **odd))


def test_the_user_or_a_bill_frees_a_step(row: MakeRow, vouched: Callable[..., dict[str, Any]]) -> None:
    known = past(row(), 80.0)
    assert not waits(row(), known.model_copy(update=vouched(row(), "step")))
    assert waits(row(), known.model_copy(update=vouched(row(), "far_too_cheap")))
    assert waits(row(price=20.0), known.model_copy(update=vouched(row(), "step"))), "not what was asked about"


def test_a_source_that_changes_its_currency_is_compared_at_the_rate_of_the_day(row: MakeRow, known: Known) -> None:
    yuan = row(price=286.0, currency="CNY")
    assert not waits(yuan, past(yuan, 40.0, "USD", known))
    assert waits(row(price=40.0, currency="CNY"), past(yuan, 40.0, "USD", known)), "dollars taken for yuan"
    assert not waits(yuan, past(yuan, 40.0, "ISK", known)), "nobody can say"


def test_the_reason_tells_both_prices(row: MakeRow) -> None:
    doubt = Steps(past(row(), 98.32), "new").doubt(row(price=55.04))
    assert doubt is not None
    assert doubt.reason.startswith("98.32 -> 55.04 USD/h (-44%) since the last snapshot")
