"""``python -m benchmarks.regression_gallery``: the gallery of regressions in docs/regressions.

Writes README.md and one plot per regression of regressions.toml from the stored measurements, the
same bytes each time. ``--measure NAME …`` first measures these programs on the releases again, as
``assay bisect`` does. Ends with 1 if a measured release is not the one that the thread names.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec  # noqa: TID251 - it checks what the files hold

from assay.model.bisection import Bisection, Point, Progress
from assay.report.labels import amount
from assay.report.plot import plot
from assay.report.regression import point_line, sentence, to_json
from assay.store.files import write_whole
from assay.targets import resolve
from assay.toolchains.bisect import Question, find, threshold_of
from assay.toolchains.probes import Subject

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "regressions"
_OLDEST: Final = "0.4.30"
_NEWEST: Final = "0.12.0.1"
_FUNCTION: Final = "f"
_HEAD: Final = """# Regressions of JAX and XLA, and the releases that brought them

Real regressions from the trackers of JAX and XLA. [`assay bisect`](../bisect.md) compiled or ran
each program on released versions of JAX, on two CPU cores without an accelerator, and found the
releases below. A release in **bold** is also the one that the thread names. Numbers are those of a
[metric](../bisect.md#choose-a-metric); `returned` is what the program itself returns.
"""
_FOOT: Final = """## Add a regression

1. Write the program in `programs/NAME.py`: plain JAX, a function `f` and `example_args()`.
2. Describe it in `regressions.toml`, with the thread and the releases that the thread names.
3. Run `python -m benchmarks.regression_gallery --measure NAME`.

Without `--measure`, the command writes this page and its plots from the numbers in `measured/`.
"""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One regression: its program and question, and what the upstream thread says about it.

    ``introduced`` and ``fixed`` are the releases that the thread names, if any. Numbers above
    ``limit`` are bad. Without ``scan``, only the releases that a bisection needs are measured.
    """

    name: str
    title: str
    thread: str
    says: str
    target: str
    metric: str
    component: str = "jax"
    good: str = _OLDEST
    bad: str = _NEWEST
    limit: str = ""
    scan: bool = True
    timeout_seconds: float = 600.0
    timing_seconds: float = 120.0
    introduced: str = ""
    fixed: str = ""

    @property
    def program(self) -> Path:
        """The file of the program."""
        return FOLDER / "programs" / f"{self.name}.py"

    @property
    def measured(self) -> Path:
        """The file of the measurements, as ``assay bisect --json`` prints them."""
        return FOLDER / "measured" / f"{self.name}.json"

    @property
    def above(self) -> float:
        """The number above which a release is bad."""
        return threshold_of(self.metric, self.limit) or 0.0

    @property
    def command(self) -> str:
        """The command that measures it."""
        words = [f"assay bisect docs/regressions/programs/{self.name}.py:{_FUNCTION}"]
        words += [f"--good {self.good} --bad {self.bad}", f"--metric {self.metric}"]
        words += [f"--target {self.target}"] * (self.target != "cpu")
        words += [f"--component {self.component}"] * (self.component != "jax")
        words += [f"--threshold {self.limit}"] * bool(self.limit)
        words += ["--scan"] * self.scan
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A range of bad releases, from ``introduced`` up to ``fixed``.

    ``introduced`` is empty if the oldest release is bad, ``fixed`` if the newest one is.
    """

    introduced: str
    fixed: str


def entries() -> tuple[Entry, ...]:
    """The regressions of ``regressions.toml``, in the order of the page."""
    found = tomllib.loads((FOLDER / "regressions.toml").read_text())
    return msgspec.convert(found["regression"], tuple[Entry, ...])


def stored(entry: Entry) -> Bisection:
    """The stored measurements of a regression."""
    return msgspec.json.decode(entry.measured.read_bytes(), type=Bisection)


def windows(found: Bisection, above: float) -> tuple[Window, ...]:
    """The ranges of bad releases, oldest first. Releases without a number belong to neither."""
    numbered = [
        (each.version, each.number > above) for each in found.points if each.number is not None
    ]
    bounds = ["" for _, is_bad in numbered[:1] if is_bad]
    bounds += [new for (_, was_bad), (new, is_bad) in pairwise(numbered) if was_bad != is_bad]
    bounds += ["" for _, is_bad in numbered[-1:] if is_bad]
    return tuple(
        Window(introduced=first, fixed=last)
        for first, last in zip(bounds[::2], bounds[1::2], strict=True)
    )


def disagreement(entry: Entry, found: Bisection) -> str:
    """How the measured releases differ from those that the thread names; empty if they agree."""
    ranges = windows(found, entry.above)
    if len(ranges) != 1:
        return f"got {len(ranges)} ranges of bad releases, wanted one: {ranges}"
    for named, measured in (
        (entry.introduced, ranges[0].introduced),
        (entry.fixed, ranges[0].fixed),
    ):
        if named and named != measured:
            return f"measured {measured or 'no step'}, and the thread names {named}"
    return ""


def page(known: Mapping[Entry, Bisection]) -> str:
    """README.md: a table of all regressions, then each with its plot."""
    rows = ["| Regression | Target | Introduced | Fixed | Thread |", "|---|---|---|---|---|"]
    rows += [_row(entry, found) for entry, found in known.items()]
    sections = [_section(entry, found) for entry, found in known.items()]
    return "\n".join([_HEAD, *rows, "", *sections, _FOOT])


def _row(entry: Entry, found: Bisection) -> str:
    (window,) = windows(found, entry.above)
    first, last = found.points[0].version, found.points[-1].version
    introduced = _bold(window.introduced, entry.introduced) or f"{first} or before"
    unfixed = f"still in {last}" if last == _NEWEST else f"after {last}"
    fixed = _bold(window.fixed, entry.fixed) or unfixed
    thread = re.sub("/(issues|pull)/", "#", entry.thread.removeprefix("https://github.com/"))
    cells = (f"[{entry.title}](#{entry.name})", entry.target, introduced, fixed)
    return f"| {' | '.join(cells)} | [{thread}]({entry.thread}) |"


def _bold(measured: str, named: str) -> str:
    return f"**{measured}**" if measured and measured == named else measured


def _section(entry: Entry, found: Bisection) -> str:
    skipped = [f"`{point_line(each, None)}`" for each in found.skipped]
    missing = f"\nNo number: {'; '.join(skipped)}.\n" if skipped else ""
    steps = sorted(found.steps, key=lambda step: found.points.index(step.after))
    return f"""<a id="{entry.name}"></a>
## {entry.title}

**Thread.** {entry.says} [Read it]({entry.thread}).

**Measured.** {"; ".join(_step(found, step.before, step.after) for step in steps)}.
{missing}
![{sentence(found)}](plots/{entry.name}.svg)

```
{entry.command}
```

<details><summary>The program</summary>

```python
{entry.program.read_text().strip()}
```

</details>
"""


def _step(found: Bisection, before: Point, after: Point) -> str:
    numbers = " → ".join(amount(each.number, found.unit, decimals=2) for each in (before, after))
    return f"{found.component} {after.version}: {found.metric} {numbers}"


def write(folder: Path, known: Mapping[Entry, Bisection]) -> None:
    """Write the page and its plots."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for entry, found in known.items():
        write_whole(folder / "plots" / f"{entry.name}.svg", plot(found).encode())
    write_whole(folder / "README.md", page(known).encode())


def measure(entry: Entry) -> None:
    """Measure the program on the releases, and store the numbers."""

    def watch(_version: str, point: Point | None, progress: Progress | None) -> None:
        if point is not None:
            sys.stdout.write(f"  {point_line(point, progress)}\n")
            sys.stdout.flush()

    text = f"{entry.name}.py:{_FUNCTION}"
    question = Question(
        subject=Subject(text=text, file=entry.program, function=_FUNCTION),
        target=resolve(entry.target),
        metric=entry.metric,
        good=entry.good,
        bad=entry.bad,
        component=entry.component,
        threshold=threshold_of(entry.metric, entry.limit),
        scan=entry.scan,
        timeout_seconds=entry.timeout_seconds,
        timing_seconds=entry.timing_seconds,
    )
    entry.measured.parent.mkdir(exist_ok=True)
    write_whole(entry.measured, to_json(find(question, watch).bisection).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, write the gallery, and compare it with the threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", nargs="+", default=[], metavar="NAME")
    chosen = parser.parse_args(arguments).measure
    known = {entry.name: entry for entry in entries()}
    for name in chosen:
        sys.stdout.write(f"{name}\n")
        measure(known[name])
    measured: dict[Entry, Bisection] = {}
    failed = False
    for entry in known.values():
        if entry.measured.exists():
            measured[entry] = stored(entry)
            wrong = disagreement(entry, measured[entry])
        else:
            wrong = f"not measured; use --measure {entry.name}"
        failed |= bool(wrong)
        told = wrong or sentence(measured[entry])
        sys.stdout.write(f"{'FAIL' if wrong else 'PASS'} {entry.name}: {told}\n")
    if not failed:
        write(FOLDER, measured)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
