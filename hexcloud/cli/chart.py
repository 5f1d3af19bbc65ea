"""chart: cost against throughput as a PNG. The only user of matplotlib, which needs no display here."""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (8.0, 5.0)
_DPI = 150
_COLORS = ("#d1495b", "#edae49", "#66a182", "#8d96a3", "#7b5ea7")
_PLAN_COLOR = "#00798c"
_MARKERS = "svD^P"


@dataclass(frozen=True)
class Line:
    """One buyer's prices: (trained tok/s, USD/h), in order."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Chart:
    """What is drawn: the plan's own line comes first."""

    title: str
    lines: tuple[Line, ...]
    here: tuple[float, float]
    """The plan itself."""
    cap_usd_per_hour: float | None = None
    note: str = ""
    """Goes on under the picture."""


def png(chart: Chart) -> bytes:
    """Return the chart as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for index, line in reversed(list(enumerate(chart.lines))):
        _draw(axes, line, index)
    axes.plot(*chart.here, marker="*", markersize=16, color=_PLAN_COLOR, markeredgecolor="white", zorder=5)
    axes.annotate("this plan", chart.here, xytext=(8, -14), textcoords="offset points", color=_PLAN_COLOR)
    if chart.cap_usd_per_hour is not None:
        axes.axhline(chart.cap_usd_per_hour, color="#444444", linestyle=":", label="cap of the policy")
    axes.set(title=chart.title, xlabel=f"throughput, trained tok/s{chart.note}", ylabel="cost, USD/h")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="upper left")
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _draw(axes: "Axes", line: Line, index: int) -> None:
    if not line.points:
        return
    xs, ys = zip(*line.points, strict=True)
    if index == 0:
        axes.plot(xs, ys, color=_PLAN_COLOR, marker="o", linewidth=2.5, label=line.name, zorder=4)
        return
    style = (index - 1) % len(_COLORS)
    axes.plot(xs, ys, color=_COLORS[style], marker=_MARKERS[style], linewidth=1.2, alpha=0.9, label=line.name)
