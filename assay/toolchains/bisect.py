"""Bisection: which release of a component changed a number of a program."""

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from packaging.version import InvalidVersion, Version

from assay.judge.case import judge
from assay.model.bisection import Attribution, Bisection, Point, Step
from assay.model.blame import WrongValue
from assay.model.claim import Case, Trial
from assay.model.inspection import Inspection, Means
from assay.model.rerun import Pair, Side
from assay.model.suggestion import wanted_one_of
from assay.model.timing import Change
from assay.model.units import Unit, parse_bytes
from assay.model.verdict import Outcome
from assay.stats.processes import ratio_of_processes
from assay.store.shipped import SUITES, home
from assay.targets import Target
from assay.toolchains.attribution import Pins, attribute, conflict, mixed
from assay.toolchains.environments import CannotMake, WrongVersions
from assay.toolchains.matrix import evidence_of
from assay.toolchains.metrics import CLAIM, METRICS, TIME, Metric, copied_bytes
from assay.toolchains.pairs import Halted, RerunError, take_pair, take_pairs, turns
from assay.toolchains.probes import Probed, Prober, Subject, Wanted
from assay.toolchains.releases import COMPONENTS, Release, versions
from assay.toolchains.search import Search, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which release of ``component`` between ``good`` and ``bad`` changed ``metric``.

    ``jax`` is the jax that another component is installed with, ``also`` are the packages that the
    program imports. A ``threshold`` separates good from bad numbers; without one, the largest step
    is sought. For the metric ``claim``, ``trial`` holds the claim. ``loop_copies`` counts
    arrays larger than ``above`` bytes. ``scan`` measures every release; ``attribute`` asks which
    package of jax made the step. ``timeout_seconds`` limits one measurement, ``timing_seconds`` one
    comparison of times. An ``executor`` compiles the programs, also on other machines; times are
    taken here.
    """

    subject: Subject
    target: Target
    metric: str
    good: str
    bad: str
    component: str = "jax"
    jax: str = ""
    also: tuple[str, ...] = ()
    python: str = ""
    threshold: float | None = None
    trial: Trial | None = None
    above: int = 0
    scan: bool = False
    attribute: bool = False
    timeout_seconds: float = 600.0
    timing_seconds: float = 120.0
    executor: Executor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A bisection, and the program as each measured release compiled or ran it."""

    bisection: Bisection
    probed: Mapping[str, Probed]
    prober: Prober

    @property
    def sides(self) -> Mapping[str, Probed]:
        """The program on the ``good`` and the ``bad`` side of the largest step, or nothing."""
        if not self.bisection.steps:
            return {}
        step = self.bisection.steps[0]
        is_fixed = Version(self.bisection.good) > Version(self.bisection.bad)
        names = ("bad", "good") if is_fixed else ("good", "bad")
        versions = (step.before.version, step.after.version)
        if not self.probed.keys() >= set(versions):
            return {}
        return {name: self.probed[each] for name, each in zip(names, versions, strict=True)}

    @property
    def inspections(self) -> tuple[Inspection, ...]:
        """Both sides as ``assay inspect`` reads a program."""
        found = self.bisection
        return tuple(
            Inspection(
                subject=f"{found.subject} with {found.component} {each.release.version}",
                means=Means.COMPILED,
                evidence=each.evidence,
                device=self.prober.target.model,
            )
            for each in self.sides.values()
        )


