"""Words and sentences of every report: verdicts, the result of a run, its coverage."""

import codecs
import json
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from assay.model.units import Unit, format_quantity
from assay.model.verdict import (
    MUST_FAIL,
    USUAL,
    Count,
    Ending,
    ExitCode,
    Gap,
    Loss,
    Missing,
    Outcome,
    Reached,
    Record,
    Slot,
    judged_claims,
)

DASH = "\N{EN DASH}"
"""Marks a number that does not exist."""
BARS = "▁▂▃▄▅▆▇█"
"""Heights of a number on the terminal, the least first."""

_KEYWORD = re.compile(r"[\w:+\-.\[\]\\/]+")
"""What pytest's ``-k`` takes as one word (_pytest/mark/expression.py, ``Scanner.lex``)."""
_TEST = re.compile(r"(?:.*\.)?(test\w*)")
_LIVE = ("cpu", "gpu", "tpu")
_CLAIMS_SHOWN = 4
_REASON_CHARACTERS = 200
_CHECKS_SHOWN = 3

Styled = str | tuple[str, str]
"""A text, or a text with its style."""


class Label(NamedTuple):
    """A verdict's colour, its name in a sentence, and what to do."""

    style: str
    meaning: str
    next_step: str = ""


LABELS: dict[Outcome, Label] = {
    Outcome.ERROR: Label(
        "bold white on red",
        "failed in Assay",
        "fix Assay or the claim; this verdict says nothing about the program",
    ),
    Outcome.FAILED: Label(
        "bold red",
        "failed",
        "if the program changed, fix it; if only the toolchain did, report it upstream and add the "
        "link as a known defect of the workload",
    ),
    Outcome.FIXED_UPSTREAM: Label(
        "bold magenta",
        "fixed upstream",
        "remove the known defect from the workload",
    ),
    Outcome.IMPROVED: Label("bold cyan", "improved", "store it with --assay-update-baselines=all"),
    Outcome.KNOWN_DEFECT: Label("yellow", "known defect", "no action needed; tracked upstream"),
    Outcome.PASSED: Label("green", "passed"),
    Outcome.INCONCLUSIVE: Label("blue", "inconclusive"),
    Outcome.UNSUPPORTED: Label("dim", "unsupported"),
}
"""Worst first: the worst verdict of a cell represents the cell.

``known-defect`` outranks ``passed``, because a reader must see it. ``passed`` outranks what could
not be judged, because no compile-only target can judge every claim.
"""

RANK: dict[Outcome, int] = {outcome: rank for rank, outcome in enumerate(LABELS)}
"""0 for the worst verdict."""


def name_of(verdict: Outcome) -> str:
    """The verdict's own name, in capitals if it fails the run."""
    return verdict.value.upper() if verdict.fails else verdict.value


def plain(text: str) -> str:
    """The text without characters that control a terminal or that XML forbids."""
    return "".join(map(_plain_character, text))


def plain_json(text: str) -> str:
    """The JSON with characters that control a terminal written as escapes, which read the same."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _plain_character(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


SIMILAR: Final = "assay.similar"
"""The name of ``_similar`` as an error handler of codecs."""
_ASCII: Final = str.maketrans(
    dict(zip("·−–→←×…≤≥µ", ["-", "-", "-", "->", "<-", "x", "...", "<=", ">=", "u"], strict=True))
)


def _similar(error: UnicodeError) -> tuple[str, int]:
    """What cannot be encoded, in similar ASCII characters or as question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "replace").decode("ascii"), error.end


codecs.register_error(SIMILAR, _similar)


def title(record: Record) -> str:
    """The record's claim, program and target, on one line and without control characters."""
    program = f"{record.suite}/{record.workload}/{record.variant}"
    return " ".join(plain(f"{record.claim} · {program} on {record.target}").split())


def failure_line(record: Record) -> str:
    """One line for a record that fails the run, shown when it happens; reports say more."""
    reason = textwrap.shorten(record.reason, _REASON_CHARACTERS, placeholder=" …")
    return f"{name_of(record.verdict)}  {title(record)}: {plain(reason)}"


def amount(value: float | None, unit: Unit, *, decimals: int = 4) -> str:
    """A number with its unit, or a dash if there is none."""
    return DASH if value is None else format_quantity(value, unit, decimals=decimals)


_EXPECTED: Final = {"=": "expected exactly", "≤": "expected at most", "≥": "expected at least"}


def expected(record: Record) -> str:
    """``expected at most 0 B``; ``limit 0 B`` if the record does not say which."""
    word = _EXPECTED[record.relation] if record.relation else "limit"
    return f"{word} {amount(record.limit, record.unit)}"


