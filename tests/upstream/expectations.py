"""What upstream asserts of a program, put to the evidence that Assay has of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from assay import claims
from assay.model.claim import Case as ClaimCase
from assay.model.claim import Claim, Formula, Stopped
from assay.model.evidence import Evidence, FailureKind
from assay.model.module import Direction, Shape
from assay.model.summary import ModuleSummary
from assay.model.units import Quantity, Unit
from assay.model.verdict import Outcome

from .observed import Build, observed, workload_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Whether an expectation holds; ``measured`` is None where Assay has nothing to measure."""

    holds: bool
    measured: Any
    wanted: Any
    words: str = ""

    def __str__(self) -> str:
        return f"measured {self.measured}, upstream has {self.wanted}; {self.words}"


class Expectation(Protocol):
    """One of upstream's assertions. Law: it holds only of something that was measured."""

    def look(self, program: Build, target: str) -> Look:
        """Whether it holds of the program on the target."""


@dataclass(frozen=True, slots=True)
class ArgumentKinds:
    """The memory of each array that the program takes, in the order of the arguments."""

    kinds: tuple[str, ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.kinds, lambda each: _kinds(_arguments(each)))


@dataclass(frozen=True, slots=True)
class ResultKinds:
    """The memory of each array that the program gives, in the order of the results."""

    kinds: tuple[str, ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.kinds, lambda each: _kinds(_results(each)))


@dataclass(frozen=True, slots=True)
class ArgumentOrders:
    """The order of dimensions in memory of each argument, the outermost first (major_to_minor)."""

    orders: tuple[tuple[int, ...], ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.orders, lambda each: _orders(each, "argument_layouts"))


@dataclass(frozen=True, slots=True)
class ResultOrders:
    """The order of dimensions in memory of each result, the outermost first (major_to_minor)."""

    orders: tuple[tuple[int, ...], ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.orders, lambda each: _orders(each, "output_layouts"))


@dataclass(frozen=True, slots=True)
class HostArguments:
    """Bytes of arguments in host memory, by the compiler's memory analysis."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        return _equal(
            evidence, evidence.memory and evidence.memory.host_argument_bytes, self.nbytes
        )


@dataclass(frozen=True, slots=True)
class HostResults:
    """Bytes of results in host memory, by the compiler's memory analysis."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        return _equal(evidence, evidence.memory and evidence.memory.host_output_bytes, self.nbytes)


@dataclass(frozen=True, slots=True)
class HostTemporaries:
    """Bytes of temporaries in host memory, by the claim ``HostBytes``."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        return _judged(claims.HostBytes(equal=_bytes(self.nbytes)), program, target)


@dataclass(frozen=True, slots=True)
class SomeHostTemporaries:
    """At least so many bytes of temporaries in host memory (upstream asserts: more than 0)."""

    at_least: int = 1

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        measured = None if evidence.memory is None else evidence.memory.host_temp_bytes
        holds = measured is not None and measured >= self.at_least
        return Look(
            holds=holds, measured=measured, wanted=f">= {self.at_least}", words=_ended(evidence)
        )


@dataclass(frozen=True, slots=True)
class HostResiduals:
    """How many values autodiff saves in host memory."""

    count: int

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        residuals = evidence.traced.residuals if evidence.traced else None
        measured = None if residuals is None else sum(each.on_host for each in residuals)
        return _equal(evidence, measured, self.count)


@dataclass(frozen=True, slots=True)
class Residuals:
    """How many values autodiff saves, wherever they lie."""

    count: int

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        residuals = evidence.traced.residuals if evidence.traced else None
        words = "; ".join(map(str, residuals or ()))
        found = _equal(evidence, None if residuals is None else len(residuals), self.count)
        return replace(found, words=words or found.words)


@dataclass(frozen=True, slots=True)
class ToHost:
    """Bytes from device to host memory per run, by the claim ``TransferredBytes``."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        claim = claims.TransferredBytes(direction=Direction.TO_HOST, equal=_bytes(self.nbytes))
        return _judged(claim, program, target)


@dataclass(frozen=True, slots=True)
class ToDevice:
    """Bytes from host to device memory per run, by the claim ``TransferredBytes``."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        claim = claims.TransferredBytes(direction=Direction.TO_DEVICE, equal=_bytes(self.nbytes))
        return _judged(claim, program, target)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The arguments (by number of the array) whose buffers results took over.

    Upstream asserts that they are deleted; a copy elsewhere does not count.
    """

    numbers: tuple[int, ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.numbers, _taken_over)