def find(question: Question, watch: Watch) -> Regression:
    """Measure releases until the step is found.

    Raises:
        WrongValue: no metric, component, target or pair of releases can answer the question.
        CannotMake, RerunError: releases cannot be listed or do not exist; Assay failed at one.
    """
    metric = _metric(question)
    try:
        first, last = sorted((question.good, question.bad), key=Version)
    except InvalidVersion as error:
        raise WrongValue(f"got {error}, wanted released versions such as 0.10.2") from None
    known = versions(question.component, first, last)
    if len(known) < 2:  # noqa: PLR2004  (two ends)
        raise WrongValue(f"got {first} as the good and the bad release, wanted two")
    is_fixed = Version(question.good) > Version(question.bad)
    bad, good = (known[0], known[-1]) if is_fixed else (known[-1], known[0])
    any_step = question.threshold is not None or metric.is_flag
    prober = Prober(
        subject=question.subject,
        target=question.target,
        wanted=metric.wanted,
        timeout_seconds=question.timeout_seconds,
        python=question.python,
        executor=question.executor,
    )
    numbers = _Numbers(
        question=question, metric=metric, prober=prober, good=_release(question, good)
    )
    search = Search(
        versions=known,
        measure=lambda version: numbers.point(_release(question, version)),
        same=metric.same,
        threshold=question.threshold,
        start=known.index(good if any_step or metric.floor is None else bad),
        any_step=any_step,
        floor=metric.floor,
        scan=question.scan,
        watch=watch,
    )
    points, steps = search.run()
    reason = _why_no_answer(points, ends=(known[0], known[-1]))
    bisection = Bisection(
        subject=question.subject.text,
        target=str(question.target.name),
        component=question.component,
        metric=f"claim {question.trial.claim_name}" if question.trial else metric.name,
        unit=metric.unit,
        good=question.good,
        bad=question.bad,
        versions=known,
        points=points,
        steps=() if reason else steps,
        reason=reason,
        attribution=numbers.attribution(steps[0], watch) if question.attribute and steps else None,
    )
    probed = {
        release.version: each for release, each in numbers.probed.items() if not release.older
    }
    return Regression(bisection=bisection, probed=probed, prober=prober)


def _why_no_answer(points: Sequence[Point], ends: tuple[str, str]) -> str:
    """The reason why an end has no number; empty if each measured end has one."""
    missing = (each for each in points if each.version in ends and each.number is None)
    return next((f"{end.version} gives no number: {end.why}" for end in missing), "")


