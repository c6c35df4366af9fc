"""Causes: the records that did not pass, grouped by what made them so, and each in words."""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from assay.model.verdict import ASSERTIONS, USUAL, Ending, ExitCode, Outcome, Record
from assay.report.labels import (
    LABELS,
    RANK,
    amount,
    in_order,
    name_of,
    plural,
    rerun,
    title,
)

_PROGRAMS_SHOWN = 3
_REPEATED = re.compile(r"-\d+$")
"""The suffix of a workload whose program a plain test compiled before."""


class Detail(NamedTuple):
    """One labelled line; a verbatim one is there to be copied and must not be wrapped."""

    label: str
    text: str
    verbatim: bool = False


class Entry(NamedTuple):
    """A cause (with its ``verdict``) or a suite: a line of name and text, then labelled lines."""

    name: str
    text: str
    details: Sequence[Detail] = ()
    verdict: Outcome | None = None


def causes(records: Iterable[Record]) -> list[list[Record]]:
    """All records that did not pass, each in one cause; worst first, then in order of appearance.

    What fails or improves stands alone, but a plain test that failed is one cause: its assertions
    join the number that failed in it. Known defects share a cause if suite, variant and upstream
    link agree; what could not be judged, if reason and advice agree.
    """
    groups: dict[Hashable, list[Record]] = {}
    tests: dict[tuple[str, str], tuple[Hashable, ...]] = {}
    for number, record in enumerate(records):
        key: tuple[Hashable, ...] = (number,)
        if record.verdict is Outcome.KNOWN_DEFECT:
            key = (record.suite, record.variant, record.upstream)
        elif record.verdict in (Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE):
            key = (record.reason, record.advice)
        elif record.verdict is Outcome.FAILED:
            test = (record.suite, _REPEATED.sub("", record.workload))
            first = tests.setdefault(test, key)
            key = first if record.claim == ASSERTIONS else key
        if record.verdict is not Outcome.PASSED:
            groups.setdefault((record.verdict, *key), []).append(record)
    return sorted(groups.values(), key=lambda cause: RANK[cause[0].verdict])


def stands_alone(verdict: Outcome) -> bool:
    """Whether each record of this verdict is a cause of its own."""
    return verdict.fails or verdict is Outcome.IMPROVED


def by_urgency(
    records: Sequence[Record], ending: Ending
) -> tuple[list[list[Record]], list[list[Record]]]:
    """The causes that require an action, and the others.

    What could not be judged requires one if the run fails and no verdict says why.
    """
    fails = any(record.verdict.fails for record in records)
    unexplained = ending.code(records) is ExitCode.FAILED and not fails
    urgent, others = list[list[Record]](), list[list[Record]]()
    for cause in causes(records):
        verdict = cause[0].verdict
        acted_on = stands_alone(verdict) or (unexplained and not verdict.judged)
        (urgent if acted_on else others).append(cause)
    return urgent, others


def explain(cause: Sequence[Record], command: Sequence[str] = USUAL.command) -> Entry:
    """The cause in words; a group names one example and all its claims and targets.

    ``command`` is the command that repeats the run.
    """
    # Of a group, a record that has a measurement explains more; of a test, the number that failed.
    measured = (each for each in cause if each.measured is not None)
    example = cause[0] if stands_alone(cause[0].verdict) else next(measured, cause[0])
    verdict, label = example.verdict, LABELS[example.verdict]
    details: list[Detail] = []
    if stands_alone(verdict):
        heading = title(example)
        details += _measured(example)
    else:
        targets = in_order(each.target for each in cause)
        claims = tuple(dict.fromkeys(each.claim for each in cause))
        spread = f"{plural(len(claims), 'claim')} on {plural(len(targets), 'target')}"
        numbers = f"{plural(len(cause), 'verdict')}, {spread}"
        heading = f"{_programs(cause)} · {numbers}"
        details += [Detail("on", ", ".join(targets)), Detail("claims", ", ".join(claims))]
    if verdict is Outcome.KNOWN_DEFECT:
        workloads = ", ".join(dict.fromkeys(each.workload for each in cause))
        heading = f"{example.suite}/{workloads}/{example.variant} · {numbers}"
        place = f"{example.claim} of {example.workload} on {example.target}"
        details.append(Detail("example", f"{place}: {_numbers(example)}"))
    if example.reason:
        details.append(Detail("cause", example.reason))
    if stands_alone(verdict) and len(cause) > 1:
        programs = ", ".join(f"{each.variant} on {each.target}" for each in cause[1:])
        details.append(Detail("with", f"{ASSERTIONS} of {programs}, in the same test"))
    if next_step := example.advice or label.next_step:
        advice, colon, inspection = next_step.partition(": assay inspect ")
        details.append(Detail("next", advice))
        if colon:
            details.append(Detail("run", f"assay inspect {inspection}", verbatim=True))
    if example.upstream and verdict.judged:
        details.append(Detail("upstream", example.upstream, verbatim=True))
    if verdict is Outcome.KNOWN_DEFECT or stands_alone(verdict):
        details.append(Detail("rerun", rerun(example, command), verbatim=True))
    return Entry(name_of(verdict), heading, details, verdict)


def _programs(records: Iterable[Record]) -> str:
    """Workloads and variants, as many as one line holds."""
    names = list(dict.fromkeys(f"{each.workload}/{each.variant}" for each in records))
    more = len(names) - _PROGRAMS_SHOWN
    return ", ".join(names[:_PROGRAMS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _measured(record: Record) -> Iterator[Detail]:
    """The numbers, and what differs from the toolchain on which the baseline was stored."""
    if record.measured is not None or record.limit is not None:
        yield Detail("measured", _numbers(record))
    if record.baseline is None or record.measured in (None, record.baseline.value):
        return
    old, new = record.baseline.toolchain, record.toolchain
    changed = [
        f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    since = f"the baseline's toolchain: {', '.join(changed)}"
    if not changed:
        since = "the baseline was stored, on this toolchain: the program changed, not the compiler"
    yield Detail("since", since)


def _numbers(record: Record) -> str:
    numbers = f"{amount(record.measured, record.unit)} · limit {amount(record.limit, record.unit)}"
    if (baseline := record.baseline) is None:
        return numbers
    versions = sorted(baseline.toolchain.items())
    toolchain = ", ".join(f"{name} {version}" for name, version in versions)
    return f"{numbers} · baseline {amount(baseline.value, record.unit)} on {toolchain}"
