"""Claims on copies: a loop that changes a part of a buffer writes that part."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.claims.measurement import module_of
from assay.judge.comparison import Relation, explain, holds
from assay.model.buffers import Rewrite, copied_bytes_per_iteration, whole_in_loops
from assay.model.claim import Case, Formula
from assay.model.units import Quantity, Unit, format_bytes, same_unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Arm

_NONE = Formula("no whole buffer", lambda _case: Quantity(0, Unit.BYTES))
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytes:
    """No iteration of any loop writes more than ``at_most`` in arrays larger than ``larger_than``.

    Counted are arrays that an instruction writes whole: copies, updates that do not happen in
    place, and new values of an array that the loop carries. ``larger_than`` is what an iteration
    may well write whole, such as the row that it adds to a stack.
    """

    larger_than: Formula
    at_most: Formula = _NONE
    name: str = "copied-bytes-per-iteration"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, arm: Arm) -> tuple[str, ...]:
        """The arms that the formulas read."""
        return (*self.larger_than.needs(arm), *self.at_most.needs(arm))

    def judge(self, case: Case) -> Finding:
        """Kept if the worst loop's iteration writes at most the formula's bytes."""
        module = module_of(case, case.evidence)
        if not module.buffers_assigned:
            return Finding(
                outcome=Outcome.NOT_MEASURED,
                reason="the compiler gave no buffer assignment, so that a copy onto itself and an "
                "update out of place do not show",
                advice="use a compiler that takes xla_dump_to as a compile option",
            )
        size, limit = self.larger_than.of(case), self.at_most.of(case)
        same_unit(size, Quantity(0, self.unit))
        above = int(size.value)
        measured = Quantity(copied_bytes_per_iteration(module.rewrites, above), self.unit)
        kept = holds(measured, Relation.AT_MOST, limit)
        what = f"what an iteration writes whole in arrays larger than {size}"
        line = explain(what, measured, Relation.AT_MOST, limit, self.at_most.text)
        found = whole_in_loops(module.rewrites, above)
        return Finding(
            outcome=Outcome.KEPT if kept else Outcome.BROKEN,
            measured=measured.value,
            limit=limit.value,
            reason=f"{line}; {_listed(found)}" if found else line,
        )


def _listed(found: Sequence[Rewrite]) -> str:
    """The largest of them in words: ``copy f32[15,128] of 7.5 KiB, model.py:41``."""
    words = [
        f"{each.opcode} {each.shape} of {format_bytes(each.shape.nbytes)}"
        + (f", {each.source}" if each.source else "")
        for each in found[:_NAMED]
    ]
    if len(found) > _NAMED:
        words.append(f"and {len(found) - _NAMED} more")
    return "; ".join(words)