def plural(number: int, noun: str) -> str:
    """``1 verdict``, ``2 verdicts``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rerun(records: Sequence[Record], command: Sequence[str] = USUAL.command) -> str:
    """The command that repeats these verdicts: all claims on each variant, or negative control.

    An item's id is ``test[workload/variant@target]``, followed by ``/negative-control`` for such a
    variant. The workload of a program that a test compiled itself is named after the test.
    """
    items = " or ".join(dict.fromkeys(" and ".join(_keywords(each)) for each in records))
    targets = ",".join(in_order(each.target for each in records))
    return shlex.join([*command, "--assay-target", targets, "-k", items])


def _keywords(record: Record) -> list[str]:
    words = _KEYWORD.findall(f"{record.workload}/{record.variant}")
    if test := _TEST.match(record.workload):
        words = [test[1]]
    return [*words, MUST_FAIL.removeprefix(".")] if record.must_fail else words


def toolchain_versions(records: Iterable[Record]) -> dict[str, str]:
    """Every package of every toolchain, sorted; several versions of one are joined by commas."""
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.toolchain.items():
            versions.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(found)) for name, found in sorted(versions.items())}


def in_order(targets: Iterable[str]) -> tuple[str, ...]:
    """Each target once: the live cpu, gpu, tpu first, then by name."""

    def position(target: str) -> tuple[int, str]:
        model = target.partition(":")[0]
        return (_LIVE.index(model) if model in _LIVE else len(_LIVE), target)

    return tuple(sorted(set(targets), key=position))


def is_live(target: str) -> bool:
    """Whether the target is a device of this machine."""
    return target.partition(":")[0] in _LIVE


def short_names(targets: Iterable[str]) -> dict[str, str]:
    """Column heads: ``h100`` for ``gpu-h100:8``; longer only if two targets would share one."""
    names = tuple(targets)
    short = {name: name for name in names}
    for shorten in (_without_kind, _model):
        counts = Counter(map(shorten, names))
        short |= {name: shorten(name) for name in names if counts[shorten(name)] == 1}
    return short


def _model(target: str) -> str:
    return target if target.startswith("cpu") else _without_kind(target).partition(":")[0]


def _without_kind(target: str) -> str:
    kind, dash, rest = target.partition("-")
    return rest if dash and kind in _LIVE else target


def headline(records: Sequence[Record]) -> str:
    """One line: the run, the number of verdicts, the seconds of work, the toolchain, retries.

    The seconds are summed over the verdicts, so parallel work counts in full. There are none if all
    programs come from the cache.
    """
    cached = sum(record.cached for record in records)
    retried = sum(bool(record.retries) for record in records)
    all_cached = bool(records) and cached == len(records)
    seconds = f"{sum(record.seconds for record in records):,.1f} s of work"
    facts = (
        ", ".join(dict.fromkeys(record.run for record in records)) or "no run",
        plural(len(records), "verdict")
        + (f", {cached:,} on programs from the cache" if cached else ""),
        "" if all_cached else seconds,
        ", ".join(f"{name} {version}" for name, version in toolchain_versions(records).items()),
        f"{plural(retried, 'verdict')} at a second attempt" if retried else "",
    )
    return " · ".join(filter(None, facts))


def counts(records: Iterable[Record]) -> dict[Outcome, str]:
    """The number of verdicts of each kind, in words, worst first."""
    found = Counter(record.verdict for record in records)
    words = {outcome: f"{found[outcome]:,} {LABELS[outcome].meaning}" for outcome in LABELS}
    words[Outcome.KNOWN_DEFECT] = plural(found[Outcome.KNOWN_DEFECT], "known defect")
    return {outcome: text for outcome, text in words.items() if found[outcome]}


def closing_sentence(records: Sequence[Record], ending: Ending = USUAL.ending) -> str:
    """The result of the run, its exit code and its counts, worst first."""
    lost = f"; {plural(len(ending.lost), 'item')} reached no verdict" if ending.lost else ""
    counted = ", ".join(counts(records).values()) or "no verdicts"
    return f"{result(records, ending)} (exit {ending.code(records).value}): {counted}{lost}."


def result(records: Sequence[Record], ending: Ending) -> str:
    """The result of the run in words: the first reason that applies, ordered as ``Ending.code``."""
    code = ending.code(records)
    judged = any(record.verdict.judged for record in records)
    rest = "the remaining tests did not run"
    reasons = {
        f"Interrupted: {rest}": ending.cut_short is ExitCode.MISUSE,
        f"{ending.lost_process[:1].upper()}{ending.lost_process[1:]}; {rest}": bool(
            ending.lost_process
        ),
        f"pytest or a plugin failed: {rest}": ending.cut_short is ExitCode.CRASHED,
        "The results are incomplete: not everything could be written": bool(ending.unwritten),
        "Assay itself failed": code is ExitCode.CRASHED,
        "Nothing regressed": code is ExitCode.PASSED,
        f"records.jsonl holds {len(records):,} of {ending.verdicts or 0:,} verdicts": (
            not ending.matches(records)
        ),
        "The run fails": any(record.verdict.fails for record in records),
        "The run is incomplete": bool(ending.lost),
        "The run judged nothing, which is not a pass": not judged,
        "The run judged negative controls only, which is not a pass": not judged_claims(records),
        "Expected verdicts are missing": bool(ending.missing),
        "A test or a worker failed": True,
    }
    return next(words for words, applies in reasons.items() if applies)


def coverage_lines(ending: Ending) -> Iterator[str]:
    """The number of expected verdicts that the run reached, then a line for each gap."""
    if ending.coverage:
        yield plain(f"coverage: {ending.coverage}")
    for missing in ending.missing:
        yield plain(f"missing: {missing.reason}")


def uncontrolled_lines(checks: Sequence[str]) -> Iterator[str]:
    """A line on the checks without a negative control, if there are any."""
    if checks:
        more = len(checks) - _CHECKS_SHOWN
        names = ", ".join(checks[:_CHECKS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        have = "has" if len(checks) == 1 else "have"
        yield plain(
            f"{plural(len(checks), 'check')} {have} no negative control: {names}; a check without "
            "one cannot show that it detects the fault"
        )


def loss_lines(losses: Iterable[Loss]) -> Iterator[str]:
    """A line for each way in which a fleet lost workers."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in losses:
        found.setdefault((each.node or "a machine", each.why), []).append(each.items)
    for (node, why), items in found.items():
        again = f"{plural(sum(items), 'item')} ran again"
        yield plain(f"lost: {plural(len(items), 'worker')} on {node}; {again} ({why})")


