import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hexcloud import wiring
from hexcloud.cli.page import Report, html
from hexcloud.cli.planned import Planned, make
from hexcloud.domain.market import Finding, Outcome
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunSpec
from hexcloud.planner.explain import WhyNot, WhyNotKind
from hexcloud.planner.shadow import ShadowPrice

VOID = {"meta", "img"}


class Strict(HTMLParser):
    """Fails on tags that are not closed in order; keeps tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report() -> Report:
    planned = make(wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k")), "10k", with_baselines=False)
    rivals = (
        BaselineRow(name="only <b>GPU</b>", usd_per_hour=2 * planned.result.plan.allocation.usd_per_hour),
        BaselineRow(name="unable", usd_per_hour=None, reason="x"),
    )
    why = WhyNot(pattern="H<1>", matches=1, kind=WhyNotKind.TOO_DEAR, reason='5 < 6 & "quoted"')
    found = Finding(source="s", row="<row>", field="price", outcome=Outcome.REJECT, reason="far & off", rule="step")
    market = planned.given.market.model_copy(update={"findings": (found,)})
    planned = replace(planned, given=replace(planned.given, market=market))
    price = ShadowPrice(
        rule="pools", meaning="m", change="one more", step=1.0, unit="offer", gain_per_unit=0.5, gain_unit="USD/h"
    )
    return Report(replace(planned, baselines=rivals), (price,), (why,), b"\x89PNG picture")


def parsed(text: str) -> Strict:
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_the_page_is_whole_and_needs_nothing_else(report: Report) -> None:
    page = parsed(html(report))
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not page.tags & {"script", "link", "iframe"}
    assert "http" not in html(report)


def test_what_others_wrote_is_shown_and_not_obeyed(report: Report) -> None:
    text = html(report)
    assert "only &lt;b&gt;GPU&lt;/b&gt;" in text
    assert "5 &lt; 6 &amp; &quot;quoted&quot;" in text
    assert "H&lt;1&gt;" in text
    assert "&lt;row&gt;" in text and "far &amp; off" in text


def test_the_page_tells_plan_proof_rules_rivals_and_the_rest(report: Report) -> None:
    text = re.sub(r"<[^>]*>", " ", html(report))
    plan = report.planned.result.plan
    assert f"{plan.allocation.usd_per_hour:.2f} USD/h" in text
    words = " ".join(text.split())
    assert f"no plan is under {plan.allocation.proof.lower_bound_usd_per_hour:.2f} USD/h" in words
    assert f"the plan is within {plan.allocation.proof.gap:.3%}" in words
    assert f"branch-and-bound nodes {plan.allocation.proof.nodes}" in words
    for count in Counter(rejection.rule for rejection in report.planned.result.rejections).items():
        assert "{} {}".format(*count) in words
    for row in report.planned.baselines:
        assert row.reason in words
    for slot in plan.placement.slots:
        assert slot.offer_id in text
    for offer in report.planned.offers.values():
        assert f"{offer.as_of:%Y-%m-%d}" in text
    assert f"prices of {report.planned.price_dates}" in text
    for words in (
        "one more",
        "0.50 USD/h per offer",
        "50%",
        "not_chosen",
        "10000 tok/s wanted",
    ):
        assert words in text


def test_a_page_of_another_objective_names_its_cap(report: Report) -> None:
    spec = RunSpec(cloud=("nebius",), max_usd_per_hour=30.0)
    planned: Planned = make(wiring.snapshot_input(spec), None, with_baselines=False)
    text = html(Report(planned, (), (), b""))
    assert "at most 30.00 USD/h" in text
    assert "no plan makes more than" in text
    parsed(text)


def test_sections_of_which_there_is_nothing_to_tell_are_left_out(report: Report) -> None:
    bare = replace(report, planned=replace(report.planned, baselines=()), why_not=(), frontier_png=b"")
    text = html(bare)
    parsed(text)
    for title in ("Why not", "simpler buyers", "Cost against throughput"):
        assert title in html(report)
        assert title not in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head(report: Report) -> None:
    for table in re.findall(r"<table>.*?</table>", html(report), flags=re.DOTALL):
        head, *rows = re.findall(r"<tr>.*?</tr>", table, flags=re.DOTALL)
        assert rows
        assert {row.count("<td") for row in rows} == {head.count("<th")}
