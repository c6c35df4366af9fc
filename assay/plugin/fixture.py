"""The ``assay`` fixture: programs compiled in anyone's plain test, with records and baselines."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from assay.api import Compiled, CompileError, compiled, title_of, workload_of
from assay.judge.baseline import against_baseline
from assay.judge.case import at_fault
from assay.model.blame import WrongValue, encodable, legible, suite_of
from assay.model.claim import Case, Check, MeasurementMissing, Trial, record_of
from assay.model.evidence import Evidence
from assay.model.target import TargetUnavailable
from assay.model.units import Quantity, Unit, format_quantity
from assay.model.verdict import Finding, Outcome, Record
from assay.model.workload import Variant
from assay.plugin import TARGET
from assay.plugin.items import VERDICTS
from assay.plugin.session import Session
from assay.targets import resolve

_MESSAGE_CHARACTERS = 400

_SAY_WHY = (AssertionError, CompileError, MeasurementMissing)  # Their own text is the reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserted:
    """The assertions of one plain test on one program: the test passed or failed."""

    name: str = "assertions"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Never called: the test itself decides."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWorse:
    """A number that a test measured is no larger than the one stored under the test's id."""

    measured: int | float
    name: str
    tolerance: float
    uses_baseline: bool = True

    @property
    def unit(self) -> Unit:
        """Bytes if the name says so."""
        return Unit.BYTES if self.name.endswith("bytes") else Unit.COUNT

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """The measured number against the stored one."""
        measured, versions = Quantity(self.measured, self.unit), case.evidence.toolchain.identity
        return against_baseline(measured, case.baseline, versions, self.tolerance, case.earlier)


class Baseline:
    """A stored number. ``measured <= baseline`` judges it, and stores it where that is asked for.

    On the toolchain that it was stored on, the number must not grow at all; on another toolchain,
    by no more than ``tolerance``, a share.
    """

    def __init__(self, name: str, judge: Callable[[int | float], Record]) -> None:
        self.name = name
        self.record: Record | None = None
        self._judge = judge

    def __ge__(self, measured: object) -> bool:
        """Whether ``measured <= self``."""
        if isinstance(measured, bool) or not isinstance(measured, int | float):
            return NotImplemented
        self.record = self._judge(measured)
        return not self.record.verdict.fails and self.record.verdict.judged

    def __repr__(self) -> str:
        limit = self.record.limit if self.record else None
        if self.record is None or limit is None:
            return f"Baseline({self.name!r})"
        return f"Baseline({self.name!r}: {format_quantity(limit, self.record.unit)})"


