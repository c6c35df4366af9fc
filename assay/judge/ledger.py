"""The ledger of known defects, compared with the verdicts of several releases."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from assay.judge.baseline import in_range
from assay.judge.case import fails_as, on_any_toolchain
from assay.model.claim import Case, Trial
from assay.model.defect import KnownDefect
from assay.model.matrix import LedgerNote
from assay.model.verdict import Finding, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The finding on one trial on one release, whose versions are those of the case."""

    release: str
    trial: Trial
    case: Case
    finding: Finding
    entry: KnownDefect | None = None

    @property
    def versions(self) -> Mapping[str, str]:
        """The packages of the release."""
        return self.case.evidence.toolchain.versions

    def shows(self, entry: KnownDefect) -> bool:
        """Whether the claim fails as the entry expects, in its range or outside of it."""
        if self.finding.outcome not in (Outcome.FAILED, Outcome.KNOWN_DEFECT):
            return False
        failed = replace(self.finding, outcome=Outcome.FAILED)
        with suppress(Exception):  # A formula of the suite, which may be of other sizes.
            return fails_as(entry, self.trial.check.claim.name, failed, self.case)
        return False

    def contradicts(self, entry: KnownDefect) -> bool:
        """Whether the verdict would be another one if the entry's range were right."""
        listed = in_range(entry.toolchain, self.versions)
        if self.finding.outcome is Outcome.FIXED_UPSTREAM:
            return listed
        return self.finding.outcome is Outcome.FAILED and listed is not self.shows(entry)


def check_ranges(judged: Sequence[Judged]) -> tuple[LedgerNote, ...]:
    """A note for each entry whose range the verdicts contradict; claims that agree share one."""
    releases = tuple(dict.fromkeys(each.release for each in judged))
    rows: dict[tuple[object, ...], list[Judged]] = {}
    entries: dict[int, KnownDefect] = {}
    for each in judged:
        if each.trial.must_fail or not each.finding.outcome.judged:
            continue
        for entry in on_any_toolchain(each.trial.check.claim.name, each.case):
            entries[id(entry)] = entry
            rows.setdefault((id(entry), *each.trial.key), []).append(each)
    alike: dict[tuple[object, ...], list[Judged]] = {}
    for (number, *_), row in rows.items():
        entry = entries[int(str(number))]
        if any(each.contradicts(entry) for each in row):
            state = tuple((each.release, each.shows(entry), each.finding.outcome) for each in row)
            alike.setdefault((number, state), []).extend(row)
    return tuple(
        _note(entries[int(str(number))], row, releases) for (number, _), row in alike.items()
    )


def with_advice(judged: Iterable[Judged], notes: Sequence[LedgerNote]) -> tuple[Judged, ...]:
    """The same with the notes as the advice of the verdicts that they explain."""
    return tuple(_advised(each, notes) for each in judged)


def _advised(judged: Judged, notes: Sequence[LedgerNote]) -> Judged:
    trial = judged.trial
    if judged.finding.outcome not in (Outcome.FAILED, Outcome.FIXED_UPSTREAM) or trial.must_fail:
        return judged
    mine = [
        note.sentence
        for note in notes
        if trial.workload.suite == note.suite
        and trial.workload.name in note.workloads
        and trial.variant.name in note.variants
        and trial.check.claim.name in note.claims
        and trial.target in note.targets
    ]
    if not mine:
        return judged
    return replace(judged, finding=replace(judged.finding, advice="; ".join(mine)))


def _note(entry: KnownDefect, row: Sequence[Judged], releases: Sequence[str]) -> LedgerNote:
    def on(found: Iterable[Judged]) -> tuple[str, ...]:
        seen = {each.release for each in found}
        return tuple(each for each in releases if each in seen)

    shown = [each for each in row if each.shows(entry)]
    others = [each for each in row if not each.shows(entry)]
    package, ranges = _ranges(entry, shown, others)
    holds = on(shown)
    passes = on(each for each in others if each.finding.outcome.holds)
    differs = on(each for each in others if not each.finding.outcome.holds)
    trials = [each.trial for each in row]
    variants = tuple(dict.fromkeys(trial.variant.name for trial in trials))
    seen = (
        ("holds on", holds),
        ("passes on", passes),
        ("fails in another way on", differs),
    )
    spread = ", ".join(f"{words} {_span(found, releases)}" for words, found in seen if found)
    listed = " and ".join(f"{name} {text}" for name, text in entry.toolchain.items())
    sentence = f"known defect of {', '.join(variants)} {spread}; listed for {listed or 'all'}"
    if ranges == ("",):
        sentence += "; remove its toolchain"
    elif ranges:
        written = " or ".join(f"{{{package!r}: {each!r}}}" for each in ranges)
        sentence += f"; write toolchain={written}"
    elif not holds:
        sentence += "; none of these releases shows it"
    return LedgerNote(
        suite=trials[0].workload.suite,
        workloads=tuple(dict.fromkeys(trial.workload.name for trial in trials)),
        variants=variants,
        claims=tuple(dict.fromkeys(trial.check.claim.name for trial in trials)),
        targets=tuple(dict.fromkeys(trial.target for trial in trials)),
        upstream=entry.upstream.link,
        listed=dict(entry.toolchain),
        holds=holds,
        passes=passes,
        differs=differs,
        package=package,
        ranges=ranges,
        sentence=sentence,
    )


def _span(found: Sequence[str], releases: Sequence[str]) -> str:
    """``0.8.0–0.9.2, 0.11.0``: neighbours among the releases are joined."""
    known = enumerate(releases)
    runs = groupby(known, key=lambda place: place[1] in found)
    parts = []
    for is_found, run in runs:
        names = [name for _, name in run]
        if is_found:
            parts.append(names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}")
    return ", ".join(parts)


def _ranges(
    entry: KnownDefect, shown: Sequence[Judged], others: Sequence[Judged]
) -> tuple[str, tuple[str, ...]]:
    """The package whose versions separate the two, and its ranges: a specifier for each run.

    The package is the first that the entry names, or the compiler's if it names none. If that
    package does not separate them, it is jax. Without a package that does, there are no ranges.
    """
    target = (*shown, *others)[0].trial.target
    compiler = "libtpu" if target.startswith("tpu") else "jaxlib"
    for package in (next(iter(entry.toolchain), compiler), "jax"):
        inside, outside = (
            {Version(each.versions[package]) for each in side if package in each.versions}
            for side in (shown, others)
        )
        if inside and not inside & outside:
            listed = SpecifierSet(entry.toolchain.get(package, ""))
            return package, tuple(_specifiers(inside, outside, listed))
    return package, ()


def _specifiers(inside: set[Version], outside: set[Version], listed: SpecifierSet) -> Iterator[str]:
    """A range for each run of versions inside; a listed bound stays if no version denies it."""
    runs = groupby(sorted(inside | outside), key=inside.__contains__)
    found = [(is_inside, list(run)) for is_inside, run in runs]
    for number, (is_inside, run) in enumerate(found):
        if not is_inside:
            continue
        bounds = []
        if number:
            bounds.append(_bound(">=", found[number - 1][1][-1], run[0], listed) or f">={run[0]}")
        if number + 1 < len(found):
            after = found[number + 1][1][0]
            bounds.append(_bound("<", run[-1], after, listed) or f"<{after}")
        yield ",".join(bounds)


def _bound(operator: str, before: Version, at_most: Version, listed: SpecifierSet) -> str:
    """A listed bound above ``before`` and not above ``at_most``; empty if there is none."""
    bounds = (each for each in listed if each.operator == operator)
    return next((str(b) for b in bounds if before < Version(b.version) <= at_most), "")
