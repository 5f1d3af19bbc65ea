"""told: what `plan` was asked beyond the plan itself (--why, --explain, --frontier, --html), and the answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.cli.explained import explain_notable, price_rules, rules_fields, rules_view
from hexcloud.cli.frontier import chart_of, frontier_fields, require_png, require_writable, solve_frontier
from hexcloud.cli.own_fleet import require_prices, why_not_own

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hexcloud.cli.planned import Planned
    from hexcloud.planner.explain import WhyNot
    from hexcloud.planner.frontier import FrontierStep
    from hexcloud.planner.shadow import ShadowPrice


@dataclass(frozen=True)
class Told:
    """Answers beside a plan; None where nothing was asked."""

    planned: "Planned"
    why: "WhyNot | None"
    prices: "tuple[ShadowPrice, ...] | None"
    steps: "tuple[FrontierStep, ...] | None"
    files: tuple[Path, ...]

    def fields(self) -> dict[str, object]:
        """Return the answers for a machine."""
        fields: dict[str, object] = {}
        if self.why is not None:
            fields["why"] = self.why.model_dump(mode="json")
        if self.prices is not None:
            fields["binding"] = rules_fields(self.prices)
        if self.steps is not None:
            fields["frontier"] = frontier_fields(self.planned, self.steps)
        return fields

    def view(self) -> "RenderableType":
        """Return the answers for a reader."""
        from rich.console import Group

        rules = () if self.prices is None else ("", rules_view(self.prices))
        why = () if self.why is None else (f"\nwhy not {self.why.pattern}: {self.why.reason}",)
        return Group(*rules, *why, *(f"written: {file}" for file in self.files))


@dataclass(frozen=True)
class Wanted:
    """What was asked."""

    why: str | None = None
    explain: bool = False
    frontier: Path | None = None
    html: Path | None = None

    def require_possible(self, unpriced: tuple[str, ...] = ()) -> None:
        """Raise ConfigError for what cannot be answered, before anything is solved.

        `unpriced`: the user's own machines of which nobody said what they cost.
        """
        if self.frontier:
            require_prices("--frontier", unpriced)
            require_png(self.frontier)
            require_writable("--frontier", self.frontier)
        if self.html:
            require_writable("--html", self.html)

    def answer(self, planned: "Planned") -> Told:
        """Return the answers and write the files. Progress goes to stderr."""
        prices = price_rules(planned) if self.explain or self.html else None
        steps = solve_frontier(planned) if self.frontier or (self.html and not _unpriced(planned)) else None
        picture = self._draw(planned, steps) if steps is not None else b""
        if self.html:
            self._write_page(planned, prices or (), picture)
        files = tuple(file for file in (self.frontier, self.html) if file)
        return Told(planned, self._why_not(planned), prices, steps, files)

    def _draw(self, planned: "Planned", steps: "tuple[FrontierStep, ...]") -> bytes:
        from hexcloud.cli.chart import png

        picture = png(chart_of(planned, steps))
        if self.frontier:
            self.frontier.write_bytes(picture)
        return picture

    def _write_page(self, planned: "Planned", prices: "tuple[ShadowPrice, ...]", picture: bytes) -> None:
        from hexcloud.cli.page import Report, html

        if self.html:
            why_not = () if planned.is_own_fleet else explain_notable(planned)
            report = Report(planned, prices, why_not, picture)
            self.html.write_text(html(report), encoding="utf-8")

    def _why_not(self, planned: "Planned") -> "WhyNot | None":
        from hexcloud.planner.explain import why_not

        given = planned.given
        if self.why and planned.is_own_fleet:
            return why_not_own(self.why, planned)
        return why_not(self.why, given.market, given.workload, given.policy) if self.why else None


def _unpriced(planned: "Planned") -> tuple[str, ...]:
    from hexcloud import wiring

    return wiring.unpriced(planned.given.market) if planned.is_own_fleet else ()
