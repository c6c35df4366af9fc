"""Since when a verdict fails: the last run in which the claim held, and what changed since."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Final, NamedTuple

from assay.model.history import Sample, SeriesName, Trend
from assay.model.verdict import USUAL, Invocation, Record
from assay.report.labels import amount, plural

_COMMIT: Final = 12  # characters
_DIRTY: Final = "-dirty"
_ON_TIMES: Final = "*time*"
"""Claims whose number depends on the machine too."""


class Background(NamedTuple):
    """What explains a verdict, apart from its record: its run, and the series of a history."""

    records: Sequence[Record] = ()
    command: Sequence[str] = USUAL.command
    commit: str = ""
    trends: Mapping[SeriesName, Trend] = {}

    @classmethod
    def of(
        cls, records: Sequence[Record], invocation: Invocation, history: Iterable[Trend]
    ) -> "Background":
        """The background of the verdicts of a run."""
        commit = invocation.environment.get("commit", "")
        return cls(records, invocation.command, commit, {each.name: each for each in history})

    def turn(self, record: Record) -> tuple[Sample, Sample] | None:
        """The last run in which the claim held, and the first that failed since; None if none."""
        trend = self.trends.get(SeriesName.of(record))
        samples = trend.samples if trend else ()
        runs = [each.run for each in samples]
        until = runs.index(record.run) if record.run in runs else len(runs)
        good = max((at for at in range(until) if samples[at].verdict.holds), default=None)
        if good is None:
            return None
        failed = (each for each in samples[good + 1 : until] if each.verdict.fails)
        this = samples[good]._replace(
            run=record.run, toolchain=record.toolchain, commit=self.commit
        )
        return samples[good], next(failed, this)

    def was(self, record: Record) -> str:
        """The number of the last good run, as ``, was 0 B``; empty if none is known."""
        turn = self.turn(record) if record.verdict.fails else None
        number = turn[0].measured if turn else None
        return "" if number is None else f", was {amount(number, record.unit)}"

    def since(self, record: Record) -> str:
        """The run that failed first, the last good one, and what changed between them.

        Without a good run, what is known of the earlier ones. If the verdict does not fail, how the
        baseline's toolchain differs.
        """
        if not record.verdict.fails:
            return _of_baseline(record)
        if turn := self.turn(record):
            good, bad = turn
            first = "this run" if bad.run == record.run else f"run {bad.run}"
            when = f"{good.at:%Y-%m-%d %H:%M} UTC"
            at = f", commit {good.commit[:_COMMIT]}" if good.commit else ""
            return f"{first}; last good run: {good.run} ({when}{at}); {_changed(record, *turn)}"
        trend = self.trends.get(SeriesName.of(record))
        samples = trend.samples if trend else ()
        earlier = tuple(takewhile(lambda each: each.run != record.run, samples))
        known = "no earlier run is known; add --assay-history=default"
        if self.trends:
            known = "the history holds no earlier run of it"
        if earlier:
            count = plural(len(earlier), "earlier run")
            failed = all(each.verdict.fails for each in earlier)
            never = f"it failed in all {count}" if failed else f"it passed in none of {count}"
            known = f"{never}, from {earlier[0].run} on"
        return "; ".join(filter(None, (_of_baseline(record), known)))

    def diff(self, record: Record) -> str:
        """The command that shows what changed in the sources since the last good run, or none."""
        turn = self.turn(record) if record.verdict.fails else None
        if turn is None or not all(each.commit for each in turn):
            return ""
        good, bad = (each.commit.removesuffix(_DIRTY)[:_COMMIT] for each in turn)
        if turn[1].commit.endswith(_DIRTY):
            return f"git diff {good}"
        return f"git diff {good} {bad}" if good != bad else ""

    def blames_program(self, record: Record) -> bool:
        """Whether the sources changed since the last good run, and nothing else that is known."""
        turn = self.turn(record)
        if turn is None or not self.diff(record) or fnmatchcase(record.claim, _ON_TIMES):
            return False
        good, bad = (each.toolchain for each in turn)
        return bool(good and bad) and not versions_changed(good, bad)


def _changed(record: Record, good: Sample, bad: Sample) -> str:
    """Whether the program or the toolchain changed, as far as the runs tell."""
    commits = [each.commit for each in (good, bad)]
    is_known = all(commits)
    is_same = is_known and len(set(commits)) == 1 and not commits[0].endswith(_DIRTY)
    what = "program or the machine" if fnmatchcase(record.claim, _ON_TIMES) else "program"
    if not good.toolchain or not bad.toolchain:
        return "its toolchain is unknown"
    if changed := versions_changed(good.toolchain, bad.toolchain):
        if is_same:
            return f"the toolchain changed: {changed}; same commit"
        also = f"the {what} changed too" if is_known else f"whether the {what} did is not known"
        return f"the toolchain changed: {changed}; {also}"
    if is_same:
        return "same commit and toolchain: the measurement varies"
    return f"same toolchain, so the {what} changed"


def _of_baseline(record: Record) -> str:
    """How the baseline's toolchain differs; empty without a baseline, or if the number is equal."""
    if record.baseline is None or record.measured in (None, record.baseline.value):
        return ""
    if changed := versions_changed(record.baseline.toolchain, record.toolchain):
        return f"the baseline is of another toolchain: {changed}"
    return "the program changed, not the compiler: the baseline is of this same toolchain"


def versions_changed(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Each package of the toolchain that differs, with both versions."""
    return ", ".join(
        f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )
