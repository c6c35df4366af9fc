"""``report.html``: a run as one self-contained page, readable offline and without scripts."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from statistics import median, quantiles
from typing import Final, NamedTuple

from assay.model.defect import Upstream
from assay.model.evidence import Evidence
from assay.model.history import Trend
from assay.model.rerun import Rerun
from assay.model.target import DeviceModel
from assay.model.timing import Times, VariantTimes, format_seconds
from assay.model.units import Unit
from assay.model.verdict import USUAL, Invocation, Outcome, Record
from assay.report.causes import Detail, Entry, by_urgency, explain, number_of
from assay.report.document import rerun_lines, suite_statuses
from assay.report.history_output import history_section
from assay.report.html_page import TONES, render
from assay.report.labels import (
    LABELS,
    closing_sentence,
    coverage_lines,
    headline,
    in_order,
    is_live,
    loss_lines,
    plural,
    result,
    toolchain_versions,
    uncontrolled_lines,
)
from assay.report.plot import plot_series
from assay.report.run_programs import (
    HEIGHT,
    Mark,
    Place,
    mark,
    over_size,
    place,
    source_lines,
)
from assay.report.since import Background

GLOSSARY: Final = {
    "claim": "a promise about a program, with a limit: at most, at least or exactly a number",
    "workload": "a program with its sizes; the README of its suite describes the names",
    "variant": "one way to write the program of a workload",
    "target": "a compiler and the device that it compiles for",
    "compiled only": "the real compiler for this device ran, without the device; nothing was run",
    "toolchain": "the versions of the framework and the compiler, and the compiler's flags",
    "group": "verdicts on one variant. The first claim explains the others: whether the program "
    "compiles, then what tracing decides, what the program does, what it needs, how long it takes",
    "was": "the number of the last good run",
    "copies and peak": "lines of the compiled program that copy whole arrays, or hold memory at "
    "its peak",
    "baseline": "a number that an earlier run stored in the repository",
    "negative control": "a program that breaks a claim on purpose, to show that the check sees it",
    "known defect": "a failure that is expected, with its upstream report",
    "unsupported": "the target or the toolchain cannot show it; inconclusive: the numbers do not",
    "full-buffer write": "an instruction that writes a whole array where a part of it changed",
    "residual": "what the forward pass keeps for the gradient",
    "hidden, exposed": "the part of a transfer during which the device works, and waits",
}
"""The terms of the page, a line each."""
_LINES_SHOWN: Final = 6
_BEFORE_LINES: Final = ("on", "measured", "finding")
_ROWS_OPEN: Final = 40
"""The most variants of a suite without failures whose verdicts are shown at once."""


class Suite(NamedTuple):
    """A suite: its state in words, its verdicts by target and by variant, plots, its programs."""

    entry: Entry
    marks: Mapping[str, Mark]
    targets: Sequence[str]
    variants: Sequence[tuple[str, str, Mapping[str, tuple[Mark, str]]]]
    places: Sequence[Place]
    plots: Sequence[str]

    @property
    def is_open(self) -> bool:
        """Whether the verdicts of its variants are shown at once."""
        fails = any(each.is_open for each in self.places)
        return fails or len(self.variants) <= _ROWS_OPEN


class Box(NamedTuple):
    """Samples of a program: least, quartiles and greatest, as shares of the axis' end.

    The axis ends at the greatest sample of a group, or at its limit if that is greater. ``limit``
    is the share of the time that the program is compared with.
    """

    variant: str
    text: str
    shares: Sequence[float]
    limit: float | None


class Timing(NamedTuple):
    """The boxes of two programs that alternated, or of one."""

    program: str
    boxes: Sequence[Box]
    limit: str


def run_page(
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
    programs: Iterable[Evidence] = (),
    history: Sequence[Trend] = (),
    devices: Mapping[str, DeviceModel] | None = None,
) -> str:
    """The page: the result and what to act on, suites with their programs, times, known defects.

    ``programs`` are the measurements of the run, which the records alone do not hold, growing loops
    included. ``history`` are its series in a database. ``devices`` are the models of the targets,
    which estimate what hides a transfer. All texts of programs and messages are escaped.
    """
    seen, ending, measured = tuple(records), invocation.ending, tuple(programs)
    urgent, others = by_urgency(seen, ending)
    code, background = ending.code(seen), Background.of(seen, invocation, history)
    suites = _suites(seen, measured, devices or {}, invocation)
    known = [each for each in others if each[0].verdict.judged]
    return render(
        "run.html",
        title=result(seen, ending),
        causes=number_of(urgent),
        tone="bad" if code.value else "good",
        headline=headline(seen),
        closing=f"Exit code {code.value}: {closing_sentence(seen, ending).partition('): ')[2]}",
        notes=[
            *uncontrolled_lines(invocation.uncontrolled),
            *loss_lines(invocation.losses),
        ],
        coverage=[part for line in coverage_lines(ending) for part in re.split(r"; (?=\d)", line)],
        judged=_judged(seen),
        command=" ".join(invocation.command),
        urgent=_cards(urgent, background, suites, measured),
        known=_explained(known, background),
        reports=_reports(known),
        standings=_standings(invocation),
        unjudged=_explained((each for each in others if not each[0].verdict.judged), background),
        targets=in_order(record.target for record in seen),
        suites=suites,
        height=HEIGHT,
        timings=[_timing(each, seen) for each in times],
        reruns=list(rerun_lines(reruns)),
        history=history_section(history),
        environment=invocation.environment | toolchain_versions(seen),
        labels=LABELS,
        glossary=GLOSSARY,
    )


def _judged(records: Sequence[Record]) -> list[tuple[str, str, Mapping[Outcome, int]]]:
    """Each target, how its programs were judged, and its verdicts; last the sum."""
    by_target: dict[str, Counter[Outcome]] = {}
    for record in records:
        by_target.setdefault(record.target, Counter())[record.verdict] += 1
    rows: list[tuple[str, str, Mapping[Outcome, int]]] = [
        (target, "compiled and run" if is_live(target) else "compiled only", by_target[target])
        for target in in_order(by_target)
    ]
    total = sum(by_target.values(), Counter[Outcome]())
    return [*rows, ("all", "", {each: total[each] for each in LABELS if each in total})]


def _cards(
    found: Iterable[Sequence[Record]],
    background: Background,
    suites: Sequence[Suite],
    measured: Iterable[Evidence],
) -> list[tuple[Entry, str, str]]:
    """Each cause in words with its lines of source, its style, and where its program is shown."""
    anchors = {
        (suite.entry.name, each.workload, row.variant, each.target): row.anchor
        for suite in suites
        for each in suite.places
        for row in each.rows
    }
    programs = {each.key: each for each in measured if each.growth is None}
    cards = []
    for cause, (entry, tone) in zip(found, _explained(found, background), strict=True):
        keys = [(each.suite, each.workload, each.variant, each.target) for each in cause]
        seen = (programs[key] for key in dict.fromkeys(keys) if key in programs)
        details = list(entry.details)
        if lines := dict.fromkeys(line for each in seen for line in source_lines(each)):
            before = (at for at, each in enumerate(details) if each.label in _BEFORE_LINES)
            shown = ", ".join(list(lines)[:_LINES_SHOWN])
            details.insert(max(before, default=-1) + 1, Detail("copies and peak", shown))
        cards.append((entry._replace(details=details), tone, anchors[keys[0]]))
    return cards


def _explained(
    found: Iterable[Sequence[Record]], background: Background
) -> list[tuple[Entry, str]]:
    """Each cause in words, and the class of its style."""
    return [(explain(cause, background), TONES[cause[0].verdict]) for cause in found]


def _standings(invocation: Invocation) -> dict[str, str]:
    """Where each upstream report of the run stands, and its age, by link."""
    issues = (each for found in invocation.upstream_issues.values() for each in found)
    upstreams = {each.upstream.link: each.upstream for each in issues} | invocation.upstreams
    today = invocation.environment.get("started", "")
    return {link: _standing(upstream, today) for link, upstream in upstreams.items()}


def _standing(upstream: Upstream, today: str) -> str:
    """``open upstream; opened on 2023-04-05, 3 years 7 months ago; state read on 2026-11-25``."""
    words = [upstream.standing]
    if upstream.opened:
        age = _age(upstream.opened, today or upstream.seen)
        words.append(f"opened on {upstream.opened}" + (f", {age} ago" if age else ""))
    if upstream.seen:
        words.append(f"state read on {upstream.seen}")
    return "; ".join(words)


def _age(opened: str, today: str) -> str:
    """Years and months between two ISO dates; ``today`` may go on with the time, or be empty."""
    if not today:
        return ""
    start, end = date.fromisoformat(opened), date.fromisoformat(today[: len(opened)])
    months = 12 * (end.year - start.year) + end.month - start.month - (end.day < start.day)
    parts = {"year": months // 12, "month": months % 12}
    return " ".join(plural(number, noun) for noun, number in parts.items() if number > 0)


def _reports(known: Iterable[Sequence[Record]]) -> list[tuple[str, str]]:
    """The upstream reports of known defects by link, with their suites and numbers."""
    by_link: dict[str, list[Record]] = {}
    for record in (record for cause in known for record in cause if record.upstream):
        by_link.setdefault(record.upstream, []).append(record)
    found = []
    for link, records in by_link.items():
        variants = {(each.suite, each.variant) for each in records}
        suites = ", ".join(dict.fromkeys(each.suite for each in records))
        defects = f"{plural(len(records), 'verdict')} on {plural(len(variants), 'variant')}"
        found.append((link, f"{suites}: {defects}"))
    return found


def _suites(
    records: Sequence[Record],
    measured: Sequence[Evidence],
    devices: Mapping[str, DeviceModel],
    invocation: Invocation,
) -> list[Suite]:
    programs = {each.key: each for each in measured if each.growth is None}
    statuses = suite_statuses(records, invocation.upstream_issues, fold=False)
    suites = []
    for number, entry in enumerate(statuses, 1):
        mine = [each for each in records if each.suite == entry.name]
        found: dict[tuple[str, str], list[Record]] = {}
        for record in mine:
            found.setdefault((record.workload, record.target), []).append(record)
        places = [
            place(each, programs, devices, invocation, f"p{number}-{place_number}")
            for place_number, each in enumerate(found.values(), 1)
        ]
        sized = over_size(each for each in measured if each.suite == entry.name)
        suites.append(_suite(entry, mine, places, list(map(plot_series, sized))))
    return suites


def _suite(
    entry: Entry, records: Sequence[Record], places: Sequence[Place], plots: Sequence[str]
) -> Suite:
    from markupsafe import Markup

    by_target: dict[str, list[Record]] = {}
    for record in records:
        by_target.setdefault(record.target, []).append(record)
    targets = in_order(by_target)
    variants: dict[tuple[str, str], dict[str, tuple[Mark, str]]] = {}
    for each in places:
        for row in each.rows:
            cells = variants.setdefault((each.workload, row.variant), {})
            cells[each.target] = row.mark, row.anchor
    return Suite(
        entry=entry,
        marks={target: mark(by_target[target]) for target in targets},
        targets=targets,
        variants=[(*names, cells) for names, cells in variants.items()],
        places=places,
        plots=[Markup(plot) for plot in plots],  # noqa: S704 -- matplotlib escapes its texts
    )


def _timing(times: Times, records: Iterable[Record]) -> Timing:
    """The boxes, and a line at what the judged program is compared with.

    That is the claim's limit, a multiple of the reference's median, or the stored time of a program
    that is timed alone.
    """
    timed = [each for each in (times.reference, times.judged) if each.samples]
    limit, words = None, ""
    if times.limit is not None and times.reference.samples:
        limit = times.limit * median(times.reference.samples)
        words = f"limit: {times.limit:.3g} × {times.reference.variant}"
    elif times.is_alone and (stored := _stored_time(times, records)) is not None:
        limit, words = stored, f"stored: {format_seconds(stored)}"
    ends = [max(each.samples) for each in timed]
    most = max((*ends, limit or 0.0), default=0.0) or 1.0
    boxes = [_box(each, most, limit if each is times.judged else None) for each in timed]
    program = f"{times.suite}/{times.workload} on {times.target}"
    return Timing(program=program, boxes=boxes, limit=words)


def _stored_time(times: Times, records: Iterable[Record]) -> float | None:
    """The baseline of the judged program's time."""
    program = (times.suite, times.workload, times.judged.variant, times.target)
    stored = (
        each.baseline.value
        for each in records
        if each.baseline
        and each.unit is Unit.SECONDS
        and not each.must_fail
        and (each.suite, each.workload, each.variant, each.target) == program
    )
    return next(stored, None)


def _box(times: VariantTimes, most: float, limit: float | None) -> Box:
    samples = times.samples
    quarters = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [*samples] * 3
    return Box(
        variant=times.variant,
        text=f"{format_seconds(quarters[1])}, {plural(len(samples), 'sample')}",
        shares=[each / most for each in (min(samples), *quarters, max(samples))],
        limit=None if limit is None else limit / most,
    )
