"""What a report of a run says: sections of entries, tables and lines, for every format."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from assay.model.rerun import Rerun
from assay.model.timing import Ending as TimesEnding
from assay.model.timing import Times, format_seconds, partner
from assay.model.verdict import USUAL, ExitCode, Invocation, Outcome, Record
from assay.report.explanation import Entry, causes, explain, stands_alone, suite_statuses
from assay.report.labels import (
    DASH,
    LABELS,
    RANK,
    Styled,
    closing_sentence,
    counts,
    coverage_lines,
    headline,
    in_order,
    plural,
    result,
    short_names,
)

NEGATIVE_CONTROLS = "negative controls"
"""The row of a workload's negative controls; ``passed`` means that each failed its claim."""
NOT_TRIED = "·"
RERUNS_HEAD = "Against another toolchain"
TIMES_HEAD = (
    *("program", "timed with", "steady run", "first run", "compiled in", "device", "samples"),
)
_MORE = "For every variant, known defect and reason, use -v or read summary.md."
_LEGEND = (
    *(((label.text, label.style), label.meaning) for label in LABELS.values()),
    (("3/5", LABELS[Outcome.PASSED].style), "3 claims passed, 2 were inconclusive"),
    ((NOT_TRIED, "dim"), "not tried"),
)


class Table(NamedTuple):
    """Cells under heads; ``short_heads`` are there if a narrow report may split the columns."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Styled]]
    short_heads: Sequence[str] = ()


class Section(NamedTuple):
    """Suites or causes, a table, or paragraphs."""

    title: str = ""
    entries: Sequence[Entry] = ()
    table: Table | None = None
    lines: Sequence[Styled] = ()


def document(
    records: Iterable[Record],
    times: Iterable[Times] = (),
    reruns: Iterable[Rerun] = (),
    invocation: Invocation = USUAL,
    *,
    everything: bool = True,
) -> list[Section]:
    """The report: the result and what to act on, each suite, times, and last the exit code.

    ``everything`` adds the verdict of each variant on each target, and every other cause.
    """
    seen, ending, command = tuple(records), invocation.ending, invocation.command
    code, fails = ending.code(seen), any(record.verdict.fails for record in seen)
    # What could not be judged requires an action if the run fails and no verdict says why.
    unexplained = code is ExitCode.FAILED and not fails
    urgent, others = list[list[Record]](), list[list[Record]]()
    for cause in causes(seen):
        verdict = cause[0].verdict
        acted_on = stands_alone(verdict) or (unexplained and not verdict.judged)
        (urgent if acted_on else others).append(cause)
    opening, style = result(seen, ending), "bold red" if code.value else "bold green"
    if urgent:
        opening += f": {', '.join(counts(chain.from_iterable(urgent)).values())}."
    else:
        opening += "; no action is needed." if code is ExitCode.PASSED else "."
    sections = [
        Section(lines=((opening, style), (headline(seen), "dim"))),
        Section("Causes", [explain(cause, command) for cause in urgent]),
        Section("Suites", list(suite_statuses(seen, invocation.upstream_issues))),
    ]
    if everything:
        explained = [explain(cause, command) for cause in others]
        sections += [*grid(seen), Section("Other causes", explained)]
    more = [_MORE] if others and not everything else []
    closing = (closing_sentence(seen, ending), style)
    sections += [
        _times(times),
        Section(RERUNS_HEAD, lines=tuple(rerun_lines(reruns))),
        Section(lines=(*more, *coverage_lines(ending), closing)),
    ]
    return [section for section in sections if any(section[1:])]


def counted(
    records: Iterable[Record],
) -> dict[tuple[str, str], dict[str, dict[str, Counter[Outcome]]]]:
    """The verdicts of each suite and workload, of each variant of it, on each target.

    The negative controls of a workload are one row, the last one.
    """
    found: dict[tuple[str, str], dict[str, dict[str, Counter[Outcome]]]] = {}
    for record in sorted(records, key=lambda record: record.must_fail):
        rows = found.setdefault((record.suite, record.workload), {})
        row = rows.setdefault(NEGATIVE_CONTROLS if record.must_fail else record.variant, {})
        row.setdefault(record.target, Counter())[record.verdict] += 1
    return found


def grid(records: Sequence[Record]) -> Iterator[Section]:
    """A table for each workload, a row for each variant, and the meaning of the cells."""
    short = short_names({record.target for record in records})
    for (suite, workload), variants in counted(records).items():
        targets = in_order(target for row in variants.values() for target in row)
        rows: list[tuple[Styled, ...]] = [
            (variant, *(cell(row.get(target)) for target in targets))
            for variant, row in variants.items()
        ]
        heads = ("variant", *(short[target] for target in targets))
        table = Table(("variant", *targets), rows, short_heads=heads)
        yield Section(f"{suite} / {workload}", table=table)
    if records:
        yield Section("Legend", table=Table(("cell", "means"), _LEGEND))


def cell(verdicts: Counter[Outcome] | None) -> tuple[str, str]:
    """The worst verdict and its style.

    A variant that passed in part shows the claims that passed, of those that were measurable.
    """
    if verdicts is None:
        return NOT_TRIED, "dim"
    label = LABELS[min(verdicts, key=RANK.__getitem__)]
    passed, inconclusive = verdicts[Outcome.PASSED], verdicts[Outcome.INCONCLUSIVE]
    partly = label is LABELS[Outcome.PASSED] and inconclusive
    return f"{passed}/{passed + inconclusive}" if partly else label.text, label.style


def rerun_lines(reruns: Iterable[Rerun]) -> Iterator[str]:
    """The measured change of each program, negative controls last, and why one ended early."""
    for rerun in sorted(reruns, key=lambda each: each.negative_control):
        if not rerun.pairs:
            continue
        words = f"{plural(len(rerun.pairs), 'pair')} of processes, too few to be judged"
        if rerun.ratio is not None:
            words = f"{rerun.description}: {rerun.ratio.change.phrase}"
        early = f"; {rerun.ended.phrase}" if rerun.ended is not TimesEnding.ENOUGH else ""
        program = f"{rerun.workload}/{rerun.variant}@{rerun.target}"
        yield f"{rerun.suite}: {program}: {words}{early}"


def _times(times: Iterable[Times]) -> Section:
    """A table of the times; a column without any number is left out."""
    rows = tuple(time_rows(times))
    columns = zip(TIMES_HEAD, *rows, strict=True)
    heads, *shown = zip(*(each for each in columns if set(each[1:]) != {DASH}), strict=True)
    return Section("Times", table=Table(heads, shown) if rows else None)


def time_rows(all_times: Iterable[Times]) -> Iterator[tuple[str, ...]]:
    """The cells of a table under ``TIMES_HEAD``; medians are those of interleaved samples."""
    for times in all_times:
        for variant in (times.reference, times.judged):
            if not variant.samples:
                continue
            on_device = variant.on_device.busy if variant.on_device else None
            seconds = (variant.steady, variant.first, variant.compile, on_device)
            early = ", unfinished" if times.ended is TimesEnding.UNFINISHED else ""
            yield (
                f"{times.workload}/{variant.variant}@{times.target}",
                partner(times, variant),
                *(DASH if each is None else format_seconds(each) for each in seconds),
                f"{len(variant.samples)}{early}",
            )
