"""Claims on bytes of a compiled program: memory, transfers, copies and reused buffers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from assay.claims.measurement import (
    assigned_module_of,
    memory_of,
    module_of,
    noted,
    stop,
    stop_if_crowded,
    stop_unless_placement_shows,
    with_libraries,
)
from assay.judge.baseline import against_baseline
from assay.model.claim import Case, Claim, Formula
from assay.model.evidence import FailureKind
from assay.model.inspection import why_lost
from assay.model.module import Direction
from assay.model.summary import (
    FullBufferWrite,
    copied_bytes_outside_loops,
    copied_bytes_per_iteration,
    full_buffer_writes_in_loops,
    full_buffer_writes_outside_loops,
)
from assay.model.units import Quantity, Unit, format_bytes
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBytes(Claim):
    """The step needs exactly the formula's bytes per device of host memory.

    Temporaries, arguments and outputs count; an output that reuses an argument counts once.
    """

    equal: Formula
    name: str = "host-bytes"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        stop_unless_placement_shows(case.evidence)
        host_bytes = memory_of(case).host_bytes
        return self._compare(case, "host memory", host_bytes, "=", self.equal)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytesFall(Claim):
    """The step's device temporaries are fewer than its reference variant's, by the formula or more.

    Host bytes alone prove nothing: four variants of the suite ``scan_offload`` have them and save
    nothing (see its README).
    """

    by: Formula
    name: str = "device-bytes-fall"
    judges_compiled: ClassVar[bool] = True

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return (variant.reference,)

    def judge(self, case: Case) -> Finding:
        stop_unless_placement_shows(case.evidence)
        reference = case.other(case.variant.reference)
        mine = memory_of(case).temp_bytes
        saved = memory_of(case, reference).temp_bytes - mine
        what = f"device memory saved compared with {reference.variant!r}"
        return self._compare(case, what, saved, "≥", self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytesAtMost(Claim):
    """The step's device temporaries are at most another variant's plus the formula.

    A policy that needs more than saving nothing costs both transfers and memory.
    """

    against: str
    beyond: Formula
    name: str = "no-worse-than-nothing"
    judges_compiled: ClassVar[bool] = True

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return (self.against,)

    def judge(self, case: Case) -> Finding:
        stop_unless_placement_shows(case.evidence)
        mine = memory_of(case).temp_bytes
        theirs = memory_of(case, case.other(self.against)).temp_bytes
        limit = Quantity(theirs + self._limit(case, self.beyond), self.unit)
        text = f"the memory of {self.against!r}, plus {self.beyond.text}"
        return self._compare(case, "device memory", mine, "≤", Formula(text, lambda _case: limit))


@dataclass(frozen=True, slots=True, kw_only=True)
class TempBytesAtMost(Claim):
    """The step's device temporaries stay within the formula.

    If libraries of a CPU may hold more than the rest of the limit, the verdict is ``inconclusive``.
    """

    limit: Formula
    name: str = "temp-bytes-at-most"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        memory = memory_of(case)
        found = self._compare(case, "device temporaries", memory.temp_bytes, "≤", self.limit)
        return with_libraries(found, memory.library_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsBudget(Claim):
    """The step's temp + argument + output − alias is within the budget that it was given.

    If the compiler refuses the program, the claim fails, and the memory in the error message is the
    measurement. If libraries of a CPU may hold more than the rest of the budget, the verdict is
    ``inconclusive``.
    """

    budget: Formula
    name: str = "fits-budget"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        stop_if_crowded(case.evidence)
        failure = case.evidence.failure
        refused = failure if failure and failure.kind is FailureKind.OUT_OF_MEMORY else None
        needed = refused.needed_bytes if refused else None
        if refused and needed is not None:
            found = self._compare(case, "device memory", needed, "≤", self.budget)
            return replace(found, outcome=Outcome.FAILED, failure=refused)
        memory = memory_of(case)
        reported = memory.device_bytes - memory.library_bytes
        found = self._compare(case, "device memory", reported, "≤", self.budget)
        return with_libraries(found, memory.library_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTempBytes(Claim):
    """Device temporaries have not grown past the baseline stored for this target.

    Fusion and scheduling decide this number, so no formula gives it. On another toolchain, a
    difference within ``tolerance`` (a ratio) is no change. A missing baseline fails. The most that
    libraries of a CPU hold is counted, so that a temporary that moves into one is no improvement.
    """

    tolerance: float = 0.01
    name: str = "temp-bytes"
    uses_baseline: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        memory = memory_of(case)
        measured = Quantity(memory.temp_bytes + memory.library_bytes, self.unit)
        seen, earlier = case.evidence, case.earlier
        versions, device = seen.toolchain.identity, seen.device
        return against_baseline(measured, case.baseline, versions, self.tolerance, earlier, device)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredBytes(Claim):
    """Per step, loops counted, exactly the formula's bytes are transferred in this direction."""

    direction: Direction
    equal: Formula
    judges_compiled: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """``to-host-bytes`` or ``to-device-bytes``."""
        return f"{self.direction.value}-bytes"

    def judge(self, case: Case) -> Finding:
        stop_unless_placement_shows(case.evidence)
        moved = [each for each in module_of(case).transfers if each.direction is self.direction]
        uncertain = [each for each in moved if each.executions is None or each.at_most]
        if uncertain:
            stop(
                Outcome.INCONCLUSIVE,
                f"{len(uncertain)} transfers run an unknown number of times, "
                f"the first in {uncertain[0].computation}",
                "give the loop a static length; take the transfer out of the conditional",
            )
        total = sum(each.nbytes_per_run or 0 for each in moved)
        what = f"{self.direction.value} transfers per step"
        return self._compare(case, what, total, "=", self.equal)


