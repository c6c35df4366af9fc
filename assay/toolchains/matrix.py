"""A matrix: the checks of suites on several releases, each program compiled once per release."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Final

from packaging.version import InvalidVersion, Version

from assay.judge.case import judge_negative_control, judge_variant, vouched
from assay.judge.ledger import Judged, check_ranges, with_advice
from assay.model.blame import WrongValue
from assay.model.claim import Case, Trial, record_of
from assay.model.evidence import Evidence, Seconds
from assay.model.matrix import Cell, Matrix, MatrixProgress
from assay.model.suggestion import wanted_one_of
from assay.model.target import Unavailable
from assay.model.verdict import Finding
from assay.model.workload import Workload
from assay.targets import resolve
from assay.toolchains.environments import Environment
from assay.toolchains.probes import Probed, Prober, Subject, Wanted, made_for
from assay.toolchains.releases import COMPONENTS, Release, versions

_MOST_AT_ONCE: Final = 2
"""Each probe is a compiler, which uses several cores and gigabytes by itself."""
_COMPONENTS: Final = tuple(each for each in COMPONENTS if each != "torch_xla")
_DROPS_PLACEMENT: Final = Unavailable(
    reason="the program moves data to host memory, which this release drops when it lowers for a "
    "device that is not present",
    remedy="use jax 0.8.2 or newer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The module from which a workload is imported, and the folders that lead to it."""

    module: str
    search_path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixQuestion:
    """The verdicts of these trials on releases of the component.

    ``sources`` are keyed by suite and workload. ``jax`` is the jax that another component is
    installed with, ``also`` are the packages that the suites import. ``at_once`` programs are
    compiled at a time, by the ``executor`` if there is one.
    """

    trials: Sequence[Trial]
    sources: Mapping[tuple[str, str], Source]
    releases: Sequence[str]
    component: str = "jax"
    jax: str = ""
    also: tuple[str, ...] = ()
    python: str = ""
    timeout_seconds: float = 600.0
    executor: Executor | None = None
    at_once: int = min(_MOST_AT_ONCE, os.cpu_count() or 1)


Watch = Callable[[MatrixProgress], None]
Program = tuple[str, str, str, str]
"""Suite, workload, variant and target."""


def measure(question: MatrixQuestion, watch: Watch) -> Matrix:
    """Compile each program on each release, and judge all claims on compiled programs.

    Raises:
        WrongValue: a release is not a released version, or no check can be judged.
        CannotMake: the releases cannot be listed, or one does not exist.
        RerunError: a probe failed, which is a fault of Assay.
    """
    releases = _checked(question)
    shown = [trial for trial in question.trials if is_shown(trial)]
    if not shown:
        raise WrongValue(
            "got no check that a compiled program alone can answer, wanted one; see docs/matrix.md"
        )
    trials = {each.key: each for trial in shown for each in (trial, *trial.controls)}
    left_out = [each for each in question.trials if not is_shown(each) and not each.must_fail]
    measured = _Measured(question=question, releases=releases, watch=watch)
    measured.probe_all(list(trials.values()))
    judged = [
        each for release in releases for each in measured.judge(release, list(trials.values()))
    ]
    notes = check_ranges(judged)
    return Matrix(
        component=question.component,
        releases=tuple(releases),
        cells=tuple(map(_cell, with_advice(judged, notes))),
        notes=notes,
        not_shown=dict(sorted(Counter(each.check.claim.name for each in left_out).items())),
    )


def is_shown(trial: Trial) -> bool:
    """Whether a matrix has cells for the trial: its claim judges a program that jax compiles."""
    return trial.check.claim.judges_compiled and trial.workload.framework == "jax"