class Assay:
    """Compiles programs for one test and compares their numbers with the stored ones."""

    KEY: pytest.StashKey["Assay"] = pytest.StashKey()

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._node = request.node
        self._session = request.config.stash[Session.KEY]
        self._trials: list[Trial] = []
        self._seen: dict[str, Evidence] = {}
        self._programs: Counter[tuple[str, str]] = Counter()
        self._compared: set[tuple[str, str]] = set()
        self._compiled: list[Compiled] = []
        self._node.stash[Assay.KEY] = self

    def compile(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        target: str = "",
        in_shardings: Any = None,
        out_shardings: Any = None,
        donate_argnums: int | Sequence[int] = (),
        static_argnums: int | Sequence[int] = (),
        context: Callable[[], Any] | None = None,
    ) -> Compiled:
        """Compile as ``assay.compile`` does; the test's result is recorded for the program.

        Without ``target``, the one on the command line, else the CPU. A target that cannot be used
        here skips the test, as ``unsupported``.

        Raises:
            CompileError, TargetError: as ``assay.compile`` does.
        """
        __tracebackhide__ = True
        name = str(resolve(target or self._only_target()).name)
        file, test = self._place()
        program = (title_of(function), name)
        self._programs[program] += 1
        number = self._programs[program]
        workload = workload_of(
            function,
            arguments,
            suite=suite_of(file),
            name=test + (f"-{number}" if number > 1 else ""),
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            donate_argnums=donate_argnums,
            static_argnums=static_argnums,
            context=context,
        )
        check = Check(claim=Asserted(), workloads=(workload,))
        (variant,) = workload.variants
        trial = Trial(check=check, workload=workload, variant=variant, target=name)
        self._trials.append(trial)
        seen = self._session.observe_alone(workload, variant, name)
        self._seen[str(trial)] = seen
        try:
            self._compiled.append(compiled(seen))
            return self._compiled[-1]
        except TargetUnavailable as absent:
            why = absent.availability
            self._conclude(Outcome.UNSUPPORTED, f"{why.reason}; {why.remedy}")
            pytest.skip(f"unsupported: {absent}")

    def baseline(self, name: str, *, tolerance: float = 0.01) -> Baseline:
        """The number stored under this test's id and ``name``, for the program compiled last.

        Compare with ``measured <= assay.baseline(name)``. A number that is not stored fails the
        test; ``--assay-update-baselines=new`` stores it.

        Raises:
            WrongValue: nothing was compiled before, or the name was used before.
        """
        __tracebackhide__ = True
        if not self._trials:
            raise WrongValue(
                f"got assay.baseline({name!r}) before assay.compile, wanted a program first; "
                "the baseline is stored for its target and toolchain"
            )
        trial = self._trials[-1]
        place = (str(trial), name)
        if place in self._compared:
            raise WrongValue(
                f"got assay.baseline({name!r}) twice for {trial}, wanted a name for each number"
            )
        self._compared.add(place)

        def judge(measured: float) -> Record:
            claim = NoWorse(measured=measured, name=legible(name), tolerance=tolerance)
            check = Check(claim=claim, workloads=(trial.workload,))
            record = self._session.judge(
                Trial(
                    check=check, workload=trial.workload, variant=trial.variant, target=trial.target
                )
            )
            self._node.stash.setdefault(VERDICTS, []).append(record)
            return record

        return Baseline(name, judge)

    def conclude(self, report: pytest.TestReport, failure: BaseException | None) -> None:
        """Record how the test ended, once for each program that it compiled.

        A test that passes although a program of it was refused, and never asked whether it fits,
        fails: nothing of that program was measured.
        """
        unread = next(
            (each for each in self._compiled if each.refused and not each.fits_was_read), None
        )
        if report.passed and report.when == "call" and unread is not None:
            report.outcome = "failed"
            report.longrepr = (
                f"{unread!r} is refused, and the test does not assert that it fits: "
                f"{unread.inspection.error}"
            )
            self._conclude(Outcome.FAILED, report.longrepr)
        elif hasattr(report, "wasxfail"):
            known = replace_failing(self._node.stash.get(VERDICTS, []), report.wasxfail)
            self._node.stash[VERDICTS] = known
            self._conclude(Outcome.KNOWN_DEFECT, f"xfail: {report.wasxfail}")
        elif report.skipped:
            return
        elif failure is None:
            passed = report.passed  # A strict xfail that passes is a failure without an exception.
            self._conclude(
                Outcome.PASSED if passed else Outcome.FAILED,
                "the program compiles, and the test passed"
                if passed
                else "the test passed, and is marked xfail",
            )
        elif isinstance(failure, _SAY_WHY) or not isinstance(failure, Exception):  # pytest.fail
            self._conclude(Outcome.FAILED, _first_line(failure))
        else:
            found = at_fault(failure, "the test")
            self._conclude(found.outcome, found.reason)

    def _place(self) -> tuple[str, str]:
        """The test's file, and its whole id there, less the target that its records name anyway.

        So no test is judged by what another one compiled.
        """
        file, _, test = self._node.nodeid.partition("::")
        given = getattr(getattr(self._node, "callspec", None), "params", {})
        if target := given.get(TARGET):
            head, bracket, parameters = test.partition("[")
            parameters = parameters[:-1].replace(target, "", 1).strip("-")
            test = head + (f"{bracket}{parameters}]" if parameters else "")
        return file, legible(test.replace("::", "."))

    def _conclude(self, outcome: Outcome, reason: str) -> None:
        passed = outcome is Outcome.PASSED
        number = {Outcome.PASSED: 0, Outcome.FAILED: 1}.get(outcome)
        for trial in self._trials:
            finding = Finding(
                outcome=outcome,
                measured=number,
                limit=None if number is None else 0,
                reason=reason,
                advice="" if passed else "see the test's own output",
            )
            seen = self._seen[str(trial)]
            record = record_of(self._session.name, trial, finding, seconds=0.0, seen=(seen,))
            self._node.stash.setdefault(VERDICTS, []).append(record)
        self._trials.clear()

    def _only_target(self) -> str:
        __tracebackhide__ = True
        settings = self._session.settings
        if not settings.named:
            return "cpu"
        if len(settings.targets) > 1:
            raise WrongValue(
                f"got {len(settings.targets)} targets on the command line, wanted one for "
                "assay.compile without target=; take the fixture assay_target, and pass it on"
            )
        return settings.targets[0]


def replace_failing(records: list[Record], reason: str) -> list[Record]:
    """The records of a test that is marked xfail: what fails in it is a known defect."""
    return [
        replace(each, verdict=Outcome.KNOWN_DEFECT, reason=f"xfail: {reason}: {each.reason}")
        if each.verdict.fails
        else each
        for each in records
    ]


def _first_line(failure: BaseException) -> str:
    text = str(failure).strip() or type(failure).__name__
    return encodable(text.splitlines()[0])[:_MESSAGE_CHARACTERS]


def explain_comparison(op: str, left: object, right: object) -> list[str] | None:
    """Pytest's lines for ``measured <= assay.baseline(name)`` that failed."""
    if op != "<=" or not isinstance(right, Baseline) or right.record is None:
        return None
    record = right.record
    return [f"{left} <= {right!r}", record.reason, *([record.advice] if record.advice else [])]
