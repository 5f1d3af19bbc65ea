"""Pictures of what benchmarks found: one row of dots for each name, and lines at the bars."""

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Strips:
    """Values of several names on one axis."""

    title: str
    axis: str
    values: dict[str, list[float]]
    marks: tuple[float, ...] = ()
    """Where vertical lines go."""


def png_asked() -> Path | None:
    """Return the file after `--png`, if that was given."""
    given = sys.argv[1:]
    if "--png" not in given:
        return None
    after = given[given.index("--png") + 1 :]
    if not after:
        sys.exit("--png needs the name of a file")
    return Path(after[0])


def draw_strips(strips: Strips, path: Path) -> None:
    """Draw the strips as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.45 * len(strips.values)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = list(strips.values)
    for height, name in enumerate(reversed(names)):
        found = strips.values[name]
        axes.plot(found, [height] * len(found), "o", alpha=0.35, markersize=6, markeredgewidth=0)
        middle = sorted(found)[len(found) // 2]
        axes.plot([middle], [height], "|", color="black", markersize=16)
    for mark in strips.marks:
        axes.axvline(mark, color="grey", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(names)), labels=list(reversed(names)))
    axes.set_xlabel(strips.axis)
    axes.set_title(strips.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=130)
