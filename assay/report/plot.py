"""Plots as SVG: numbers over releases or problem sizes, a program's memory over its schedule."""

import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.model.bisection import Bisection, Step
from assay.model.summary import Peak
from assay.model.units import Unit, format_bytes, parse_bytes
from assay.report.labels import amount, plain
from assay.report.regression import sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES: Final = (9.0, 3.6)
_MOST_LABELS: Final = 60
"""With more releases, only every second, third … has its version under the axis."""
_LEAST_TILTED: Final = 9  # more versions than these do not fit side by side
_LABEL_ROWS: Final = 3
_HEADROOM: Final = 1.25  # of the largest number, for the rows of labels
_CLASS: Final = "assay-plot"
# Of each role: a colour that stands for it while it is drawn, then the light and the dark one.
_COLOURS: Final = {
    "paper": ("#010101", "#ffffff", "#0d1117"),
    "ink": ("#020202", "#1f2328", "#e6edf3"),
    "faint": ("#030303", "#59636e", "#9198a1"),
    "line": ("#040404", "#0969da", "#4493f8"),
    "step": ("#050505", "#cf222e", "#ff7b72"),
    "green": ("#060606", "#1a7f37", "#3fb950"),
    "violet": ("#070707", "#8250df", "#ab7df8"),
    "amber": ("#080808", "#9a6700", "#d29922"),
}
_PAPER, _INK, _FAINT, _LINE, _STEP, *_MORE = (drawn for drawn, _, _ in _COLOURS.values())
_MARKERS: Final = "os^vDPX"
"""With six colours, 42 lines differ."""
_STYLE: Final = {
    "axes.edgecolor": _FAINT,
    "axes.facecolor": _PAPER,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlesize": "medium",
    "figure.facecolor": _PAPER,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9.0,
    "lines.markersize": 5.0,
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "assay",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.color": _FAINT,
    "ytick.labelcolor": _INK,
}


def plot(found: Bisection) -> str:
    """The numbers over all releases as one SVG element: the same bytes for the same bisection.

    A line is dotted where releases between its ends have no number. A measured release without a
    number has a cross on the axis. Each step is labelled with its release. The title of the SVG is
    the answer; colours follow the reader's light or dark scheme.
    """
    return _svg(plain(sentence(found)), lambda axes: _draw(axes, found))


def plot_schedule(peak: Peak, capacity_bytes: int | None) -> str:
    """The bytes alive over the schedule of a program as one SVG element, and the device's memory.

    The line of the device's memory is there only if the program needs at least half of it.
    """
    most = max(peak.levels)
    scale, unit = _scale(Unit.BYTES, [most])
    where = f" at {plain(peak.at)}" + (f" ({plain(peak.line)})" if peak.line else "")
    title = f"Device memory over the schedule: {format_bytes(most, decimals=2)} at most{where}"

    def draw(axes: "Axes") -> None:
        heights = [level / scale for level in peak.levels]
        axes.fill_between(range(len(heights)), heights, step="post", color=_LINE, alpha=0.3)
        axes.step(range(len(heights)), heights, where="post", color=_LINE)
        if capacity_bytes is not None and capacity_bytes <= 2 * most:
            label = f"memory of the device: {format_bytes(capacity_bytes, decimals=2)}"
            axes.axhline(capacity_bytes / scale, color=_STEP, linestyle="--", label=label)
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, borderpad=0.0)
        axes.set_title(title, loc="left")
        axes.set_ylabel(f"bytes alive [{unit}]")
        axes.set_xlabel("order of execution")
        axes.set_xticks([])
        axes.set_ylim(0.0)
        axes.margins(x=0)

    return _svg(title, draw)


class Series(NamedTuple):
    """Numbers of one unit over problem sizes: a line for each name."""

    title: str
    unit: Unit
    lines: Mapping[str, Sequence[tuple[float, float]]]


def plot_series(series: Series) -> str:
    """The lines on logarithmic axes as one SVG element; 0 is at the bottom.

    A power of the size is a straight line, and its exponent the slope.
    """
    numbers = [number for line in series.lines.values() for _, number in line]
    title = plain(series.title)

    def draw(axes: "Axes") -> None:
        styles = zip(cycle((_LINE, _STEP, *_MORE, _INK)), cycle(_MARKERS), strict=False)
        for (name, line), (colour, marker) in zip(series.lines.items(), styles, strict=False):
            sizes, heights = zip(*line, strict=True)
            axes.plot(
                sizes,
                heights,
                color=colour,
                marker=marker,
                clip_on=False,
                alpha=0.8,
                label=plain(name),
            )
        axes.set_title(title, loc="left")
        axes.set_xlabel("size")
        axes.set_xscale("log")
        base = 16 if series.unit is Unit.BYTES else 10  # so that ticks are whole KiB, MiB …
        least = min(filter(None, numbers))
        axes.set_yscale("symlog", base=base, linthresh=least)
        axes.yaxis.set_major_formatter(
            lambda number, _place: (
                "" if 0 < number < least else amount(number, series.unit, decimals=1)
            )
        )
        axes.set_ylim(0.0)
        ticks = sorted({size for line in series.lines.values() for size, _ in line})
        axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
        axes.set_xticks([], minor=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, borderpad=0.0)

    return _svg(title, draw)


