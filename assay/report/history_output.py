"""The history of series on the terminal, as JSON, and as a section of a run's page."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console

from assay.model.history import Added, Change, Sample, Trend
from assay.model.verdict import Ending
from assay.report.html_page import TONES
from assay.report.labels import BARS, LABELS, amount, name_of, plural
from assay.report.since import versions_changed
from assay.report.terminal import Page

_BARS_SHOWN: Final = 40
_MOST_UNCHANGED: Final = 20
"""The most series without changes that the terminal shows without ``verbose``."""
_MOST_ON_PAGE: Final = 20
_WIDTH: Final = 240  # of a trend on the page, in pixels
_HEIGHT: Final = 32


def print_history(console: Console, trends: Sequence[Trend], *, verbose: bool = False) -> None:
    """Write each series with its bars and its changes; last those without, if they are few.

    ``verbose`` writes all of them.
    """
    page = Page(console)
    changed = [trend for trend in trends if trend.changes]
    same = [trend for trend in trends if not trend.changes]
    shown = changed + (same if verbose or len(same) <= _MOST_UNCHANGED else [])
    for trend in shown:
        page.text((title(trend), "bold"))
        page.text(f"{bars(_numbers(trend))}  {_latest(trend)}".strip(), first="  ", indent=2)
        for change in trend.changes:
            style = LABELS[change.after.verdict].style if change.verdicts else "bold"
            text = (what(trend, change), style), f"; {since(change)}"
            page.text(*text, first=f"  {_date(change.after)}  ", indent=14)
            if change.verdicts and change.after.reason:
                page.text(change.after.reason, first=" " * 14, indent=14)
    hidden = len(trends) - len(shown)
    more = f"; -v shows the {hidden:,} without changes" if hidden else ""
    page.text((f"{_counted(trends)}{more}", "dim"))


def _counted(trends: Sequence[Trend]) -> str:
    """How many series of how many runs have changes."""
    changed = sum(bool(trend.changes) for trend in trends)
    runs = plural(len({sample.run for trend in trends for sample in trend.samples}), "run")
    return f"{len(trends):,} series of {runs}: {changed:,} with changes"


def title(trend: Trend) -> str:
    """``suite/workload/variant/claim on target``."""
    *parts, target = trend.name
    return f"{'/'.join(parts)} on {target}"


def _numbers(trend: Trend) -> list[float]:
    return [each.measured for each in trend.samples if each.measured is not None]


def bars(numbers: Sequence[float]) -> str:
    """One character for each number, or for the median of neighbours if there are too many."""
    count = min(len(numbers), _BARS_SHOWN)
    edges = [place * len(numbers) // max(count, 1) for place in range(count + 1)]
    heights = [median(numbers[low:high]) for low, high in pairwise(edges)]
    low, high = (min(heights), max(heights)) if heights else (0.0, 0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round(scale * (each - low))] for each in heights)


def _latest(trend: Trend) -> str:
    """The newest number and verdict, and the period that the series covers."""
    first, last = trend.samples[0], trend.samples[-1]
    parts = [name_of(last.verdict)]
    if last.measured is not None:
        parts.insert(0, amount(last.measured, trend.unit, decimals=2))
    runs = plural(len(trend.samples), "run")
    period = f"from {_date(first)} to {_date(last)}"
    if _date(first) == _date(last):
        period = f"on {_date(first)}, {first.at:%H:%M} to {last.at:%H:%M} UTC"
    return f"{', '.join(parts)}; {runs} {period}"


def _date(sample: Sample) -> str:
    return sample.at.date().isoformat()


def what(trend: Trend, change: Change) -> str:
    """``2.0 GiB → 5.9 GiB (+195 %), passed → FAILED``."""
    parts = []
    if change.levels:
        old, new = change.levels
        share = f" ({100 * (new - old) / abs(old):+.3g} %)" if old else ""
        parts.append(
            " → ".join(amount(each, trend.unit, decimals=2) for each in (old, new)) + share
        )
    if change.verdicts:
        parts.append(" → ".join(map(name_of, change.verdicts)))
    return ", ".join(parts)


def since(change: Change) -> str:
    """The packages that changed together with the series, and the first run after the change."""
    old, new = change.before.toolchain, change.after.toolchain
    changed = versions_changed(old, new) if old and new else "toolchain unknown"
    return f"{changed or 'same toolchain'}; run {change.after.run}"


def added_line(added: Added, ending: Ending) -> str:
    """What was added of a run, and what is missing of it."""
    if added.new:
        line = f"{added.run}: {plural(added.new, 'verdict')} added"
    else:
        line = f"{added.run}: nothing to add, {plural(added.verdicts, 'verdict')} were added before"
    if added.torn_bytes:
        line += f"; its last line was not finished and is left out ({added.torn_bytes} bytes)"
    if ending.cut_short is not None:
        line += "; the run has not ended, or was cut short: add it again if it goes on"
    return line


def history_json(trends: Sequence[Trend]) -> str:
    """One object: the toolchains, and each series with its samples and changes.

    The ``toolchain`` of a sample is its place in ``toolchains``. ``before`` and ``after`` of a
    change are places in ``samples``.
    """
    toolchains: list[dict[str, str]] = []
    found = {"series": [_series(trend, toolchains) for trend in trends], "toolchains": toolchains}
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


def _series(trend: Trend, toolchains: list[dict[str, str]]) -> dict[str, Any]:
    samples = []
    for each in trend.samples:
        versions = dict(each.toolchain)
        if versions not in toolchains:
            toolchains.append(versions)
        samples.append({**each._asdict(), "toolchain": toolchains.index(versions)})
    changes = [
        {
            "before": trend.samples.index(each.before),
            "after": trend.samples.index(each.after),
            "levels": each.levels,
            "verdicts": each.verdicts,
        }
        for each in trend.changes
    ]
    unit = {"unit": trend.unit}
    return {**trend.name._asdict(), **unit, "samples": samples, "changes": changes}


class TrendRow(NamedTuple):
    """A series on the page: its name, its line, the places of its changes, and all in words."""

    title: str
    tone: str
    line: str
    marks: Sequence[float]
    latest: str
    changes: Sequence[tuple[str, str, str]]


class HistorySection(NamedTuple):
    """What the page of a run says about earlier runs."""

    counted: str
    rows: Sequence[TrendRow]
    width: int = _WIDTH
    height: int = _HEIGHT


def history_section(trends: Sequence[Trend]) -> HistorySection | None:
    """All series that fail now, then those with the latest changes; None if there are no series."""
    if not trends:
        return None
    failed = [trend for trend in trends if trend.samples[-1].verdict.fails]
    changed = [trend for trend in trends if trend.changes and trend not in failed]
    changed.sort(key=lambda trend: trend.changes[-1].after.at, reverse=True)
    shown = failed + changed[: max(0, _MOST_ON_PAGE - len(failed))]
    counted = _counted(trends)
    if hidden := len(failed) + len(changed) - len(shown):
        counted += f"; shown are all that fail and those that changed last, {hidden:,} are not"
    return HistorySection(counted, [_row(trend) for trend in shown])


def _row(trend: Trend) -> TrendRow:
    numbers = _numbers(trend)
    low = min(numbers, default=0.0)
    span = max(numbers, default=0.0) - low
    step = _WIDTH / max(len(trend.samples) - 1, 1)
    points = []
    for place, each in enumerate(trend.samples):
        if each.measured is not None:
            share = (each.measured - low) / span if span else 0.0
            points.append(f"{place * step:.1f},{_HEIGHT - 2 - share * (_HEIGHT - 4):.1f}")
    changes = [
        (_date(each.after), f"{what(trend, each)}; {since(each)}", TONES[each.after.verdict])
        for each in trend.changes
    ]
    marks = [round(trend.samples.index(each.after) * step, 1) for each in trend.changes]
    tone = TONES[trend.samples[-1].verdict]
    return TrendRow(title(trend), tone, " ".join(points), marks, _latest(trend), changes)
