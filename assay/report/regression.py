"""A bisection as the terminal prints it, and the text of a report to the upstream project."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.text import Text

from assay.model.bisection import Bisection, Point, Step
from assay.report.labels import amount, plain, plural

_BARS: Final = "▁▂▃▄▅▆▇█"
_SHORTENED: Final = 160


def print_bisection(console: Console, found: Bisection) -> None:
    """The answer, every measured release, and what was skipped."""
    console.print(Text(sentence(found), style="bold"))
    for line in more_steps(found):
        console.print(Text(line))
    largest = max((abs(point.number or 0) for point in found.points), default=0.0)
    width = max((len(point.version) for point in found.points), default=0)
    for point in found.points:
        mark = _mark(found, point)
        if point.number is None:
            console.print(
                Text(f"  {point.version:{width}}  -  {_shortened(point.why)}", style="dim")
            )
            continue
        bar = _BARS[round((len(_BARS) - 1) * abs(point.number) / largest)] if largest else _BARS[0]
        number = amount(point.number, found.unit)
        console.print(Text(f"  {point.version:{width}}  {bar} {number:>12}{mark}"))


def point_line(point: Point) -> str:
    """One line as a release was measured; its number without a unit."""
    number = _shortened(point.why) if point.number is None else f"{point.number:,g}"
    return f"{point.version}: {number}"


def to_json(found: Bisection) -> str:
    """The bisection as one JSON object."""
    plain_values = asdict(found) | {"unit": found.unit.value}
    return json.dumps(plain_values, indent=2, ensure_ascii=False)


def sentence(found: Bisection) -> str:
    """What was found, in one sentence."""
    measured = f"{len(found.points)} of {plural(found.releases, 'release')} measured"
    what = f"{found.metric} of {plain(found.subject)} on {found.target}"
    if found.reason:
        return f"No answer: {found.component} {plain(found.reason)}"
    if not found.steps:
        number = amount(found.points[0].number, found.unit)
        return f"No change: {what} is {number} at both ends ({measured})"
    return f"{_changed(found, found.steps[0])}: {what} ({measured})"


def more_steps(found: Bisection) -> Iterator[str]:
    """The further steps; one with unmeasured releases inside says how to find it."""
    for step in found.steps[1:]:
        yield f"Also: {_changed(found, step)}"
    if any(step.unmeasured for step in found.steps[1:]):
        yield "Use --scan to find the release of each further step."


def _changed(found: Bisection, step: Step) -> str:
    old, new = (amount(each.number, found.unit) for each in (step.before, step.after))
    place = f"{found.component} {step.after.version} changed it"
    if step.skipped or step.unmeasured:
        between = f"after {step.before.version}, at {step.after.version} at the latest"
        place = f"a release of {found.component} {between}, changed it"
    return f"{place}, {old} → {new}"


def _mark(found: Bisection, point: Point) -> str:
    return "  ← changed" if any(step.after == point for step in found.steps) else ""


def _shortened(text: str) -> str:
    flat = plain(" ".join(text.split()))
    return flat if len(flat) <= _SHORTENED else f"{flat[: _SHORTENED - 1]}…"


def issue(found: Bisection, outputs: Mapping[str, str], differences: Sequence[str]) -> str:
    """The text of a report: what changed, how to see it, what each release prints.

    ``outputs`` are what ``repro.py`` printed, by release.
    """
    step = found.steps[0]
    releases = f"{found.component} {step.before.version} and {step.after.version}"
    lines = [
        f"# {found.metric} changed between {releases}",
        "",
        f"{_changed(found, step)}, for the program below on `{found.target}`.",
        "",
        "| release | value |",
        "|---|---|",
        *(f"| {p.version} | {_cell(found, p)} |" for p in found.points),
        "",
        "## How to reproduce",
        "",
        "```",
        "pip install -r requirements-good.txt && python repro.py",
        "pip install -r requirements-bad.txt && python repro.py",
        "```",
    ]
    for version, text in outputs.items():
        lines += ["", f"Output with {found.component} {version}:", "```", text.strip(), "```"]
    if differences:
        lines += ["", "## What differs in the compiled programs", ""]
        lines += [f"- {plain(each)}" for each in differences]
    return "\n".join([*lines, "", "`repro.py` and both HLO modules are attached.", ""])


def _cell(found: Bisection, point: Point) -> str:
    if point.number is None:
        return f"not measured: {_shortened(point.why)}"
    return amount(point.number, found.unit)
