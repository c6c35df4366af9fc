"""Causes: the records that did not pass, grouped by what made them so, and each in words."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from assay.model.verdict import ASSERTIONS, MUST_FAIL, Ending, ExitCode, Outcome, Record
from assay.model.workload import matches_any
from assay.report.labels import (
    LABELS,
    RANK,
    amount,
    expected,
    in_order,
    name_of,
    plural,
    rerun,
    title,
)
from assay.report.since import Background

_PROGRAMS_SHOWN = 3
_TEST = re.compile(r"test\w*")
"""The name of a plain test in its workload, without parameters or the number of a program."""
_ORDER: Final = (
    ("compiles", "runs", "refuses"),
    ("names-match", "parameters"),
    ("residuals-on-host",),
    ("values-equal", "graphs-compiled", "copied-*", "donated-*", "to-*-bytes", "sent-*"),
    (),
    ("*time*", ASSERTIONS),
)
"""Claims in the order in which one explains the next: whether there is a program, its names, what
tracing decides, what the compiled program does, what it needs (all others), how long it takes or
the assertions of a plain test.
"""
_NONE: Final = Background()


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
    """All records that did not pass, each in one cause; worst first, wrong values before others.

    A cause has one verdict. What fails or improves shares a cause if suite and variant agree, or
    suite and plain test; negative controls have their own. The claim that explains the others is
    its first. Known defects share one if suite, variant and upstream link agree; what could not be
    judged, if reason and advice agree.
    """
    groups: dict[Hashable, list[Record]] = {}
    for record in records:
        test = _TEST.match(record.workload)
        key: tuple[Hashable, ...] = (record.suite, test[0] if test else record.variant)
        if stands_alone(record.verdict):
            key += (record.must_fail,)
        elif record.verdict is Outcome.KNOWN_DEFECT:
            key = (record.suite, record.variant, record.upstream)
        else:
            key = (record.reason, record.advice)
        if record.verdict is not Outcome.PASSED:
            groups.setdefault((record.verdict, *key), []).append(record)
    found = (sorted(group, key=_stage) for group in groups.values())
    return sorted(found, key=lambda cause: (RANK[cause[0].verdict], not _is_wrong(cause)))


def _is_wrong(cause: Iterable[Record]) -> bool:
    """Whether one of the claims is that values are equal."""
    return any(record.claim.removesuffix(MUST_FAIL) == "values-equal" for record in cause)


def _stage(record: Record) -> tuple[bool, int]:
    """Where the claim stands among those that explain one another; without a number, first."""
    claim, others = record.claim.removesuffix(MUST_FAIL), _ORDER.index(())
    stages = (at for at, claims in enumerate(_ORDER) if matches_any(claim, claims))
    is_acted_on = stands_alone(record.verdict)
    return is_acted_on and record.measured is not None, is_acted_on * next(stages, others)


def stands_alone(verdict: Outcome) -> bool:
    """Whether a record of this verdict requires an action by itself."""
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


def number_of(urgent: Sequence[Sequence[Record]]) -> str:
    """``, in 3 groups``; empty if no verdicts that fail share one."""
    failed = [cause for cause in urgent if cause[0].verdict.fails]
    shared = any(len(cause) > 1 for cause in failed)
    return f", in {plural(len(failed), 'group')}" if shared else ""


def explain(cause: Sequence[Record], background: Background = _NONE) -> Entry:
    """The cause in words, with all its claims and targets; of known defects, also one example."""
    if stands_alone(cause[0].verdict):
        return _acted_on(cause, background)
    # A record that has a measurement explains more.
    example = next((each for each in cause if each.measured is not None), cause[0])
    claims = ", ".join(dict.fromkeys(each.claim for each in cause))
    details = [_on(cause), Detail("claims", claims)]
    heading = f"{_programs(cause)} · {_spread(cause)}"
    if example.verdict is Outcome.KNOWN_DEFECT:
        heading = _variant(cause)
        place = f"{example.claim} of {example.workload} on {example.target}"
        details.append(Detail("example", f"{place}: {_numbers(example)}"))
    details += _findings([example])
    details += _next(example, background)
    details += _upstream(example)
    if example.verdict is Outcome.KNOWN_DEFECT:
        details.append(Detail("rerun", rerun([example], background.command), verbatim=True))
    return Entry(name_of(example.verdict), heading, details, example.verdict)


def _acted_on(cause: Sequence[Record], background: Background) -> Entry:
    """The first claim in full, then the numbers of the others."""
    first, claims = cause[0], dict[str, list[Record]]()
    for record in cause:
        claims.setdefault(record.claim, []).append(record)
    is_one, head = len(cause) == 1, claims.pop(first.claim)

    def measured(record: Record) -> str:
        was = background.was(record)
        return _numbers(replace(record, baseline=None)) + was if was else _numbers(record)

    details = [] if is_one else [_on(cause)]
    if numbers := _by_place(head, measured):
        text = numbers[0] if is_one else _claim(first.claim, numbers)
        details.append(Detail("measured", text))
    details += _findings(head)
    details += [Detail("since", text) for text in _by_place(head, background.since)]
    if diff := background.diff(first):
        details.append(Detail("run", diff, verbatim=True))
    details += _steps(head, background)
    for claim, found in claims.items():
        numbers = _by_place(found, lambda each: measured(each) or each.reason)
        details.append(Detail("also", _claim(claim, numbers)))
    details += _upstream(first)
    details.append(Detail("rerun", rerun(cause, background.command), verbatim=True))
    heading = title(first) if is_one else _variant(cause)
    return Entry(name_of(first.verdict), heading, details, first.verdict)


def _on(cause: Iterable[Record]) -> Detail:
    return Detail("on", ", ".join(in_order(each.target for each in cause)))


def _spread(cause: Sequence[Record]) -> str:
    """``8 verdicts, 2 claims on 2 targets``."""
    claims, targets = ({each.claim for each in cause}, {each.target for each in cause})
    spread = f"{plural(len(claims), 'claim')} on {plural(len(targets), 'target')}"
    return f"{plural(len(cause), 'verdict')}, {spread}"


def _variant(cause: Sequence[Record]) -> str:
    """``suite/{workload, workload}/variant``, and how many verdicts there are."""
    parts = zip(*((each.suite, each.workload, each.variant) for each in cause), strict=True)
    names = (", ".join(dict.fromkeys(part)) for part in parts)
    program = "/".join(f"{{{each}}}" if ", " in each else each for each in names)
    return f"{program} · {_spread(cause)}"


def _programs(records: Iterable[Record]) -> str:
    """The first three workloads and variants, and how many more there are."""
    names = list(dict.fromkeys(f"{each.workload}/{each.variant}" for each in records))
    more = len(names) - _PROGRAMS_SHOWN
    return ", ".join(names[:_PROGRAMS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _by_place(records: Iterable[Record], words: Callable[[Record], str]) -> list[str]:
    """The different texts, each with its programs and targets if there are several."""
    return [text for text, _ in _with_places(records, words)]


def _with_places(
    records: Iterable[Record], words: Callable[[Record], str]
) -> list[tuple[str, Record]]:
    """The texts of ``_by_place``, each with the first record that has it."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if text := words(record):
            found.setdefault(text, []).append(record)
    if len(found) == 1:
        return [(text, same[0]) for text, same in found.items()]
    return [(f"{_places(same)}: {text}", same[0]) for text, same in found.items()]