def _svg(title: str, draw: Callable[["Axes"], None]) -> str:
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):
        figure = Figure(figsize=_INCHES, layout="constrained")
        draw(figure.add_subplot())
        stream = StringIO()
        facts = {"Title": title, "Date": None, "Creator": None}
        figure.savefig(stream, format="svg", metadata=facts)
    return _themed(stream.getvalue())


def _draw(axes: "Axes", found: Bisection) -> None:
    places = {version: place for place, version in enumerate(found.versions)}
    numbers = {places[e.version]: e.number for e in found.points if e.number is not None}
    scale, unit = _scale(found.unit, list(numbers.values()))
    heights = {place: number / scale for place, number in numbers.items()}
    for before, after in pairwise(heights):
        style = "-" if after == before + 1 else ":"
        ends = (heights[before], heights[after])
        axes.step((before, after), ends, where="mid", linestyle=style, color=_LINE)
    axes.plot(list(heights), list(heights.values()), "o", color=_LINE, clip_on=False)
    skipped = [places[point.version] for point in found.skipped]
    on_axis: Any = axes.get_xaxis_transform()
    axes.plot(
        skipped,
        [0.0] * len(skipped),
        "x",
        color=_FAINT,
        transform=on_axis,
        clip_on=False,
        label="no number",
    )
    for row, step in enumerate(found.steps):
        middle = (places[step.before.version] + places[step.after.version]) / 2
        label = _label(step, found.unit)
        _mark(axes, middle, label, row % _LABEL_ROWS, is_left=middle < len(places) / 2)
    axes.set_title(plain(f"{found.metric} of {found.subject} on {found.target}"), loc="left")
    axes.set_ylabel(f"{found.metric} [{unit}]" if unit else found.metric)
    axes.set_xlabel(f"{found.component} release")
    axes.set_xlim(-0.5, len(places) - 0.5)
    lowest, highest = min(heights.values(), default=0.0), max(heights.values(), default=0.0)
    axes.set_ylim(min(0.0, lowest), _HEADROOM * highest or 1.0)
    every = -(-len(places) // _MOST_LABELS) or 1
    shown = found.versions[::every]
    turn = 90 if len(shown) > _LEAST_TILTED else 0
    axes.set_xticks(range(0, len(places), every), map(plain, shown), rotation=turn)
    if skipped:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, borderpad=0.0)


def _label(step: Step, unit: Unit) -> str:
    before, after = (amount(each.number, unit, decimals=2) for each in (step.before, step.after))
    return f"{plain(step.after.version)}: {before} → {after}"


def _mark(axes: "Axes", x: float, label: str, row: int, *, is_left: bool) -> None:
    """A vertical line, and its label in one of the rows above the numbers."""
    axes.axvline(x, color=_STEP, linestyle="--", linewidth=1)
    axes.annotate(
        label,
        (x, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(4 if is_left else -4, -12 * row),
        textcoords="offset points",
        ha="left" if is_left else "right",
        va="top",
        color=_STEP,
        fontweight="bold",
    )


def _scale(unit: Unit, numbers: Sequence[float]) -> tuple[float, str]:
    """What the numbers are divided by, and the name of the unit that they then have."""
    if unit is not Unit.BYTES:
        return 1.0, "" if unit in (Unit.COUNT, Unit.RATIO) else "s"
    name = format_bytes(max(map(abs, numbers), default=0.0)).split()[-1]
    return float(parse_bytes(f"1 {name}")), name


def _themed(svg: str) -> str:
    """The SVG element alone, its colours those of the reader's scheme."""
    svg = svg[svg.index("<svg") :].replace("*{", f".{_CLASS} *{{")
    for role, (drawn, _, _) in _COLOURS.items():
        svg = svg.replace(drawn, f"var(--{role})")
    light, dark = (
        ";".join(f"--{role}:{shades[scheme]}" for role, shades in _COLOURS.items())
        for scheme in (1, 2)
    )
    rules = f".{_CLASS}{{{light}}}@media(prefers-color-scheme:dark){{.{_CLASS}{{{dark}}}}}"
    svg = svg.replace("<svg", f'<svg class="{_CLASS}" role="img"', 1)
    return re.sub(r"<metadata>.*</metadata>", f"<style>{rules}</style>", svg, flags=re.DOTALL)
