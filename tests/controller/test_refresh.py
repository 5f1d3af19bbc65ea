"""A refresh keeps what is believed of each region's answer, and nothing bad takes the last good answer away."""

from datetime import timedelta
from typing import Any

import pytest

from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.refresh import known_now, refresh
from hexcloud.domain.market import Outcome
from hexcloud.domain.prices import Voucher
from hexcloud.domain.row import Part
from tests.controller.answers import FACTS, HOUR, NOON, Answers, ask, listed, part, row, word_for


def test_what_is_believed_is_kept_and_counted(prices: SqlitePrices) -> None:
    (report,) = ask(prices, part(0, row(32.0), row(0.0, tenure="spot")))
    assert (report.rows, report.changes, report.problem) == (2, 1, "")
    assert (report.outcomes[Outcome.ACCEPT], report.outcomes[Outcome.REJECT]) == (1, 1)
    assert listed(prices) == [32.0]


@pytest.mark.parametrize(
    "bad",
    [part(1, problem="credentials expired; log in again"), part(1)],
    ids=["failed", "empty"],
)
def test_a_bad_answer_keeps_the_last_good_one(prices: SqlitePrices, bad: Part) -> None:
    ask(prices, part(0, row(32.0)))
    (report,) = ask(prices, bad)
    assert report.problem
    assert report.good_s == NOON.timestamp()
    assert listed(prices) == [32.0]


def test_a_half_written_answer_keeps_the_last_good_one(prices: SqlitePrices) -> None:
    rows = [row(32.0, zone=zone) for zone in "abcd"]
    ask(prices, part(0, *rows))
    (report,) = ask(prices, part(1, rows[0]))
    assert "half-written" in report.problem
    assert len(listed(prices)) == 4
    (again,) = ask(prices, part(2, rows[0]))
    assert again.problem == ""
    assert len(listed(prices)) == 1, "a second answer like it, with other content, is the truth"


def test_one_region_that_fails_stops_no_other(prices: SqlitePrices) -> None:
    reports = ask(prices, part(0, region="us", problem="timed out"), part(0, row(32.0)))
    assert [bool(report.problem) for report in reports] == [True, False]
    assert listed(prices) == [32.0]


def test_a_step_waits_for_a_second_snapshot_with_other_content(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0)))
    ask(prices, part(1, row(18.0)))
    assert listed(prices) == [32.0], "one snapshot may be a mistake"
    ask(prices, part(2, row(18.0), content="hour 1"))
    assert listed(prices) == [32.0], "the same snapshot again says nothing new"
    ask(prices, part(3, row(18.0)))
    assert listed(prices) == [18.0]
    assert [change.usd_per_hour for change in prices.history(row(1).id)] == [32.0, 18.0]


def test_a_price_far_too_low_is_freed_by_a_voucher_only(prices: SqlitePrices) -> None:
    for hour in range(3):
        ask(prices, part(hour, row(0.5)))
    assert listed(prices) == []
    prices.vouch(word_for(row(0.5), "far_too_cheap"))
    ask(prices, part(3, row(0.5)))
    assert listed(prices) == [0.5]


def test_a_bill_for_one_price_lets_no_other_price_and_no_copy_of_it_through(prices: SqlitePrices) -> None:
    bill = word_for(row(3.0), "far_too_cheap").model_copy(update={"by": "bill", "usd_per_hour": 3.0})
    prices.vouch(bill)
    ask(prices, part(0, row(3.0)))
    assert listed(prices) == [3.0]
    ask(prices, part(1, row(0.01)), part(1, row(0.02, source="copy", lineage="copy"), source="copy"))
    assert listed(prices) == [3.0], "the last good price stands"


def test_a_word_taken_back_frees_nothing_any_more(prices: SqlitePrices) -> None:
    prices.vouch(word_for(row(0.5), "far_too_cheap"))
    ask(prices, part(0, row(0.5)))
    back = Voucher(offer_id=row(1).id, by="user", at_s=1.0, takes_back=True)
    prices.vouch(back, prices.current())
    assert listed(prices) == []
    ask(prices, part(1, row(0.5)))
    assert listed(prices) == []


def test_two_lists_of_one_placeholder_do_not_confirm_each_other(prices: SqlitePrices) -> None:
    for hour in range(3):
        ask(prices, part(hour, row(0.01)), part(hour, row(0.01, source="copy", lineage="copy"), source="copy"))
    assert listed(prices) == []