def _places(records: Iterable[Record]) -> str:
    return ", ".join(dict.fromkeys(f"{each.workload} on {each.target}" for each in records))


def _claim(name: str, texts: Sequence[str]) -> str:
    """The numbers of a claim, of each program and target if they differ."""
    return f"{name}{' of ' if len(texts) > 1 else ': '}{'; '.join(texts)}"


def _findings(records: Iterable[Record]) -> list[Detail]:
    return [Detail("finding", text) for text in _by_place(records, lambda each: each.reason)]


def _upstream(record: Record) -> Iterator[Detail]:
    if record.upstream and record.verdict.judged:
        yield Detail("upstream", record.upstream, verbatim=True)


def _next(record: Record, background: Background) -> Iterator[Detail]:
    """What to do, and the command to do it with."""
    advice, colon, inspection = record.advice.partition(": assay inspect ")
    if record.remedy and (tried := doubt(record.suite, record.remedy, background.records)):
        advice = advice.replace(repr(record.remedy), f"{record.remedy!r} ({tried})", 1)
    if not advice and background.blames_program(record):
        advice = (
            "the sources changed since the last good run, the toolchain did not; read their diff"
        )
    if text := advice or LABELS[record.verdict].next_step:
        yield Detail("next", text)
    if colon:
        yield Detail("run", f"assay inspect {inspection}", verbatim=True)


def _steps(records: Iterable[Record], background: Background) -> Iterator[Detail]:
    """The different next steps, each followed by the command of its first record."""

    def step(record: Record) -> str:
        texts = (each.text for each in _next(record, background) if each.label == "next")
        return next(texts, "")

    for text, first in _with_places(records, step):
        yield Detail("next", text)
        yield from (each for each in _next(first, background) if each.label == "run")


def doubt(suite: str, variant: str, records: Iterable[Record]) -> str:
    """Why this run does not show that the variant works as a remedy; empty if it does."""
    mine = [each for each in records if (each.suite, each.variant) == (suite, variant)]
    wrong = (each for each in mine if each.verdict.fails and not each.verdict.holds)
    if failed := in_order(each.target for each in wrong):
        return f"FAILED in this run on {', '.join(failed)}"
    is_tested = any(each.verdict.judged and not each.must_fail for each in mine)
    return "" if is_tested else "not tested in this run"


def _numbers(record: Record) -> str:
    """``5.9 GiB, expected at most 0 B``; empty if there is no number.

    A plain test's assertions have none: their record counts the test itself.
    """
    if record.claim == ASSERTIONS:
        return ""
    parts = [] if record.measured is None else [amount(record.measured, record.unit)]
    parts += [] if record.limit is None else [expected(record)]
    if record.baseline is not None:
        versions = " ".join(f"{name} {v}," for name, v in sorted(record.baseline.toolchain.items()))
        stored = amount(record.baseline.value, record.unit)
        parts.append(f"baseline {stored} on {versions}".rstrip(","))
    return ", ".join(parts)
