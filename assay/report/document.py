"""What a report of a run says, for every format: what to act on, suites, verdicts and times."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from textwrap import shorten
from typing import NamedTuple

from assay.model.defect import RemedyEffect, UpstreamIssue, UpstreamState
from assay.model.history import Trend
from assay.model.rerun import Rerun
from assay.model.timing import Ending as TimesEnding
from assay.model.timing import Times, format_seconds, partner
from assay.model.verdict import (
    MUST_FAIL,
    USUAL,
    ExitCode,
    Invocation,
    Outcome,
    Record,
)
from assay.model.workload import matches_any
from assay.report.causes import Detail, Entry, by_urgency, doubt, explain, number_of
from assay.report.labels import (
    DASH,
    LABELS,
    RANK,
    Styled,
    amount,
    closing_sentence,
    counts,
    coverage_lines,
    headline,
    in_order,
    loss_lines,
    name_of,
    plural,
    result,
    short_names,
    uncontrolled_lines,
)
from assay.report.since import Background

NEGATIVE_CONTROLS = "negative controls"
"""The row of a workload's negative controls; ``passed`` means that each failed its claim."""
NOT_TRIED = "·"
RERUNS_HEAD = "Against another toolchain"
TIMES_HEAD = (
    *("program", "timed with", "steady run", "first run", "compiled in", "device", "samples"),
)
_MORE = "For every variant, known defect and reason, use -v or read summary.md."
_MORE_TIMES = "for the times, use -v or read summary.md."
_TIMES_SHOWN = 12
_LEGEND = (
    (("3/5", LABELS[Outcome.PASSED].style), "3 claims passed, 2 were inconclusive"),
    ((NOT_TRIED, "dim"), "not tried"),
)
_FAMILIES = ("gpu", "tpu", "cpu")
_SILENT_SUITES_SHOWN = 8
_REASON_CHARACTERS = 100
_REASONS_SHOWN = 3


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
    history: Sequence[Trend] = (),
    *,
    everything: bool = True,
) -> list[Section]:
    """The report: the result and what to act on, each suite, times, and last the exit code.

    ``everything`` adds the verdict of each variant on each target, every other cause, and the times
    if they are many.
    """
    seen, ending = tuple(records), invocation.ending
    code, background = ending.code(seen), Background.of(seen, invocation, history)
    urgent, others = by_urgency(seen, ending)
    opening, style = result(seen, ending), "bold red" if code.value else "bold green"
    if urgent:
        counted = ", ".join(counts(chain.from_iterable(urgent)).values())
        opening += f": {counted}{number_of(urgent)}."
    else:
        opening += "; no action is needed." if code is ExitCode.PASSED else "."
    sections = [
        Section(lines=((opening, style), (headline(seen), "dim"))),
        Section("Causes", [explain(cause, background) for cause in urgent]),
        Section("Suites", list(suite_statuses(seen, invocation.upstream_issues))),
    ]
    if everything:
        explained = [explain(cause, background) for cause in others]
        sections += [*grid(seen), Section("Other causes", explained)]
    more = [_MORE] if others and not everything else []
    closing = (closing_sentence(seen, ending), style)
    sections += [
        _times(times, everything=everything),
        Section(RERUNS_HEAD, lines=tuple(rerun_lines(reruns))),
        Section(
            lines=(
                *more,
                *uncontrolled_lines(invocation.uncontrolled),
                *loss_lines(invocation.losses),
                *coverage_lines(ending),
                closing,
            )
        ),
    ]
    return [section for section in sections if any(section[1:])]


def suite_statuses(
    records: Iterable[Record],
    issues: Mapping[str, Sequence[UpstreamIssue]],
    *,
    fold: bool = True,
) -> Iterator[Entry]:
    """The counts of each suite and the state of its upstream issues, by first appearance.

    With ``fold``, many suites that passed whole and describe no issue share the last entry.
    """
    suites: dict[str, list[Record]] = {}
    for record in records:
        suites.setdefault(record.suite, []).append(record)
    silent = [
        name
        for name, found in suites.items()
        if not issues.get(name) and all(each.verdict is Outcome.PASSED for each in found)
    ]
    folded = silent if fold and len(silent) > _SILENT_SUITES_SHOWN else []
    for name, found in suites.items():
        if name not in folded:
            yield _status(name, found, issues.get(name, ()))
    if folded:
        rest = [record for name in folded for record in suites[name]]
        yield _status(f"{len(folded)} other suites", rest, ())


