"""Texts that every report shares: verdicts, units, rerun commands, Markdown escapes."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay.model.invocation import USUAL, Ending
from assay.model.units import Unit, format_quantity
from assay.model.verdict import MUST_FAIL, ExitCode, Outcome, Record, judged_claims

DASH = "\N{EN DASH}"
"""Stands where there is nothing to tell."""

_KEYWORD = re.compile(r"[\w:+\-.\[\]\\/]+")
"""What pytest's ``-k`` takes as one word (_pytest/mark/expression.py, ``Scanner.lex``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """How a verdict is written in a cell, coloured, named in a sentence, and answered."""

    text: str
    style: str
    meaning: str
    next_step: str = ""


LABELS: dict[Outcome, Label] = {
    Outcome.ERROR: Label(
        text="ERROR",
        style="bold white on red",
        meaning="failed in Assay",
        next_step="fix Assay or the claim; this verdict says nothing about the program",
    ),
    Outcome.FAILED: Label(
        text="FAIL",
        style="bold red",
        meaning="failed",
        next_step="fix the program; if the compiler is at fault, report it upstream and add the "
        "link as a known defect of the workload",
    ),
    Outcome.FIXED_UPSTREAM: Label(
        text="fixed!",
        style="bold magenta",
        meaning="fixed upstream",
        next_step="remove the known defect from the workload",
    ),
    Outcome.IMPROVED: Label(
        text="better",
        style="bold cyan",
        meaning="improved",
        next_step="store it with --assay-update-baselines=all",
    ),
    Outcome.KNOWN_DEFECT: Label(
        text="known",
        style="yellow",
        meaning="known defect",
        next_step="no action needed; tracked upstream",
    ),
    Outcome.PASSED: Label(text="pass", style="green", meaning="passed"),
    Outcome.INCONCLUSIVE: Label(text="?", style="blue", meaning="inconclusive"),
    Outcome.UNSUPPORTED: Label(text="n/a", style="dim", meaning="unsupported"),
}
"""Worst first: the first of a cell's verdicts in this order stands for the cell.

``known-defect`` outranks ``passed``, for a reader must see it. ``passed`` outranks what could not
be judged, for no compile-only target can judge every claim.
"""

RANK: dict[Outcome, int] = {outcome: rank for rank, outcome in enumerate(LABELS)}
"""0 for the worst verdict."""


def plain(text: str) -> str:
    """The text with nothing in it that steers a terminal or that XML forbids."""
    return "".join(map(_plain_character, text))


def _plain_character(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


def amount(value: float | None, unit: Unit) -> str:
    """A number with its unit, or a dash where there is none."""
    return DASH if value is None else format_quantity(value, unit)


def plural(number: int, noun: str) -> str:
    """``1 verdict``, ``2 verdicts``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rerun(record: Record, command: Sequence[str] = USUAL.command) -> str:
    """The command that reaches this verdict again: all claims on the variant, or its controls.

    An item's id is ``test[workload/variant@target]``, followed by ``/negative-control`` for such a
    variant.
    """
    program = f"{record.workload}/{record.variant}"
    negative_control = [MUST_FAIL.removeprefix(".")] if record.must_fail else []
    expression = " and ".join([*_KEYWORD.findall(program), *negative_control])
    return shlex.join([*command, "--assay-target", record.target, "-k", expression])


def toolchain_versions(records: Iterable[Record]) -> dict[str, str]:
    """Every package of every toolchain, sorted; several versions of one are joined by commas."""
    seen = {item for record in records for item in record.toolchain.items()}
    return {
        name: ", ".join(sorted(version for other, version in seen if other == name))
        for name in sorted({name for name, _ in seen})
    }


def headline(records: Iterable[Record]) -> str:
    """One line: the run, how many verdicts, the work they took, the toolchain.

    The seconds are summed over the verdicts, so parallel work counts in full.
    """
    kept = tuple(records)
    runs = ", ".join(dict.fromkeys(record.run for record in kept)) or "no run"
    seconds = sum(record.seconds for record in kept)
    versions = (f"{name} {version}" for name, version in toolchain_versions(kept).items())
    cached = sum(record.cached for record in kept)
    facts = (
        runs,
        plural(len(kept), "verdict") + (f", {cached:,} on cached compilations" if cached else ""),
        f"{seconds:,.1f} s of work",
        ", ".join(versions),
    )
    return plain(" · ".join(fact for fact in facts if fact))


def closing_sentence(records: Iterable[Record], ending: Ending = USUAL.ending) -> str:
    """What the run came to, by the fixed rule, its exit code and its counts, worst first."""
    seen = tuple(records)
    lost = f"; {plural(len(ending.lost), 'item')} reached no verdict" if ending.lost else ""
    counted = ", ".join(counts(seen).values()) or "no verdicts"
    return f"{result(seen, ending)} (exit {ending.code(seen).value}): {counted}{lost}."


def counts(records: Iterable[Record]) -> dict[Outcome, str]:
    """How many verdicts of each kind there are, in words, worst first."""
    found = Counter(record.verdict for record in records)
    return {
        outcome: plural(found[outcome], label.meaning)
        if outcome is Outcome.KNOWN_DEFECT
        else f"{found[outcome]:,} {label.meaning}"
        for outcome, label in LABELS.items()
        if found[outcome]
    }


def coverage_lines(ending: Ending) -> Iterator[str]:
    """How many of the expected verdicts the run reached, then a line for each gap."""
    if ending.coverage:
        yield plain(f"coverage: {ending.coverage}")
    for missing in ending.missing:
        yield plain(f"missing: {missing.reason}")


_CUT_SHORT = {
    ExitCode.MISUSE: "Interrupted, and what was not reached was not judged",
    ExitCode.CRASHED: "pytest or a plugin failed, and what was not reached was not judged",
}


def result(records: Sequence[Record], ending: Ending) -> str:
    """The result of the run in words: the first reason that applies, in the order of exit codes."""
    code = ending.code(records)
    judged = any(record.verdict.judged for record in records)
    reasons = {
        "The results are incomplete: a file could not be written": bool(ending.unwritten),
        "Assay itself failed": code is ExitCode.CRASHED,
        "Nothing regressed": code is ExitCode.PASSED,
        "The run fails": any(record.verdict.fails for record in records),
        "The run is incomplete": bool(ending.lost),
        "The run judged nothing, which is not a pass": not judged,
        "The run judged negative controls only, which is not a pass": not judged_claims(records),
        "Expected verdicts are missing": bool(ending.missing),
        "A test or a worker failed": True,
    }
    if ending.cut_short:
        return _CUT_SHORT[ending.cut_short]
    return next(words for words, applies in reasons.items() if applies)


_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
"""Characters GitHub reads as markup; a backslash makes each of them itself (CommonMark 2.4)."""


def escape(text: str) -> str:
    """The text on one line, with no character left that Markdown would act on."""
    return _ACTIVE.sub(r"\\\1", " ".join(plain(text).split()))


def code(text: str) -> str:
    """The text as a code span, to be copied; outside tables only."""
    line = " ".join(plain(text).split())
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