@dataclass(frozen=True, slots=True)
class Honoured:
    """The arguments whose buffers results took over without a copy: what ``inspect`` counts."""

    numbers: tuple[int, ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.numbers, _honoured)


@dataclass(frozen=True, slots=True)
class Reused:
    """At least so many donated bytes are reused without a copy, by ``DonatedBytesReused``."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        return _judged(claims.DonatedBytesReused(at_least=_bytes(self.nbytes)), program, target)


@dataclass(frozen=True, slots=True)
class DonationRefused:
    """jax warns that a donated buffer is of no use, and no result takes it."""

    fragment: str = "Some donated buffers were not usable"

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        if evidence.module is None:
            return Look(holds=False, measured=None, wanted=self.fragment, words=_ended(evidence))
        warned = any(self.fragment in each for each in evidence.warnings)
        taken = _taken_over(evidence.module)
        return Look(
            holds=warned and not taken,
            measured=(warned, taken),
            wanted="a warning, and nothing taken over",
            words="; ".join(evidence.warnings),
        )


@dataclass(frozen=True, slots=True)
class AliasBytes:
    """Bytes of results that lie in the buffers of arguments, in device memory."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        return _equal(evidence, evidence.memory and evidence.memory.alias_bytes, self.nbytes)


@dataclass(frozen=True, slots=True)
class TemporariesAtMost:
    """Bytes of device temporaries, by the claim ``TempBytesAtMost``."""

    nbytes: int

    def look(self, program: Build, target: str) -> Look:
        return _judged(claims.TempBytesAtMost(limit=_bytes(self.nbytes)), program, target)


@dataclass(frozen=True, slots=True)
class LoopCopies:
    """Bytes that the worst loop's iteration writes whole in arrays larger than a size."""

    nbytes: int = 0
    larger_than: int = 0

    def look(self, program: Build, target: str) -> Look:
        claim = claims.CopiedBytes(
            larger_than=_bytes(self.larger_than), at_most=_bytes(self.nbytes)
        )
        return _judged(claim, program, target)


@dataclass(frozen=True, slots=True)
class SomeLoopCopies:
    """At least so many bytes per iteration are copied whole: the copy that upstream inserts."""

    at_least: int
    larger_than: int = 0

    def look(self, program: Build, target: str) -> Look:
        found = LoopCopies(self.at_least - 1, self.larger_than).look(program, target)
        return replace(found, holds=not found.holds and found.measured is not None)


@dataclass(frozen=True, slots=True)
class CopiesOutside:
    """Exactly these bytes are copied outside of loops per run, in arrays of at least a size.

    By the claim ``CopiedBytesOutsideLoops``, which must find that they are no more.
    """

    nbytes: int
    at_least: int = 1

    def look(self, program: Build, target: str) -> Look:
        claim = claims.CopiedBytesOutsideLoops(
            larger_than=_bytes(self.at_least - 1), at_most=_bytes(self.nbytes)
        )
        found = _judged(claim, program, target)
        return replace(found, holds=found.holds and found.measured == self.nbytes)


@dataclass(frozen=True, slots=True)
class Arguments:
    """How many arrays the compiled program takes."""

    count: int

    def look(self, program: Build, target: str) -> Look:
        return _same(program, target, self.count, lambda module: len(_arguments(module)))


@dataclass(frozen=True, slots=True)
class Trips:
    """The trips of each loop, sorted."""

    trips: tuple[int, ...]

    def look(self, program: Build, target: str) -> Look:
        return _same(
            program,
            target,
            self.trips,
            lambda module: tuple(sorted(each.trips or -1 for each in module.loops)),
        )


@dataclass(frozen=True, slots=True)
class Operations:
    """How many instructions of an opcode the module has, ``None`` for at least one."""

    opcode: str
    count: int | None = None

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        if evidence.module is None or evidence.module.inventory is None:
            return Look(holds=False, measured=None, wanted=self.count, words=_ended(evidence))
        found = sum(
            each.count
            for each in evidence.module.inventory.operations
            if each.opcode == self.opcode
        )
        holds = found == self.count if self.count is not None else found > 0
        return Look(holds=holds, measured=found, wanted=self.count, words=self.opcode)


@dataclass(frozen=True, slots=True)
class HostCalls:
    """How many parts of the program the compiler has the host compute, each written once."""

    count: int

    def look(self, program: Build, target: str) -> Look:
        return Operations("custom-call HostExecute", self.count).look(program, target)