def test_a_witness_of_years_ago_confirms_no_price(prices: SqlitePrices) -> None:
    old = NOON - timedelta(days=400)
    tracker = row(0.3, source="tracker", lineage="tracker", as_of=old.isoformat())
    prices.vouch(word_for(tracker, "far_too_cheap"))
    ask(prices, part(0, tracker, source="tracker", as_of=old))
    ask(prices, part(1, row(0.3)))
    assert [(one.row.source, one.row.price) for one in prices.current()] == [("tracker", 0.3)]


def test_what_a_gpu_of_no_table_usually_costs_is_learned_from_three_clouds(prices: SqlitePrices) -> None:
    clouds = {"neo": 64.0, "aws": 80.0, "gcp": 40.0}
    new = [(cloud, row(price, cloud=cloud, source=cloud, gpu="Q9")) for cloud, price in clouds.items()]
    ask(prices, *(part(0, listing, source=cloud, cloud=cloud) for cloud, listing in new))
    assert known_now(prices, FACTS).usual_usd_per_gpu_hour == {"H100": 4.0, "Q9": 8.0}
    cheap = row(0.01, cloud="shop", source="shop", gpu="Q9")
    ask(prices, part(1, cheap, source="shop", cloud="shop"))
    assert [held.rule for held in prices.held()] == ["far_too_cheap"]


def test_a_low_placement_score_holds_for_a_day_although_the_cloud_answers_only_once(prices: SqlitePrices) -> None:
    scored = row(12.0, tenure="spot", placement_score=1, scored_as_of=NOON.isoformat())
    for hour, listing in ((0, scored), (1, row(12.0, tenure="spot")), (23, row(12.0, tenure="spot"))):
        ask(prices, part(hour, listing.model_copy(update={"as_of": (NOON + hour * HOUR).isoformat()})))
        assert [belief.rule for belief in prices.current()] == ["low_placement_score"]
    ask(prices, part(25, row(12.0, tenure="spot", as_of=(NOON + 25 * HOUR).isoformat())))
    assert [belief.rule for belief in prices.current()] == [""]


def test_an_independent_source_frees_an_odd_count_and_a_copy_of_it_does_not(prices: SqlitePrices) -> None:
    odd = row(32.0, gpu_count=6)
    ask(prices, part(0, odd.model_copy(update={"source": "copy", "lineage": "neo"}), source="copy"))
    ask(prices, part(1, odd))
    assert listed(prices) == []
    ask(prices, part(2, odd.model_copy(update={"source": "tracker", "price": 33.0}), source="tracker"))
    ask(prices, part(3, odd))
    assert {belief.row.source: belief.row.price for belief in prices.current()} == {"tracker": 33.0, "neo": 32.0}


def test_a_currency_without_a_rate_is_not_believed_and_the_users_rate_mends_it(prices: SqlitePrices) -> None:
    euros = row(30.0, currency="EUR")
    ask(prices, part(0, euros))
    assert listed(prices) == []
    prices.save_rate("EUR", 1.1, 0.0)
    ask(prices, part(1, euros))
    (belief,) = prices.current()
    assert belief.usd_per_unit == 1.1


def test_a_new_rate_is_no_step(prices: SqlitePrices) -> None:
    euros = row(30.0, currency="EUR")
    prices.save_rate("EUR", 1.0, 0.0)
    ask(prices, part(0, euros))
    prices.save_rate("EUR", 1.9, 1.0)
    (report,) = ask(prices, part(1, euros))
    assert (report.changes, report.outcomes[Outcome.QUARANTINE]) == (0, 0)


def test_what_is_known_is_what_was_accepted(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0), row(0.01, instance_type="odd8")))
    known = known_now(prices, FACTS)
    assert dict(known.last) == {("neo", row(1).id): (32.0, "USD")}
    assert [held.offer_id for held in known.held] == [row(1, instance_type="odd8").id]


def test_a_half_written_answer_is_told_by_its_prices_not_by_how_many_were_believed(prices: SqlitePrices) -> None:
    good = [row(32.0, zone=f"good{number}") for number in range(4)]
    waiting = [row(0.5, zone=f"cheap{number}") for number in range(6)]
    ask(prices, part(0, *good, *waiting))
    assert len(listed(prices)) == 4
    (report,) = ask(prices, part(1, *good[:3]))
    assert "listed 3 prices where it had 10" in report.problem
    assert len(listed(prices)) == 4


