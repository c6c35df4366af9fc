"""The ``assay`` fixture: compile programs in a plain test, with records and baselines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, NoReturn

import pytest

from assay.api import Compiled, CompileError, compiled, title_of, workload_of
from assay.judge.baseline import against_baseline
from assay.judge.case import TOO_SMALL, at_fault
from assay.model.blame import WrongValue, encodable, legible, suite_of
from assay.model.claim import Case, Check, Claim, MeasurementMissing, Trial, record_of
from assay.model.evidence import Evidence
from assay.model.inspection import describe
from assay.model.target import TargetUnavailable
from assay.model.units import Quantity, Unit, format_quantity
from assay.model.verdict import ASSERTIONS, Finding, Outcome, Record
from assay.plugin import TARGET
from assay.plugin.items import VERDICTS
from assay.plugin.session import Session
from assay.store import baselines
from assay.targets import resolve

_MESSAGE_CHARACTERS = 400
_WANTED = "wanted a comparison; do this: measured <= assay.baseline({!r})"
_EXPLAINED = (AssertionError, CompileError, MeasurementMissing)
"""Exceptions whose message is the reason of the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserted(Claim):
    """The assertions of a plain test on a program. The test itself judges them."""

    name: str = ASSERTIONS

    @property
    def unit(self) -> Unit:
        """Bytes if the name ends with ``bytes``, else a count."""
        return Unit.BYTES if self.name.endswith("bytes") else Unit.COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWorse(Asserted):
    """A number that a test measured is no larger than the number stored under the test's id."""

    measured: int | float
    tolerance: float
    uses_baseline: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        """The measured number against the stored one."""
        measured, seen = Quantity(self.measured, self.unit), case.evidence
        versions, device, earlier = seen.toolchain.identity, seen.device, case.earlier
        return against_baseline(measured, case.baseline, versions, self.tolerance, earlier, device)