@dataclass(frozen=True, slots=True)
class Kernels:
    """How many kernels of the user the program calls, each written once."""

    count: int

    def look(self, program: Build, target: str) -> Look:
        return Operations("custom-call tpu_custom_call", self.count).look(program, target)


@dataclass(frozen=True, slots=True)
class Compiles:
    """The program compiles, by the claim ``Compiles``."""

    def look(self, program: Build, target: str) -> Look:
        return _judged(claims.Compiles(), program, target)


@dataclass(frozen=True, slots=True)
class Refused:
    """The program is refused at a stage, with a fragment of the message."""

    kind: FailureKind
    fragment: str

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        failure = evidence.failure
        holds = (
            failure is not None and failure.kind is self.kind and self.fragment in failure.message
        )
        # What compiled is a measurement too: the refusal did not come.
        measured = failure.kind.phrase if failure else ("it compiles" if evidence.memory else None)
        return Look(holds=holds, measured=measured, wanted=self.fragment, words=_ended(evidence))


@dataclass(frozen=True, slots=True)
class Fits:
    """The program fits the device, by the claim ``FitsDevice``."""

    def look(self, program: Build, target: str) -> Look:
        return _judged(claims.FitsDevice(), program, target)


@dataclass(frozen=True, slots=True)
class Values:
    """What the program computes, in the order of the results; exact."""

    wanted: Callable[[], tuple[Any, ...]]

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        if evidence.values is None:
            return Look(holds=False, measured=None, wanted="values", words=_ended(evidence))
        found = tuple(
            np.frombuffer(each.data, dtype=each.dtype).reshape(each.shape)
            for each in evidence.values
        )
        wanted = tuple(map(np.asarray, self.wanted()))
        holds = len(found) == len(wanted) and all(map(np.array_equal, found, wanted))
        return Look(holds=holds, measured=found, wanted=wanted)


def _arguments(module: ModuleSummary) -> tuple[Shape, ...]:
    assert module.inventory is not None
    return module.inventory.arguments


def _results(module: ModuleSummary) -> tuple[Shape, ...]:
    assert module.inventory is not None
    return module.inventory.outputs


def _orders(module: ModuleSummary, which: str) -> tuple[tuple[int, ...], ...]:
    layouts: tuple[str, ...] = getattr(module.inventory, which)
    minor_to_major = (each.strip("{}").partition(":")[0] for each in layouts)
    return tuple(tuple(map(int, each.split(",")))[::-1] for each in minor_to_major)


def _kinds(shapes: tuple[Shape, ...]) -> tuple[str, ...]:
    return tuple("host" if each.on_host else "device" for each in shapes)


def _taken_over(module: ModuleSummary) -> tuple[int, ...]:
    given = (each for each in module.donations if each.output_index is not None)
    return tuple(sorted(each.parameter_number for each in given))


def _honoured(module: ModuleSummary) -> tuple[int, ...]:
    return tuple(sorted(each.parameter_number for each in module.donations if each.honoured))


def _bytes(number: int) -> Formula:
    return Formula("upstream's number", lambda _case: Quantity(number, Unit.BYTES))


def _same(
    program: Build, target: str, wanted: Any, measure: Callable[[ModuleSummary], Any]
) -> Look:
    evidence = observed(program, target)
    measured = None if evidence.module is None else measure(evidence.module)
    return _equal(evidence, measured, wanted)


def _equal(evidence: Evidence, measured: Any, wanted: Any) -> Look:
    return Look(
        holds=measured is not None and measured == wanted,
        measured=measured,
        wanted=wanted,
        words=_ended(evidence),
    )


def _judged(claim: Claim, program: Build, target: str) -> Look:
    evidence = observed(program, target)
    workload, variant = workload_of(program)
    try:
        finding = claim.judge(ClaimCase(workload=workload, variant=variant, evidence=evidence))
    except Stopped as stopped:
        finding = stopped.finding
    return Look(
        holds=finding.outcome is Outcome.PASSED,
        measured=finding.measured,
        wanted=finding.limit,
        words=finding.reason,
    )


def _ended(evidence: Evidence) -> str:
    if evidence.unavailable is not None:
        return f"unavailable: {evidence.unavailable.reason}"
    if evidence.failure is not None:
        return f"{evidence.failure.kind.phrase}: {evidence.failure.message}"
    return evidence.module_unreadable