def _release(question: Question, version: str) -> Release:
    return Release(
        component=question.component,
        version=version,
        platform=question.target.platform,
        jax=question.jax,
        also=question.also,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The metric on releases; ``probed`` are those that were compiled or run so far."""

    question: Question
    metric: Metric
    prober: Prober
    good: Release
    probed: dict[Release, Probed] = field(default_factory=dict)

    def point(self, release: Release) -> Point:
        """The release's number, or why it has none."""
        if self.question.metric == TIME:
            return self._timed(release)
        if self.question.trial is not None:
            return self._claimed(release, self.question.trial)
        return self.metric.of_release(self._probed(release), lambda: self._probed(self.good))

    def attribution(self, step: Step, watch: Watch) -> Attribution:
        """Which package made the step; mixtures of both releases are measured for that."""
        before, after = (
            _release(self.question, each.version) for each in (step.before, step.after)
        )
        old, new = (each.environment(self.question.python) for each in (before, after))

        def measure(pins: Pins) -> Point:
            name = mixed(after, pins)
            watch(name, None, None)
            point = Point(version=name, why=conflict(new, pins))
            if not point.why:
                found = self.point(replace(after, older=tuple(pins.items())))
                point = replace(found, version=name)
            watch(name, point, None)
            return point

        return attribute(step, old.versions, new.versions, after.platform, measure)

    def _probed(self, release: Release) -> Probed:
        if release not in self.probed:
            self.probed[release] = self.prober.probe(release)
        return self.probed[release]

    def _claimed(self, release: Release, trial: Trial) -> Point:
        """1 if the claim fails on the variant, 0 if it passes, else why neither."""
        workload, claim = trial.workload, trial.check.claim
        evidence = {
            name: evidence_of(workload.key(name, trial.target), self._variant(release, name))
            for name in (trial.variant.name, *claim.needs(trial.variant))
        }
        case = Case(
            workload=workload,
            variant=trial.variant,
            evidence=evidence[trial.variant.name],
            others=evidence,
        )
        finding = judge(claim, case)
        if finding.outcome is Outcome.ERROR:
            raise RerunError(finding.reason)
        if not finding.outcome.judged:
            return Point(version=release.version, why=f"{finding.outcome.value}: {finding.reason}")
        number = float(finding.outcome is Outcome.FAILED)
        return Point(version=release.version, number=number)

    def _variant(self, release: Release, name: str) -> Probed:
        """The release's probe of the subject, or of another variant of its workload."""
        subject = self.prober.subject
        assert subject.workload is not None
        if name == subject.workload[2]:
            return self._probed(release)
        other = replace(subject, workload=(*subject.workload[:2], name))
        return replace(self.prober, subject=other).probe(release)

    def _timed(self, release: Release) -> Point:
        """The time over that on the good release; 1 if it is neither slower nor faster."""
        version, pairs = release.version, list[Pair]()
        if release == self.good:
            return Point(version=version, number=1.0)
        sides = {Side.OLD: self.good, Side.NEW: release}
        with tempfile.TemporaryDirectory(prefix="assay-timed-") as folder:

            def take(number: int, end: float) -> Pair:
                pairs.append(take_pair(launches, number, end))
                return pairs[-1]

            try:
                launches = {
                    side: self.prober.launch(
                        each.environment(self.question.python).interpreter, Path(folder), side
                    )
                    for side, each in sides.items()
                }
                take_pairs(take, most_seconds=self.question.timing_seconds)
            except Halted as halted:
                where = f"on the good release: {halted}" if halted.side is Side.OLD else str(halted)
                return Point(version=version, why=where)
            except (CannotMake, WrongVersions, RerunError) as missing:
                return Point(version=version, why=str(missing))
        found = ratio_of_processes([turns(pair) for pair in pairs])
        if found.change is Change.TOO_NOISY:
            return Point(version=version, why=f"too noisy to say: {found}")
        return Point(version=version, number=1.0 if found.change is Change.SAME else found.ratio)


def _metric(question: Question) -> Metric:
    if question.component not in COMPONENTS:
        raise WrongValue(
            f"got component {question.component!r}, {wanted_one_of(question.component, COMPONENTS)}"
        )
    if question.attribute and question.component != "jax":
        raise WrongValue(f"got --attribute with {question.component!r}, wanted --component jax")
    metric = METRICS.get(question.metric)
    if metric is None:
        raise WrongValue(
            f"got metric {question.metric!r}, {wanted_one_of(question.metric, METRICS)}"
        )
    if (question.metric == CLAIM) != (question.trial is not None):
        raise WrongValue(
            f"got metric {question.metric!r}, wanted --metric claim together with --claim NAME"
        )
    if metric.wanted in (Wanted.RUN, Wanted.TIME) and not question.target.executes:
        raise WrongValue(
            f"got metric {question.metric!r} on {question.target.name}, which runs nothing, wanted "
            "a live target; use --target cpu, or a metric of the compiled program"
        )
    if question.metric == "loop_copies":
        return replace(metric, of=partial(copied_bytes, question.above))
    return metric


def subject_of(text: str) -> Subject:
    """``FILE.py:FUNCTION``, or ``MODULE:WORKLOAD/VARIANT``.

    Raises:
        WrongValue: the text is neither, or there is no such file.
    """
    place, _, name = text.rpartition(":")
    if place.endswith(".py") and name:
        file = Path(place).resolve()
        if not file.is_file():
            raise WrongValue(f"got no file {place}, wanted FILE.py:FUNCTION; check the path")
        return Subject(text=text, file=file, function=name)
    workload, _, variant = name.partition("/")
    if not (place and workload and variant):
        raise WrongValue(f"got {text!r}, wanted FILE.py:FUNCTION or MODULE:WORKLOAD/VARIANT")
    here = Path.cwd()
    # Assay's own suites, also where there is no checkout.
    found = home(here) if place.partition(".")[0] == SUITES else None
    search_path = tuple(dict.fromkeys(map(str, (here, found or here))))
    return Subject(text=text, workload=(place, workload, variant), search_path=search_path)


def threshold_of(metric: str, text: str) -> float | None:
    """The threshold of a metric: bytes as ``"1MiB"``, other numbers as written; None for no text.

    Raises:
        WrongValue: the text is no number, or no size.
    """
    if not text:
        return None
    if metric in METRICS and METRICS[metric].unit is Unit.BYTES:
        return parse_bytes(text)
    try:
        return float(text)
    except ValueError:
        raise WrongValue(f"got the threshold {text!r}, wanted a number such as 1.5") from None