def _checked(question: MatrixQuestion) -> list[str]:
    """The releases, oldest first; raises for one that does not exist."""
    if question.component not in _COMPONENTS:
        raise WrongValue(
            f"got component {question.component!r}, "
            f"{wanted_one_of(question.component, _COMPONENTS)}"
        )
    try:
        asked = sorted(dict.fromkeys(question.releases), key=Version)
    except InvalidVersion as error:
        raise WrongValue(f"got {error}, wanted released versions such as 0.10.2") from None
    if not asked:
        raise WrongValue("got no release, wanted one or more; write --release 0.10.2")
    known = {Version(each): each for each in versions(question.component, asked[0], asked[-1])}
    unknown = [each for each in asked if Version(each) not in known]
    if unknown:
        near = ", ".join(known.values())
        raise WrongValue(f"got {question.component} {unknown[0]!r}, wanted one of {near}")
    return [known[Version(each)] for each in asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The evidence of each program on each release."""

    question: MatrixQuestion
    releases: Sequence[str]
    watch: Watch
    _evidence: dict[tuple[Program, str], Evidence] = field(default_factory=dict)

    def probe_all(self, trials: Sequence[Trial]) -> None:
        """Measure every program that the trials judge or compare with."""
        programs: dict[Program, tuple[Workload, str]] = {}
        for trial in trials:
            workload, names = trial.workload, trial.check.claim.needs(trial.variant)
            for name in (trial.variant.name, *names):
                programs.setdefault(workload.key(name, trial.target), (workload, name))
        targets = dict.fromkeys(target for *_, target in programs)
        places = {
            (each, target): self._environment(each, target)
            for each in self.releases
            for target in targets
        }
        tasks = [(program, each) for each in self.releases for program in programs]
        start, new = time.perf_counter(), 0
        with ThreadPoolExecutor(self.question.at_once) as pool:
            running = {
                pool.submit(self._probe, program, *places[release, program[-1]]): (program, release)
                for program, release in tasks
            }
            try:
                for done, future in enumerate(as_completed(running), 1):
                    program, release = running[future]
                    self._evidence[program, release] = future.result()
                    new += not future.result().cached
                    left = (time.perf_counter() - start) / new * (len(tasks) - done) if new else 0.0
                    self.watch(
                        MatrixProgress(
                            doing=f"{self.question.component} {release}: {_words(program)}",
                            done=done,
                            total=len(tasks),
                            seconds_left=left,
                        )
                    )
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def judge(self, release: str, trials: Sequence[Trial]) -> Iterator[Judged]:
        """The trials' findings on a release, as a run judges them."""
        controls: dict[tuple[str, ...], Finding] = {}
        selected = {each.key for each in trials}

        def control(trial: Trial) -> Finding:
            if trial.key not in controls:
                variants = (
                    replace(trial, variant=each, must_fail=False) for each in trial.variants
                )
                # Of a selection, only these were measured.
                mine = (each for each in variants if each.key in selected)
                cases = (self._case(each, release) for each in mine)
                case = self._case(trial, release)
                controls[trial.key] = judge_negative_control(trial.check.claim, case, cases)
            return controls[trial.key]

        for trial in trials:
            case, entry = self._case(trial, release), None
            if trial.must_fail:
                finding = control(trial)
            else:
                finding, entry = judge_variant(trial.check.claim, case)
                if finding.outcome.holds:
                    named = ((each.variant.name, control(each)) for each in trial.controls)
                    finding = vouched(finding, named)
            yield Judged(release=release, trial=trial, case=case, finding=finding, entry=entry)

    def _environment(
        self, release: str, target: str
    ) -> tuple[Release, Environment | Unavailable | None]:
        """The release, and its environment if the programs are compiled on this machine."""
        asked = self.question
        self.watch(MatrixProgress(doing=f"{asked.component} {release} for {target}: installing"))
        found = Release(
            component=asked.component,
            version=release,
            platform=resolve(target).platform,
            jax=asked.jax,
            also=asked.also,
        )
        return found, None if asked.executor else made_for(found, asked.python)

    def _probe(
        self, program: Program, release: Release, made: Environment | Unavailable | None
    ) -> Evidence:
        suite, workload, variant, target = program
        source = self.question.sources[suite, workload]
        prober = Prober(
            subject=Subject(
                text=f"{source.module}:{workload}/{variant}",
                workload=(source.module, workload, variant),
                search_path=source.search_path,
            ),
            target=resolve(target),
            wanted=Wanted.COMPILE,
            timeout_seconds=self.question.timeout_seconds,
            python=self.question.python,
            executor=self.question.executor,
        )
        start = time.perf_counter()
        found = evidence_of(program, prober.probe(release, made))
        return replace(found, seconds=Seconds(compile=time.perf_counter() - start))

    def _case(self, trial: Trial, release: str) -> Case:
        workload = trial.workload

        def evidence(name: str) -> Evidence:
            return self._evidence[workload.key(name, trial.target), release]

        return Case(
            workload=workload,
            variant=trial.variant,
            evidence=evidence(trial.variant.name),
            others={name: evidence(name) for name in trial.check.claim.needs(trial.variant)},
        )


def evidence_of(program: Program, probed: Probed) -> Evidence:
    """What a release made of a suite's program, as claims judge it.

    It is unsupported if the release drops the program's placement in host memory.
    """
    suite, workload, variant, target = program
    found = replace(probed.evidence, suite=suite, workload=workload, variant=variant, target=target)
    if probed.drops_placement and found.failure is None:
        return replace(found, unavailable=_DROPS_PLACEMENT)
    return found


def _words(program: Program) -> str:
    _, workload, variant, target = program
    return f"{workload}/{variant}@{target}"


def _cell(judged: Judged) -> Cell:
    evidence, entry = judged.case.evidence, judged.entry
    record = record_of(
        "matrix",
        judged.trial,
        judged.finding,
        seconds=evidence.seconds.compile,
        seen=(evidence, *judged.case.others.values()),
        defect=entry,
    )
    return Cell(release=judged.release, record=record)
