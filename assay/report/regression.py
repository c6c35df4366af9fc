"""A bisection as the terminal prints it, and the text of a report to the upstream project."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import NamedTuple

from rich.console import Console

from assay.model.bisection import Bisection, Point, Progress, Reproduction, Step
from assay.report.labels import BARS, amount, plain, plural
from assay.report.summary import escape, table
from assay.report.terminal import Page

_CHARACTERS = 160
_INSTALL = "pip install -r requirements-{}.txt && python repro.py"


_UNKNOWN_SYSTEM = "Add the output of `import jax; jax.print_environment_info()`."
_MEANS = {
    "temp_bytes": "bytes of temporaries in device memory",
    "device_bytes": "bytes in device memory",
    "host_bytes": "bytes in host memory",
    "loop_copies": "bytes that whole-array copies write in each loop iteration",
    "transfers": "bytes between host and device in one run",
    "error": "1 if the compiler fails",
    "runs": "1 if the run fails",
    "compiles": "compilations during two runs",
    "value": "largest relative difference of an output from the good release",
    "time": "run time over that with the good release",
    "returned": "the number that is returned",
}


class _Form(NamedTuple):
    """Where a report is sent, and the heads of its parts, in order."""

    link: str
    heads: Mapping[str, str]


# .github/ISSUE_TEMPLATE of both projects, November 2026; openxla/xla has no form.
_JAX = _Form(
    "https://github.com/jax-ml/jax/issues/new?template=bug-report.yml, or, if only the compiler "
    "changed, to https://github.com/openxla/xla/issues/new",
    {
        "about": "### Description",
        "steps": "",
        "system": "### System info (python version, jaxlib version, accelerator, etc.)",
    },
)
_FORMS = {
    "torch_xla": _Form(
        "https://github.com/pytorch/xla/issues/new?template=bug-report.md",
        {"about": "## 🐛 Bug", "steps": "## To Reproduce", "system": "## Environment"},
    )
}


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
        bar = BARS[round((len(BARS) - 1) * height)]
        mark = "  ← changed" if any(step.after == point for step in found.steps) else ""
        page.text(f"{version}{bar} {amount(point.number, found.unit):>12}{mark}")


def point_line(point: Point, progress: Progress | None) -> str:
    """One line for a measured release: its number without a unit, then what is known so far.

    A release without a number shows why.
    """
    number = _short(point.why)
    if point.number is not None:
        number = f"{point.number:,.0f}" if point.number % 1 == 0 else f"{point.number:,.4g}"
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
    """The result in one sentence, then what made the step, and further steps."""
    others = [made_by(found)] if found.attribution else []
    others += [f"Also: {_changed(found, step)}" for step in found.steps[1:]]
    if any(step.unmeasured for step in found.steps[1:]):
        others.append("Use --scan to find the release of each further step.")
    return (sentence(found), *others)


def made_by(found: Bisection) -> str:
    """Which package of the jax release made the step, by which measurements."""
    assert found.attribution is not None
    *others, last = found.attribution.packages
    who = f"{', '.join(others)} or {last}, which cannot be separated" if others else last
    seen = [
        f"jax {trial.version} gives "
        + (
            amount(trial.number, found.unit)
            if trial.number is not None
            else f"no number ({_short(trial.why)})"
        )
        for trial in found.attribution.trials
    ]
    return f"Made by {who}: {'; '.join(seen) or 'all other packages are the same'}."


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


def issue(found: Bisection, differences: Sequence[str], shown: Reproduction | None = None) -> str:
    """The text of a report in the form of the upstream project; its first line is the title.

    ``shown`` is what the bundle holds; without a bundle, nothing is attached.
    """
    form, step = _FORMS.get(found.component, _JAX), found.steps[0]
    means = _MEANS.get(found.metric, f"1 if the {found.metric} fails")
    about = [
        f"{_changed(found, step)}: {means} of the program below, on `{found.target}`.",
        table(("release", "value"), _values(found)),
    ]
    if found.attribution:
        about.append(made_by(found))
    if differences:
        items = "\n".join(f"- {plain(each)}" for each in differences)
        about.append(f"What differs in the compiled programs:\n\n{items}")
    parts = {"about": about, "steps": list(_steps(found, shown)), "system": [_UNKNOWN_SYSTEM]}
    if shown is not None:
        parts["system"] = _blocks(found, shown.systems)
    title = (
        f"# {found.metric} changed between {found.component} {step.before.version} and "
        f"{step.after.version}\n\n<!-- Send it to {form.link} -->"
    )
    lines = (line for part, head in form.heads.items() for line in (head, *parts[part]) if line)
    return "\n\n".join([title, *lines]) + "\n"


def no_repro(why: str) -> str:
    """Why the bundle of a suite's variant has no program, and how to get one."""
    return (
        f"no repro.py: the program cannot be extracted from its suite, because {why}. To get one, "
        "copy the program to a file with example_args(), and bisect FILE.py:FUNCTION"
    )


def _steps(found: Bisection, shown: Reproduction | None) -> Iterator[str]:
    if shown is None:
        yield f"Program: `{found.subject}`. Add what `assay bisect --bundle DIR` writes."
        return
    if shown.program:
        yield _block("\n".join(_INSTALL.format(side) for side in ("good", "bad")))
        yield _block(shown.program, "python")
        yield from _blocks(found, shown.outputs)
    else:
        yield f"Program: `{found.subject}`, a variant of a test suite."
    yield "The other files of the bundle are attached."


def _blocks(found: Bisection, texts: Mapping[str, str]) -> list[str]:
    return [f"{found.component} {version}:\n{_block(text)}" for version, text in texts.items()]


def _values(found: Bisection) -> list[tuple[str, str]]:
    values = []
    for point in found.points:
        value = amount(point.number, found.unit)
        if point.number is None:
            value = f"not measured: {_short(point.why)}"
        values.append((point.version, escape(value)))
    return values


def _block(text: str, language: str = "") -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text.strip()}\n{fence}"
