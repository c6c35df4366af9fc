"""Claims on copies: a program writes what it changes, and reuses the buffers that it is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.claims.measurement import module_of
from assay.judge.baseline import Relation, explain, holds
from assay.model.claim import Case, Formula, Stopped
from assay.model.inspection import why_lost
from assay.model.summary import (
    FullBufferWrite,
    ModuleSummary,
    copied_bytes_outside_loops,
    copied_bytes_per_iteration,
    full_buffer_writes_in_loops,
    full_buffer_writes_outside_loops,
)
from assay.model.units import Quantity, Unit, format_bytes, same_unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant

_NONE = Formula("no full-buffer write", lambda _case: Quantity(0, Unit.BYTES))
_NAMED = 3
_Bytes = Callable[[Sequence[FullBufferWrite], int], int | None]
_Found = Callable[[Sequence[FullBufferWrite], int], Sequence[FullBufferWrite]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FullBufferWrites:
    """At most ``at_most`` bytes are written in arrays larger than ``larger_than``."""

    larger_than: Formula
    at_most: Formula = _NONE
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formulas read."""
        return (*self.larger_than.needs(variant), *self.at_most.needs(variant))

    def _judged(self, case: Case, where: str, nbytes: _Bytes, found: _Found) -> Finding:
        writes, above = _assigned(case).full_buffer_writes, _bytes(self.larger_than, case)
        what = f"full-buffer writes {where} (arrays above {format_bytes(above)})"
        return _at_most(what, nbytes(writes, above), found(writes, above), self.at_most, case)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytes(_FullBufferWrites):
    """No iteration of any loop writes more than ``at_most`` in arrays larger than ``larger_than``.

    It counts arrays that an instruction writes whole although most of their elements repeat another
    array: copies, changes of layout, order or type, and updates that are not in place. Values that
    the program computes are not counted. Arrays up to ``larger_than`` bytes are ignored, such as
    the row that an iteration adds to a stack.
    """

    name: str = "copied-bytes-per-iteration"

    def judge(self, case: Case) -> Finding:
        """Passes if the worst loop's iteration writes at most the formula's bytes."""
        return self._judged(
            case, "per loop iteration", copied_bytes_per_iteration, full_buffer_writes_in_loops
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytesOutsideLoops(_FullBufferWrites):
    """Outside loops, a run writes at most ``at_most`` in arrays larger than ``larger_than``.

    It counts what ``CopiedBytes`` counts inside loops, once for each execution.
    """

    name: str = "copied-bytes-outside-loops"

    def judge(self, case: Case) -> Finding:
        """Passes if a run writes at most the formula's bytes."""
        return self._judged(
            case, "outside loops", copied_bytes_outside_loops, full_buffer_writes_outside_loops
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DonatedBytesReused:
    """Outputs reuse at least ``at_least`` bytes of donated buffers.

    A donated buffer that an output reuses after a copy is not counted.
    """

    at_least: Formula
    name: str = "donated-bytes-reused"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.at_least.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if honoured donations come to the formula's bytes."""
        donations, limit = _assigned(case).donations, self.at_least.of(case)
        honoured = sum(each.shape.nbytes for each in donations if each.honoured)
        measured = Quantity(honoured, self.unit)
        passed = holds(measured, Relation.AT_LEAST, limit)
        lost = [f"{each.argument} {why_lost(each)}" for each in donations if not each.honoured]
        lost = lost if donations else ["no donation reaches the compiler", *case.evidence.warnings]
        line = explain(
            "donated bytes reused", measured, Relation.AT_LEAST, limit, self.at_least.text
        )
        return Finding(
            outcome=Outcome.PASSED if passed else Outcome.FAILED,
            measured=measured.value,
            limit=limit.value,
            reason=line if passed else f"{line}; {_few(lost)}",
        )


def _assigned(case: Case) -> ModuleSummary:
    """The module, or ``Stopped`` where nothing says which bytes its arrays share."""
    module = module_of(case, case.evidence)
    if not module.buffers_assigned:
        raise Stopped(
            Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason="the compiler gave no buffer assignment, which is needed to tell a copy "
                "from an update in place",
                advice="use a compiler that takes xla_dump_to as a compile option",
            )
        )
    return module


def _bytes(formula: Formula, case: Case) -> int:
    size = formula.of(case)
    same_unit(size, Quantity(0, Unit.BYTES))
    return int(size.value)


def _at_most(
    what: str, nbytes: int | None, found: Sequence[FullBufferWrite], at_most: Formula, case: Case
) -> Finding:
    """Passes if the bytes are known, and at most the formula's; names the largest arrays."""
    named = _few([_in_words(each) for each in found])
    if nbytes is None:
        return Finding(
            outcome=Outcome.INCONCLUSIVE,
            reason=f"{what}: unknown, because the number of executions is unknown: {named}",
        )
    limit, measured = at_most.of(case), Quantity(nbytes, Unit.BYTES)
    passed = holds(measured, Relation.AT_MOST, limit)
    line = explain(what, measured, Relation.AT_MOST, limit, at_most.text)
    return Finding(
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        measured=measured.value,
        limit=limit.value,
        reason=f"{line}; {named}" if named else line,
    )


def _in_words(write: FullBufferWrite) -> str:
    """``copy f32[15,128] of 7.5 KiB, model.py:41``."""
    source = f", {write.source}" if write.source else ""
    size = format_bytes(write.shape.nbytes)
    return f"{write.opcode} {write.shape} of {size}{source}"


def _few(words: Sequence[str]) -> str:
    """The first few words, and how many there are besides."""
    rest = len(words) - _NAMED
    return "; ".join([*words[:_NAMED], f"and {rest} more"] if rest > 0 else words)