def test_a_time_out_between_two_short_answers_does_not_unsay_the_first(prices: SqlitePrices) -> None:
    rows = [row(32.0, zone=zone) for zone in "abcd"]
    ask(prices, part(0, *rows))
    ask(prices, part(1, rows[0]))
    ask(prices, part(2, problem="throttled"))
    (report,) = ask(prices, part(3, rows[0]))
    assert (report.problem, len(listed(prices))) == ("", 1)


def test_an_answer_from_the_future_is_no_answer(prices: SqlitePrices) -> None:
    ask(prices, part(0, row(32.0)), now=NOON)
    (report,) = ask(prices, part(2, row(30.0)), now=NOON)
    assert "is dated 2026-07-20 14:00, which is yet to come" in report.problem
    assert listed(prices) == [32.0]
    (report,) = ask(prices, part(1, row(30.0)), now=NOON)
    assert report.problem == "", "clocks differ"
    assert listed(prices) == [30.0]


def test_a_row_from_the_future_is_refused_in_an_answer_of_now(prices: SqlitePrices) -> None:
    late = row(32.0, as_of="2026-07-21T12:00:00+00:00")
    (report,) = ask(prices, part(0, late, row(32.0, zone="a")), now=NOON)
    assert report.outcomes[Outcome.REJECT] == 1
    assert [belief.row.zone for belief in prices.current()] == ["a"]


def test_a_refresh_of_older_files_takes_nothing_away_and_says_so(prices: SqlitePrices) -> None:
    ask(prices, part(5, row(50.0)))
    (report,) = ask(prices, part(0, row(60.0)))
    assert "older than the ones known" in report.problem
    assert report.good_s == (NOON + 5 * HOUR).timestamp()
    assert listed(prices) == [50.0]
    assert [change.usd_per_hour for change in prices.history(row(1).id)] == [50.0]


def test_a_clock_that_was_once_ahead_locks_nothing(prices: SqlitePrices) -> None:
    ask(prices, part(9999, row(50.0)), now=NOON + 9999 * HOUR)
    (report,) = ask(prices, part(0, row(51.0)), now=NOON)
    assert (report.problem, listed(prices)) == ("", [51.0])


def ask_all(prices: SqlitePrices, *parts: Part) -> list[tuple[str, int, str]]:
    """Ask for every region; return each report's region, changes and problem."""
    reports = refresh(Answers(*parts), prices, FACTS, lambda: NOON + 99 * HOUR, every_region=True)
    return [(report.region, report.changes, report.problem) for report in reports]


def eu(hour: int) -> Part:
    return part(hour, row(32.0), complete=True)


def us(hour: int, **odd: Any) -> Part:
    return part(hour, row(33.0, region="us"), region="us", **odd)


def test_a_region_that_a_source_no_longer_lists_is_gone(prices: SqlitePrices) -> None:
    ask_all(prices, part(0, row(31.0, region="us", source="list"), region="us", source="list"))
    ask_all(prices, eu(0), us(0))
    assert ask_all(prices, eu(1)) == [("eu", 0, ""), ("us", 1, "")]
    assert [(one.row.source, one.row.region) for one in prices.current()] == [("neo", "eu"), ("list", "us")]
    (gone,) = [one for one in prices.refreshes() if (one.source, one.region) == ("neo", "us")]
    assert (gone.rows, gone.good_s, gone.complete) == (0, (NOON + HOUR).timestamp(), True)
    assert ask_all(prices, eu(2)) == [("eu", 0, "")], "it is said once"
    assert ask_all(prices, eu(3), us(3))[1] == ("us", 1, ""), "and it may come back"


@pytest.mark.parametrize(
    "bad",
    [us(1, problem="timed out"), part(-1, row(1.0)), part(1), part(1, region="*", cloud="*", problem="cannot be read")],
    ids=["failed", "old", "empty", "as a whole"],
)
def test_after_a_round_with_a_problem_no_region_is_taken_for_gone(prices: SqlitePrices, bad: Part) -> None:
    third = part(0, row(34.0, region="asia"), region="asia")
    ask_all(prices, eu(0), us(0), third)
    ask_all(prices, eu(1), us(1), bad)
    assert len(listed(prices)) == 3


def test_who_was_asked_for_some_regions_says_nothing_of_the_rest(prices: SqlitePrices) -> None:
    ask(prices, eu(0), us(0))
    ask(prices, eu(1))
    assert len(listed(prices)) == 2


def test_an_answer_without_most_of_the_regions_closes_none(prices: SqlitePrices) -> None:
    third = part(0, row(34.0, region="asia"), region="asia")
    ask_all(prices, eu(0), us(0), third)
    ask_all(prices, eu(1))
    assert len(listed(prices)) == 3