def _status(name: str, records: Sequence[Record], issues: Sequence[UpstreamIssue]) -> Entry:
    counted = counts(records)
    # What fails or improved is explained elsewhere; an issue is the reason of its defects.
    for outcome in (Outcome.KNOWN_DEFECT, Outcome.INCONCLUSIVE, Outcome.UNSUPPORTED):
        if outcome in counted and not (issues and outcome is Outcome.KNOWN_DEFECT):
            counted[outcome] += _reasons(each for each in records if each.verdict is outcome)
    passed = counted.pop(Outcome.PASSED, "")
    words = ", ".join(filter(None, (passed, *counted.values())))
    details: list[Detail] = []
    for issue in issues:
        details.append(Detail("today", _today(records, issue)))
        if issue.remedy:
            remedied = dict.fromkeys(each.remedied for each in issue.effects)
            tried = ((each, doubt(name, each, records)) for each in remedied)
            doubts = "; ".join(f"{each!r} {why}" for each, why in tried if why)
            effects = (_effect(records, effect) for effect in issue.effects)
            shown = next(filter(None, effects), "")
            remedy = "; ".join(filter(None, (issue.remedy + (doubts and f" ({doubts})"), shown)))
            details.append(Detail("remedy", f"{remedy}."))
        details.append(Detail("upstream", issue.upstream.link, verbatim=True))
    return Entry(name, f"{plural(len(records), 'verdict')}: {words}", details)


def _reasons(records: Iterable[Record]) -> str:
    """The distinct reasons in brackets, most common first, with counts if there are several."""
    # The first clause of a reason contains no numbers.
    found = Counter(record.reason.partition("; ")[0] for record in records)
    words = []
    for reason, number in found.most_common(_REASONS_SHOWN):
        text = shorten(reason, _REASON_CHARACTERS, placeholder=" …")
        words.append(f"{number:,}: {text or 'no reason'}" if len(found) > 1 else text)
    if more := len(found) - len(words):
        words.append(plural(more, "other reason"))
    return f" ({'; '.join(words)})" if any(words) else ""


def _today(records: Iterable[Record], issue: UpstreamIssue) -> str:
    """The number of compilers that show the problem, of those that were judged in this run."""
    judged: dict[str, set[Outcome]] = {}
    for record in records:
        if (
            record.verdict.judged
            and not record.must_fail
            and matches_any(record.workload, issue.workloads)
            and matches_any(record.variant, issue.variants)
            and matches_any(record.claim, issue.claims)
        ):
            judged.setdefault(record.target, set()).add(record.verdict)
    if not judged:
        return f"{issue.problem}: not tested in this run."
    seen = [target for target, verdicts in judged.items() if not all(v.holds for v in verdicts)]
    families = []
    for family in _FAMILIES:
        if tried := sum(target.startswith(family) for target in judged):
            shown = sum(target.startswith(family) for target in seen)
            families.append(f"{family.upper()} {shown} of {tried}")
    fixed = in_order(
        target
        for target, verdicts in judged.items()
        if Outcome.FIXED_UPSTREAM in verdicts and target not in seen
    )
    ending = f"; fixed upstream on {', '.join(fixed)}." if fixed else "."
    if seen and issue.upstream.state is UpstreamState.CLOSED:
        ending = f"; {issue.upstream.standing}, still present{ending}"
    spread = f"{len(seen)} of {plural(len(judged), 'compiler')} ({', '.join(families)})"
    return f"{issue.problem} on {spread}{ending}"


def _effect(records: Iterable[Record], effect: RemedyEffect) -> str:
    """The number without and with the remedy, on a target where the remedy holds and changes it."""
    numbers = {
        (record.variant, record.target): record
        for record in records
        if record.workload == effect.workload
        and record.claim.removesuffix(MUST_FAIL) == effect.claim
        and record.verdict.judged
    }
    targets = in_order(target for _, target in numbers)
    for pattern in effect.targets:
        for target in filter(lambda name: fnmatchcase(name, pattern), targets):
            without = numbers.get((effect.without, target))
            remedied = numbers.get((effect.remedied, target))
            if without and remedied and remedied.verdict.holds:
                before, after = (
                    amount(each.measured, each.unit, decimals=1) for each in (without, remedied)
                )
                if before != after:
                    return f"{effect.quantity} on {target}: {before} → {after}"
    return ""


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

    A variant that passed in part shows how many claims passed, of those that passed or were
    inconclusive.
    """
    if verdicts is None:
        return NOT_TRIED, "dim"
    worst = min(verdicts, key=RANK.__getitem__)
    passed, inconclusive = verdicts[Outcome.PASSED], verdicts[Outcome.INCONCLUSIVE]
    partly = worst is Outcome.PASSED and inconclusive
    text = f"{passed}/{passed + inconclusive}" if partly else name_of(worst)
    return text, LABELS[worst].style


def rerun_lines(reruns: Iterable[Rerun]) -> Iterator[str]:
    """The measured change of each program, negative controls last, and why one ended early."""
    for each in sorted(reruns, key=lambda each: each.negative_control):
        if not each.pairs:
            continue
        words = f"{plural(len(each.pairs), 'pair')} of processes, too few to be judged"
        if each.ratio is not None:
            words = f"{each.description}: {each.ratio.change.phrase}"
        early = f"; {each.ended.phrase}" if each.ended is not TimesEnding.ENOUGH else ""
        yield f"{each.suite}: {each.workload}/{each.variant}@{each.target}: {words}{early}"


def _times(times: Iterable[Times], *, everything: bool) -> Section:
    """A table of the times; a column without any number is left out."""
    rows = tuple(time_rows(times))
    if len(rows) > _TIMES_SHOWN and not everything:
        return Section("Times", lines=(f"{plural(len(rows), 'timing')}; {_MORE_TIMES}",))
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
