"""Plots for people: prices over time. The only user of matplotlib beside the frontier."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hexcloud.cli.tracks import Track

DAY_S = 86400.0
SUFFIXES = (".png", ".svg", ".pdf")
MOST_NAMED = 16
"""More lines than this cannot be told apart by colour and line style, so they go unnamed."""
_STYLES = ("-", "--")


def draw_prices(tracks: "Sequence[Track]", path: Path, since_s: float, until_s: float) -> None:
    """Draw each offer's price as steps, USD/h over time (UTC). Raises ConfigError when the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from hexcloud.domain.errors import ConfigError

    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--plot {path}: must end in {', '.join(SUFFIXES)}")
    figure = Figure(figsize=(10, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shared = _shared_name(tracks)
    drawn = [track for track in tracks if track.prices()]
    for number, track in enumerate(drawn):
        moments, prices = _steps(track, since_s, until_s)
        style = _STYLES[number // 10 % len(_STYLES)]
        axes.step(moments, prices, style, where="post", label=_own_name(track, shared), linewidth=1.4)
    axes.set_xlim(since_s / DAY_S, until_s / DAY_S)
    axes.xaxis_date("UTC")
    axes.set_ylabel("USD per hour")
    axes.set_title(shared or f"{len(tracks)} offers", loc="left")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if 1 < len(drawn) <= MOST_NAMED:
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise ConfigError(f"--plot {path}: cannot be written: {error.strerror}") from error


def _steps(track: "Track", since_s: float, until_s: float) -> tuple[list[float], list[float]]:
    """Return the corners of a line: days since the epoch, USD/h; NaN is a gap in it."""
    changes = track.between(since_s, until_s).changes
    corners = [(max(since_s, change.at_s), change.usd_per_hour) for change in changes]
    corners += [(until_s, corners[-1][1])] if corners else []
    return [at_s / DAY_S for at_s, _ in corners], [float("nan") if usd is None else usd for _, usd in corners]


def _shared_name(tracks: "Sequence[Track]") -> str:
    """Return the machine and tenure that all tracks share, empty when they differ."""
    names = {tuple(track.offer_id.split("/")[-2:]) for track in tracks}
    return ", ".join(names.pop()).replace("_", "-") if len(names) == 1 else ""


def _own_name(track: "Track", shared: str) -> str:
    """Return what tells a track from the others."""
    cloud, region, zone, machine = track.offer_id.split("/", 3)
    place = region if zone == "-" else zone
    return f"{cloud} {place}" if shared else f"{place} {machine}"
