from io import StringIO

from rich.console import Console

from hexcloud.cli.rivals import CHEAPEST, hidden_rows, rivals_fields, rivals_view, share, shown_rows
from hexcloud.domain.report import BaselineRow
from hexcloud.planner.baselines import GREEDY, ON_DEMAND, SKYPILOT
from hexcloud.planner.shop import CANNOT

ROWS = (
    *(BaselineRow(name=f"only cloud{number}", usd_per_hour=10.0 + number) for number in range(8)),
    BaselineRow(name="only H100, any tenure", usd_per_hour=20.0),
    BaselineRow(name=ON_DEMAND, usd_per_hour=21.0),
    BaselineRow(name="only H100, on-demand", usd_per_hour=26.92),
    BaselineRow(name="only B200, on-demand", usd_per_hour=27.0),
    BaselineRow(name=SKYPILOT, usd_per_hour=28.0),
    BaselineRow(name=GREEDY, usd_per_hour=29.0),
    BaselineRow(name="only L4, on-demand", usd_per_hour=None, reason="pays over 60.00 USD/h"),
    BaselineRow(name="only T4, on-demand", usd_per_hour=None, reason=f"{CANNOT} under the plan's rules"),
    BaselineRow(name="only V100, on-demand", usd_per_hour=None, reason=f"{CANNOT}: no gang"),
)


def test_the_cheapest_rows_and_every_named_buyer_are_shown() -> None:
    names = [row.name for row in shown_rows(ROWS)]
    assert names[:CHEAPEST] == [f"only cloud{number}" for number in range(CHEAPEST)]
    assert names[CHEAPEST:] == ["only H100, any tenure", ON_DEMAND, "only H100, on-demand", SKYPILOT, GREEDY]


def test_every_buyer_is_a_row_or_counted_with_the_reason() -> None:
    told = hidden_rows(ROWS)
    assert told == (
        "not shown: 3 more pay 16.00 to 27.00 USD/h, 1 pays over 3 times as much as the plan, 2 cannot make it "
        "(--json lists all)"
    )
    assert len(shown_rows(ROWS)) + 3 + 1 + 2 == len(ROWS)
    assert hidden_rows(ROWS[:3]) == ""


def test_one_buyer_more_pays_one_price() -> None:
    names = {"only cloud6", "only cloud7", "only B200, on-demand"}
    told = hidden_rows(tuple(row for row in ROWS if row.name not in names) + ROWS[6:7])
    assert told.startswith("not shown: 1 more pays 16.00 USD/h, 1 pays over")


def test_a_reader_sees_both_and_a_machine_sees_all() -> None:
    out = StringIO()
    Console(width=160, file=out).print(rivals_view(ROWS, lambda row: 0.25))
    assert "26.92" in out.getvalue() and "2 cannot make it" in out.getvalue() and "25%" in out.getvalue()
    fields = rivals_fields(ROWS)
    assert len(fields) == len(ROWS)
    assert fields[-1]["reason"] == f"{CANNOT}: no gang"


def test_a_plan_within_its_gap_saves_nothing_and_not_minus_nothing() -> None:
    assert share(-0.0004) == "0%"
    assert share(None) == "0%"