def coverage_line(
    expected: Mapping[Slot, Count],
    reached: Reached,
    not_run: Mapping[str, str],
    stored: Collection[str],
) -> str:
    """The number of expected verdicts that were judged; ``not_run`` maps frameworks to reasons.

    ``stored`` are the targets that have expected verdicts of these suites, tried or not.
    """
    due = {slot: count for slot, count in expected.items() if slot.framework not in not_run}
    none = Count(0, 0)
    found = {slot: reached.counts.get(slot, none).judged for slot in due}
    judged = sum(min(count.judged, found[slot]) for slot, count in due.items()) - reached.noisy
    wanted = sum(count.judged for count in due.values())
    targets = plural(len({slot.target for slot in due}), "target")
    parts = [f"{max(0, judged):,} of {wanted:,} expected verdicts judged on {targets}"]
    if unknown := in_order({slot.target for slot in reached.counts} - {*stored}):
        only = f", only for {', '.join(in_order(stored))}" if stored else ""
        none_stored = f"no expected verdicts are stored for {', '.join(unknown)}{only}"
        parts = [f"{none_stored}, so missing ones are not detected", *(parts if due else ())]
    for framework, reason in not_run.items():
        slots = [slot for slot in expected if slot.framework == framework]
        if slots:
            verdicts = plural(sum(expected[slot].verdicts for slot in slots), "verdict")
            suites = plural(len({slot.suite for slot in slots}), "suite")
            parts.append(f"{verdicts} of {suites} not run: {reason}")
    if reached.noisy:
        parts.append(f"{plural(reached.noisy, 'timing')} inconclusive")
    more = sum(
        max(0, count.verdicts - expected.get(slot, none).verdicts)
        for slot, count in reached.counts.items()
    )
    if more:
        parts.append(f"{more:,} more than expected, record them with --assay-update-baselines=new")
    return "; ".join(parts)


def missing_of(gaps: Iterable[Gap], unavailable: Mapping[str, str]) -> tuple[Missing, ...]:
    """A line for each gap; one line for all suites of a target that is not available."""
    found: dict[Missing, None] = {}
    for gap in gaps:
        if gap.target in unavailable:
            text = f"{gap.target} is not available: {unavailable[gap.target]}"
        else:
            claims = ", ".join(gap.claims[:_CLAIMS_SHOWN])
            more = len(gap.claims) - _CLAIMS_SHOWN
            claims += f" and {more} more" if more > 0 else ""
            what = gap.reason or (
                "bring the checks back, or store that with --assay-update-baselines=all"
            )
            judged = f"{gap.judged:,} of {gap.expected:,} expected verdicts judged"
            text = f"{gap.suite} on {gap.target}: {judged} ({claims}): {what}"
        found[Missing(target=gap.target, reason=text)] = None
    return tuple(found)


def nothing_judged(target: str, reasons: Collection[str]) -> Missing:
    """The line of a target that was named, and on which no claim was judged."""
    why = next(iter(reasons), "no workload's scopes try it at this level")
    return Missing(target=target, reason=f"nothing was judged on {target}: {why}")


def nothing_compared(against: str, *, is_selected: bool) -> Missing:
    """The line of a comparison that was asked for, and for which no program was timed."""
    why = "no check on times was selected; most are timed from --assay-level full on"
    if is_selected:
        why = "no program was timed on both toolchains; the verdicts of time-against say why"
    reason = f"got --assay-against={against}, and nothing was compared: {why}"
    return Missing(target="", reason=reason)
