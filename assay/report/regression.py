"""A bisection as the terminal prints it, and the text of a report to the upstream project."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import shorten

from rich.console import Console

from assay.model.bisection import Bisection, Point, Progress, Step
from assay.report.labels import amount, plain, plural
from assay.report.summary import escape, table
from assay.report.terminal import Page

_BARS = "▁▂▃▄▅▆▇█"
_CHARACTERS = 160
_INSTALL = "pip install -r requirements-{}.txt && python repro.py"


def print_bisection(console: Console, found: Bisection) -> None:
    """Write the answer, then every measured release with its number and a bar."""
    page = Page(console)
    first, *others = answer(found)
    page.text((first, "bold"))
    for line in others:
        page.text(line)
    largest = max((abs(point.number or 0) for point in found.points), default=0.0)
    width = max((len(point.version) for point in found.points), default=0)
    for point in found.points:
        version = f"  {point.version:{width}}  "
        if point.number is None:
            page.text((f"{version}-  {_short(point.why)}", "dim"))
            continue
        height = abs(point.number) / largest if largest else 0
        bar = _BARS[round((len(_BARS) - 1) * height)]
        mark = "  ← changed" if any(step.after == point for step in found.steps) else ""
        page.text(f"{version}{bar} {amount(point.number, found.unit):>12}{mark}")


def point_line(point: Point, progress: Progress | None) -> str:
    """One line for a measured release: its number without a unit, then what is known so far."""
    number = _short(point.why) if point.number is None else f"{point.number:,g}"
    known = progress_text(progress)
    return f"{point.version}: {number}{known and f' ({known})'}"


def progress_text(progress: Progress | None) -> str:
    """Where the step lies, and about how many measurements are left; empty if nothing is known."""
    if progress is None:
        return ""
    known = f"changed after {progress.after}, at {progress.until} at the latest"
    if not progress.until:
        known = f"no change up to {progress.after}"
    if not progress.after:
        known = f"no change from {progress.until} on"
    return known + (f"; about {progress.left} more to measure" if progress.left else "")


def to_json(found: Bisection) -> str:
    """The bisection as one JSON object."""
    return json.dumps(asdict(found) | {"unit": found.unit.value}, indent=2, ensure_ascii=False)


def answer(found: Bisection) -> tuple[str, ...]:
    """The result in one sentence, then further steps."""
    others = [f"Also: {_changed(found, step)}" for step in found.steps[1:]]
    if any(step.unmeasured for step in found.steps[1:]):
        others.append("Use --scan to find the release of each further step.")
    return (sentence(found), *others)


def sentence(found: Bisection) -> str:
    """The result in one sentence."""
    measured = f"{len(found.points)} of {plural(len(found.versions), 'release')} measured"
    what = f"{found.metric} of {found.subject} on {found.target}"
    if found.reason:
        return f"No answer: {found.component} {found.reason}"
    if not found.steps:
        number = amount(found.points[0].number, found.unit)
        return f"No change: {what} is {number} at both ends ({measured})"
    return f"{_changed(found, found.steps[0])}: {what} ({measured})"


def _changed(found: Bisection, step: Step) -> str:
    place = f"{found.component} {step.after.version}"
    if step.skipped or step.unmeasured:
        between = f"after {step.before.version}, at {step.after.version} at the latest"
        place = f"a release of {found.component} {between},"
    old, new = (amount(each.number, found.unit) for each in (step.before, step.after))
    return f"{place} changed it, {old} → {new}"


def _short(text: str) -> str:
    return shorten(plain(text), _CHARACTERS, placeholder=" …")


def issue(found: Bisection, outputs: Mapping[str, str], differences: Sequence[str]) -> str:
    """The text of a report: what changed, how to see it, what each release prints.

    ``outputs`` are what ``repro.py`` printed, by release; none if there is no such program.
    """
    step = found.steps[0]
    releases = f"{found.component} {step.before.version} and {step.after.version}"
    values = []
    for point in found.points:
        value = amount(point.number, found.unit)
        if point.number is None:
            value = f"not measured: {_short(point.why)}"
        values.append((point.version, escape(value)))
    blocks = [
        f"# {found.metric} changed between {releases}",
        f"{_changed(found, step)}, for the program below on `{found.target}`.",
        table(("release", "value"), values),
    ]
    if outputs:
        install = f"```\n{_INSTALL.format('good')}\n{_INSTALL.format('bad')}\n```"
        blocks += ["## How to reproduce", install]
    for version, text in outputs.items():
        output = f"Output with {found.component} {version}:"
        blocks.append(f"{output}\n```\n{text.strip()}\n```")
    if differences:
        items = "\n".join(f"- {plain(each)}" for each in differences)
        blocks += ["## What differs in the compiled programs", items]
    blocks.append("The other files of this folder are attached.")
    return "\n\n".join(blocks) + "\n"