class Baseline:
    """A stored number. ``measured <= baseline`` judges the measured number, or stores it.

    On the toolchain of the stored number, the measured number must not be larger. On another
    toolchain, it may be larger by ``tolerance``, a fraction.

    Any other comparison, and ``bool``, raises WrongValue: it would compare nothing, and pass.
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
        return self.record.verdict.judged and not self.record.verdict.fails

    def __le__(self, measured: object) -> bool:
        raise self._misuse(f"{measured} >= assay.baseline({self.name!r})")

    def __lt__(self, measured: object) -> bool:
        raise self._misuse(f"{measured} > assay.baseline({self.name!r})")

    def __gt__(self, measured: object) -> bool:
        raise self._misuse(f"{measured} < assay.baseline({self.name!r})")

    def __eq__(self, measured: object) -> bool:
        raise self._misuse(f"{measured} == assay.baseline({self.name!r})")

    def __ne__(self, measured: object) -> bool:
        raise self._misuse(f"{measured} != assay.baseline({self.name!r})")

    def __bool__(self) -> bool:
        raise self._misuse(f"assay.baseline({self.name!r}) for true or false")

    __hash__ = object.__hash__

    def _misuse(self, given: str) -> WrongValue:
        return WrongValue(f"got {given}, {_WANTED.format(self.name)}")

    def __repr__(self) -> str:
        limit = ""
        if self.record is not None and self.record.limit is not None:
            limit = f": {format_quantity(self.record.limit, self.record.unit)}"
        return f"Baseline({self.name!r}{limit})"


class Assay:
    """Compiles programs for one test and compares their numbers with the stored ones."""

    KEY: pytest.StashKey["Assay"] = pytest.StashKey()

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._node = request.node
        self._session = request.config.stash[Session.KEY]
        # A program that could not be observed has no evidence.
        self._programs: list[tuple[Trial, list[Evidence]]] = []
        self._compiled: list[Compiled] = []
        self._baselines: dict[tuple[str, str], Baseline] = {}
        self._compiles = False
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
        """Compile as ``assay.compile`` does, and record the test's result for the program.

        Without ``target``, for the command line's, else the CPU. If the target cannot be used here,
        or ``--assay-target`` names others, the test is skipped as ``unsupported``; if this machine
        has too little memory for it, as ``inconclusive``.

        Raises:
            CompileError, TargetError, WrongValue: see ``assay.compile``; also for several targets.
        """
        __tracebackhide__ = True
        self._compiles = True
        settings = self._session.settings
        if not target and settings.named and len(settings.targets) > 1:
            raise WrongValue(
                f"got {len(settings.targets)} targets on the command line, wanted one for "
                "assay.compile without target=; take the fixture assay_target, and pass it on"
            )
        name = str(resolve(target or (settings.targets[0] if settings.named else "cpu")).name)
        program = (title_of(function), name)
        earlier = [(each.variant.name, each.target) for each, _ in self._programs].count(program)
        file, test = self._place()
        workload = workload_of(
            function,
            arguments,
            suite=suite_of(file),
            name=test + (f"-{earlier + 1}" if earlier else ""),
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            donate_argnums=donate_argnums,
            static_argnums=static_argnums,
            context=context,
        )
        check = Check(claim=Asserted(), workloads=(workload,))
        (variant,) = workload.variants
        trial = Trial(check=check, workload=workload, variant=variant, target=name)
        seen: list[Evidence] = []
        self._programs.append((trial, seen))
        if settings.named and name not in settings.targets:
            named = ", ".join(settings.targets)
            self._skip(f"the test compiles for {name}, and --assay-target names {named}")
        seen.append(self._session.observe_alone(workload, variant, name))
        failure = seen[0].failure
        if failure is not None and failure.of_machine:
            self._skip(TOO_SMALL.format(describe(failure)), Outcome.INCONCLUSIVE)
        try:
            self._compiled.append(compiled(seen[0]))
        except TargetUnavailable as error:
            self._skip(f"{error.why.reason}; {error.why.remedy}")
        return self._compiled[-1]

    def _skip(self, reason: str, outcome: Outcome = Outcome.UNSUPPORTED) -> NoReturn:
        self._record(outcome, reason)
        pytest.skip(f"{outcome.value}: {reason}")

    def baseline(self, name: str, *, tolerance: float = 0.01) -> Baseline:
        """The number stored under this test's id and ``name``, for the program compiled last.

        Compare with ``measured <= assay.baseline(name)``. A number that is not stored fails the
        test; ``--assay-update-baselines=new`` stores it. A test that fails stores nothing. A test
        that compares nothing with its baseline fails.

        Raises:
            WrongValue: nothing was compiled before, or the name was used before.
        """
        __tracebackhide__ = True
        if not self._programs:
            raise WrongValue(
                f"got assay.baseline({name!r}) before assay.compile, wanted a program first; "
                "the baseline is stored for its target and toolchain"
            )
        trial, _ = self._programs[-1]
        if (str(trial), name) in self._baselines:
            raise WrongValue(
                f"got assay.baseline({name!r}) twice for {trial}, wanted a name for each number"
            )

        def judge(measured: float) -> Record:
            claim = NoWorse(measured=measured, name=legible(name), tolerance=tolerance)
            check = Check(claim=claim, workloads=(trial.workload,))
            record = self._session.judge_timed(replace(trial, check=check))[0]
            self._node.stash.setdefault(VERDICTS, []).append(record)
            return record

        return self._baselines.setdefault((str(trial), name), Baseline(name, judge))

    def conclude(self, report: pytest.TestReport, failure: BaseException | None) -> None:
        """Record the result of the test, once for each program that it compiled.

        A test also fails if it passes without having checked something that it asked for.
        """
        reason = next(self._unchecked(), "") if report.passed and report.when == "call" else ""
        if reason:
            report.outcome, report.longrepr = "failed", reason
            self._record(Outcome.FAILED, reason)
        elif hasattr(report, "wasxfail"):
            reason = f"xfail: {report.wasxfail}"
            self._node.stash[VERDICTS] = [
                replace(each, verdict=Outcome.KNOWN_DEFECT, reason=f"{reason}: {each.reason}")
                if each.verdict.fails
                else each
                for each in self._node.stash.get(VERDICTS, [])
            ]
            self._record(Outcome.KNOWN_DEFECT, reason)
        elif not report.skipped:
            self._record(*_result(failure, passed=report.passed))
        if report.failed or (report.skipped and hasattr(report, "wasxfail")):
            found = self._node.stash.get(VERDICTS, [])
            self._node.stash[VERDICTS] = [self._without_new_number(each) for each in found]

    def _unchecked(self) -> Iterator[str]:
        """What the test asked for, and did not check."""
        if not self._compiles:
            yield (
                "got a test with the fixture assay that compiles nothing, wanted a program; do "
                "this: call assay.compile(…), or leave the fixture out"
            )
        for each in self._compiled:
            # Nothing of a refused program was measured.
            if each.refused and not each.fits_was_read:
                error = each.inspection.error
                yield f"{each!r} is refused, and the test does not assert that it fits: {error}"
        for (_, name), baseline in self._baselines.items():
            if baseline.record is None:
                wanted = _WANTED.format(name)
                yield f"got assay.baseline({name!r}) without a comparison, {wanted}"

    def _without_new_number(self, record: Record) -> Record:
        """The record of a test that fails: the run does not store its number."""
        stored = baselines.load(self._session.settings.baselines, record.suite, record.target)
        known = stored.numbers((record.workload, record.variant, record.claim))
        if record.baseline is None or record.baseline in known:
            return record
        return replace(
            record,
            verdict=Outcome.INCONCLUSIVE,
            limit=None,
            baseline=None,
            reason="not stored, because the test failed",
            advice="fix the test, and run again with --assay-update-baselines",
        )

    def _place(self) -> tuple[str, str]:
        """The test's file, and its id there without the target, which its records name anyway."""
        file, _, test = self._node.nodeid.partition("::")
        parameters = getattr(getattr(self._node, "callspec", None), "params", {})
        if target := parameters.get(TARGET):
            head, bracket, values = test.partition("[")
            values = values[:-1].replace(target, "", 1).strip("-")
            test = head + (f"{bracket}{values}]" if values else "")
        return file, legible(test.replace("::", "."))

    def _record(self, outcome: Outcome, reason: str) -> None:
        number = {Outcome.PASSED: 0, Outcome.FAILED: 1}.get(outcome)
        finding = Finding(
            outcome=outcome,
            measured=number,
            limit=None if number is None else 0,
            reason=reason,
            advice="" if outcome is Outcome.PASSED else "see the test's own output",
        )
        for trial, seen in self._programs:
            seconds = sum(sum(astuple(each.seconds)) for each in seen)
            record = record_of(self._session.name, trial, finding, seconds=seconds, seen=seen)
            self._node.stash.setdefault(VERDICTS, []).append(record)
        self._programs.clear()


def _result(failure: BaseException | None, *, passed: bool) -> tuple[Outcome, str]:
    if passed:
        return Outcome.PASSED, "the program compiles, and the test passed"
    if failure is None:  # A strict xfail.
        return Outcome.FAILED, "the test passed, and is marked xfail"
    if isinstance(failure, _EXPLAINED) or not isinstance(failure, Exception):  # pytest.fail
        text = str(failure).strip() or type(failure).__name__
        return Outcome.FAILED, encodable(text.splitlines()[0])[:_MESSAGE_CHARACTERS]
    found = at_fault(failure, "the test")
    return found.outcome, found.reason