_NONE = Formula("no full-buffer write", lambda _case: Quantity(0, Unit.BYTES))
_NAMED: Final = 3
"""Arrays that a reason names."""

_Bytes = Callable[[Sequence[FullBufferWrite], int], int | None]
_Found = Callable[[Sequence[FullBufferWrite], int], Sequence[FullBufferWrite]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytes(Claim):
    """No iteration of any loop writes more than ``at_most`` in arrays larger than ``larger_than``.

    It counts arrays that an instruction writes whole although most of their elements repeat another
    array: copies, changes of layout, order or type, and updates that are not in place. Values that
    the program computes are not counted. Arrays up to ``larger_than`` bytes are ignored, such as
    the row that an iteration adds to a stack.
    """

    larger_than: Formula
    at_most: Formula = _NONE
    name: str = "copied-bytes-per-iteration"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        return self._judged(
            case, "per loop iteration", copied_bytes_per_iteration, full_buffer_writes_in_loops
        )

    def _judged(self, case: Case, where: str, nbytes_of: _Bytes, found_in: _Found) -> Finding:
        """Passes if the bytes are known, and at most the formula's; names the largest arrays."""
        writes = assigned_module_of(case).full_buffer_writes
        above = int(self._limit(case, self.larger_than))
        what = f"full-buffer writes {where} (arrays above {format_bytes(above)})"
        named = _few([_in_words(each) for each in found_in(writes, above)])
        nbytes = nbytes_of(writes, above)
        if nbytes is None:
            unknown = "unknown, because the number of executions is unknown"
            stop(Outcome.INCONCLUSIVE, f"{what}: {unknown}: {named}")
        return noted(self._compare(case, what, nbytes, "≤", self.at_most), named)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytesOutsideLoops(CopiedBytes):
    """Outside loops, a run writes at most ``at_most`` in arrays larger than ``larger_than``.

    It counts what ``CopiedBytes`` counts inside loops, once for each execution.
    """

    name: str = "copied-bytes-outside-loops"

    def judge(self, case: Case) -> Finding:
        return self._judged(
            case, "outside loops", copied_bytes_outside_loops, full_buffer_writes_outside_loops
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DonatedBytesReused(Claim):
    """Outputs reuse at least ``at_least`` bytes of donated buffers.

    A donated buffer that an output reuses after a copy is not counted.
    """

    at_least: Formula
    name: str = "donated-bytes-reused"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        donations = assigned_module_of(case).donations
        reused = sum(each.shape.nbytes for each in donations if each.honoured)
        what = "donated bytes reused"
        found = self._compare(case, what, reused, "≥", self.at_least)
        if found.outcome is Outcome.PASSED:
            return found
        lost = [f"{each.argument} {why_lost(each)}" for each in donations if not each.honoured]
        lost = lost if donations else ["no donation reaches the compiler", *case.evidence.warnings]
        return noted(found, _few(lost))


def _in_words(write: FullBufferWrite) -> str:
    """``copy f32[15,128] of 7.5 KiB, model.py:41``."""
    source = f", {write.source}" if write.source else ""
    return f"{write.opcode} {write.shape} of {format_bytes(write.shape.nbytes)}{source}"


def _few(words: Sequence[str]) -> str:
    """The first few, and the number of the others."""
    rest = len(words) - _NAMED
    return "; ".join([*words[:_NAMED], f"and {rest} more"] if rest > 0 else words)
