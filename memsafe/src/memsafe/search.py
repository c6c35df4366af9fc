"""The search for a program whose compiled form keeps a budget: plan, compile, look, plan again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jax.errors import JaxRuntimeError

from memsafe.blockers import blockers_of
from memsafe.compiled_plan import Fit
from memsafe.emit import emitted
from memsafe.errors import BudgetError, failure
from memsafe.measure import Measured
from memsafe.plan import LONG
from memsafe.prospects import TOO_FAR, Prospects, overestimate
from memsafe.recomputation import Attempt, Recomputation, allowed, slowdown
from memsafe.rewrites import Rewritten
from memsafe.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memsafe.graph import Graph
    from memsafe.plan import Plan
    from memsafe.planner import Planner
    from memsafe.shards import Parts

__all__ = ["CLOSE", "FAR", "Search"]

_ATTEMPTS = 6
"""Maximum number of plans in slices that are compiled for each form of the program."""

_CHEAP = 1.5
"""Maximum work of slices that are tried first, as a multiple of the program's own work.

A forward pass done twice is 4/3. Slices are faster than that, because they stay in the caches: the
gradient of a 16-layer MLP at a quarter of its memory takes 0.32 of its time in slices, and 0.74
with whole values computed again (2 cores, jax 0.10.2, 2026-11-25).
"""

_SLOWER = 1.25
"""Predicted slowdown above which slices may be tried second.

Programs with whole values computed again are then tried first, if predicted to take less time.

A GPT of 4 layers at 0.43 of its memory takes 0.98 of its time in slices, by prediction 1.39, and
0.7 with its layers computed again, by prediction 1.26 (2 cores, jax 0.10.2, 2026-11-26).
"""

CLOSE = 1.1
"""Maximum predicted memory of a program that is compiled, as a multiple of the room.

Predictions are rough. A GPT with `jax.checkpoint` around each layer needs 0.89 of its prediction (4
layers, jax 0.10.2, CPU, 2026-11-26). Of plans in slices of random programs, 1 of 127 that fit was
predicted above the room (1.08 times), and 48 of 74 that do not (2 cores, jax 0.10.2, 2026-11-26).
"""

_NEAR = 1.5
"""Maximum predicted memory of slices that are tried first, as a multiple of the target."""

_EQUAL = 1.02
"""`_SLOWER` for a long program on a device where no slice stays in a cache.

The gradient of a decoder at 0.75 of its memory is predicted to take 1.03 times its time in slices,
and 1.01 with its products kept (1,436 equations, for an H100, jax 0.10.2, 2026-11-26).
"""

FAR = 2.0
"""Maximum predicted time of a plan in slices that is compiled, as a multiple of that allowed.

For a long program, the maximum is the time allowed.
"""

_MARGIN = 0.95
"""Share of the room that is planned for, because the compiler's figure will differ."""

_SAME = 0.7
"""Factor for the next target, if a target gives the plan compiled before or one that is too large.

The factor is less than the planner's step: targets within a tenth share a plan.
"""

_SMALLER = 6
"""Maximum number of targets, each smaller than the one before, that are tried for another plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search for one program.

    Attributes:
        budget: The budget in bytes.
        most: Maximum predicted time of a plan, as a multiple of that of the program as written.
        written: The program as written.
        plain: The program as written, compiled.
        planner: Plans programs.
        parts: How the arguments lie over several devices.
        measure: Compiles a program.
        deepest: Programs that are tried last, unless the program is long.
        runs: Whether the plan that is found will run.
        failures: The compiler's errors at plans that failed for another reason than their size.
    """

    budget: int
    most: float
    written: Graph
    plain: Measured
    planner: Planner
    parts: tuple[Parts, ...]
    measure: Callable[..., Measured]
    deepest: Iterable[Rewritten]
    runs: bool
    failures: list[JaxRuntimeError] = field(default_factory=list)

    @property
    def room(self) -> float:
        """The bytes of the budget without the arguments."""
        return max(self.budget - self.plain.argument_bytes, 1.0)

    def cheapest(self, sliced: Sequence[Rewritten], recomputing: Iterable[Rewritten]) -> Fit:
        """The first program found that keeps budget and time; programs are tried cheapest first.

        Raises BudgetError, or the compiler's own error if the compiler fails at all plans.
        """
        written = self.planner.plan(sliced[0].program, float("inf"), self.parts)
        compiled: list[Fit] = []
        plain = self._in_turn(compiled)
        if compiled and plain.keeps(self.budget):
            return compiled[0]
        ratio = overestimate(written, plain)
        target = _MARGIN * self.room * min(1.0, 2 * ratio)
        # The scale may be below 1, because compilers fuse values that a plan counts as kept.
        again = Recomputation(
            search=self,
            programs=iter(recomputing),
            target=target,
            scale=min(1.0, 1 / ratio),
            compiled=compiled,
        )
        refusals, in_slices = list[BudgetError](), list[BudgetError]()
        slow: list[tuple[float, float]] = []
        for attempt in self._attempts(sliced, again):
            try:
                fit = self._fitted(attempt, again)
            except BudgetError as refusal:
                if refusal.slowdown is not None:
                    slow.append((refusal.slowdown, refusal.smallest))
                    continue
                refusals.append(refusal)
                if attempt.program in sliced:
                    in_slices.append(refusal)
                continue
            if self._is_quick(fit.slowdown):
                return fit
            slow.append((fit.slowdown, fit.result.nbytes))
        if slow:
            slowdown, smallest = min(slow)
            raise BudgetError(
                budget=self.budget, smallest=smallest, slowdown=slowdown, most=self.most
            )
        if self.failures and len(self.failures) == len(compiled):
            self.failures[0].add_note("It fails at plans of memsafe, not at the function itself.")
            raise self.failures[0]
        # The error names the blockers of a program in `sliced`, which the user knows.
        smallest = min(plain.nbytes, *(refusal.smallest for refusal in refusals))
        told = min(in_slices, key=lambda refusal: refusal.smallest)
        quick = [fit.result.nbytes for fit in again.compiled if self._is_quick(fit.slowdown)]
        raise BudgetError(
            budget=self.budget,
            smallest=smallest,
            blockers=(*map(failure, self.failures), *told.blockers),
            quick=min(quick, default=None),
        )

    def _in_turn(self, compiled: list[Fit]) -> Measured:
        """The program as written, with convolutions one after another if it runs on one device."""
        if any(self.parts) or not self.written.takes_turns:
            return self.plain
        notes = ("convolutions one after another: each holds memory of a library",)
        alone = Rewritten(program=self.written.closed, notes=notes)
        return self._compiled(alone, self._plan(alone, float("inf")), compiled).result

    def _attempts(self, sliced: Sequence[Rewritten], again: Recomputation) -> Iterator[Attempt]:
        """Attempts in order: slices with little more work, values computed again, other slices.

        Of slices and of values computed again, those predicted to take less time come first.
        """
        own = self.written.costs
        target = again.target
        plans = [self._plan(each, target) for each in sliced]
        plan = next((each for each in plans if each.predicted <= target), plans[0])
        slices = [Attempt(sliced[at], target, _ATTEMPTS) for at in _quickest(plans, target)]
        limit = plan.elapsed if plan.predicted <= target else float("inf")
        is_long = len(plan.graph.equations) > LONG
        is_cheap = plan.predicted <= _NEAR * target and plan.work <= _CHEAP * own.work
        if is_cheap:
            slower = _EQUAL if is_long and self.planner.model.cached == 1 else _SLOWER
            if plan.elapsed > slower * own.elapsed:
                yield from again.whole(plan.elapsed, CLOSE)
            yield from slices
            limit = float("inf") if is_long else limit  # Slices do not fit, whatever was predicted.
        yield from again.whole(limit)
        yield from again.on_the_host(limit)
        yield from again.in_slices()
        if not is_cheap:
            yield from slices
            if is_long:
                yield from again.whole(float("inf"))
                yield from again.on_the_host(float("inf"))
        yield from () if is_long else again.at_last()

    def _plan(self, preparation: Rewritten, target: float) -> Plan:
        return self._planner(preparation).plan(preparation.program, target, self.parts)

    def _planner(self, preparation: Rewritten) -> Planner:
        return replace(self.planner, across=True) if preparation.across else self.planner

    def _is_quick(self, slowdown: float) -> bool:
        """Whether a slowdown, rounded to one decimal, is allowed. No prediction is finer."""
        return round(slowdown, 1) <= allowed(self.most, self.written)

    def _fitted(self, attempt: Attempt, again: Recomputation) -> Fit:
        """The first plan of a program that keeps the budget. Raises BudgetError.

        Compiled plans are added to `again.compiled`. The first plan of all is compiled even if it
        is predicted not to fit, because the error reports its memory. The same holds for all plans
        of a long program, because others take long to find.
        """
        preparation, target, tries = attempt
        plain, room, compiled = self.plain, self.room, again.compiled
        best: Plan | None = None
        before: tuple[Plan, float] | None = None
        smallest = plain.nbytes
        targets = Targets(arguments=plain.argument_bytes, room=_MARGIN * room)
        is_long = len(preparation.program.jaxpr.eqns) > LONG
        sliced = new = 0
        for _ in range(2 * tries):
            if new == tries:
                break
            most = room / 4 ** (sliced + 1)
            limit = CLOSE * room if compiled and tries > 1 and not is_long else float("inf")
            found = self._other(preparation, target, before, most, limit)
            if tries > 1 and is_long:
                found = found and self._promising(preparation, found, before, compiled)
            if found is None:
                break
            before = plan, target = found
            sliced += bool(plan.loops)
            slowdown = self._slowdown(preparation, plan)
            if tries > 1 and not self._is_worth_it(plan, target, slowdown, compiled):
                break
            known = len(compiled)
            fit = self._compiled(preparation, plan, compiled)
            # A plan that another attempt compiled does not count, unless only one try is allowed.
            new += len(compiled) > known or tries == 1
            result = fit.result
            if result.keeps(self.budget):
                return fit
            if best is None or result.nbytes < smallest:
                smallest, best = min(smallest, result.nbytes), plan
            following = targets.after(target, plan.predicted, result)
            if following is None:
                break
            target = following
        best = best or self._plan(preparation, target)
        blockers = blockers_of(best)
        if smallest <= self.budget:
            words = "the compiler refuses it: the device has less memory than the budget"
            blockers.insert(0, words)
        raise BudgetError(budget=self.budget, smallest=smallest, blockers=blockers)

    def _compiled(self, preparation: Rewritten, plan: Plan, compiled: list[Fit]) -> Fit:
        """The compiled plan, appended to `compiled`; a plan already there moves to its end."""
        for at, fit in enumerate(compiled):
            if fit.plan.graph is plan.graph and fit.plan.steps == plan.steps:
                compiled.append(compiled.pop(at))
                return fit
        fit = Fit(
            plan=plan,
            written=self.written,
            plain=self.plain,
            result=self._measured(plan),
            attempts=len(compiled) + 1,
            notes=preparation.notes,
            moved=preparation.moved,
        )
        compiled.append(fit)
        return fit

    def _measured(self, plan: Plan) -> Measured:
        """The compiled plan; infinitely large if the compiler ends with an internal error.

        XLA for GPUs finds no tiles for some shapes of slices, and does for others (jax 0.10.2).
        Raises other errors, which may be memsafe's fault, and all if the written program fails too.
        """
        try:
            return self.measure(emitted(plan), runs=self.runs and plan.predicted <= self.room)
        except JaxRuntimeError as error:
            if self.plain.nbytes == float("inf") or not str(error).startswith("INTERNAL"):
                raise
            self.failures.append(error)
            return Measured.of_nothing(self.plain.argument_bytes)

    def _is_worth_it(
        self, plan: Plan, target: float, slowdown: float, compiled: Sequence[Fit]
    ) -> bool:
        """Whether to compile a plan in slices. Raises BudgetError if it may fit but is too slow."""
        if not self._is_too_slow(plan, slowdown):
            return True
        is_long = len(plan.graph.equations) > LONG
        if plan.predicted > (TOO_FAR if is_long else 1.0) * target:
            return not is_long and not compiled
        needed = self.plain.argument_bytes + plan.predicted
        smallest = min(needed, self.budget) if plan.predicted <= target else needed
        raise BudgetError(budget=self.budget, smallest=smallest, slowdown=slowdown, most=self.most)

    def _slowdown(self, preparation: Rewritten, plan: Plan) -> float:
        return slowdown(plan, preparation.moved, self.written)

    def _is_too_slow(self, plan: Plan, slowdown: float) -> bool:
        """Whether a plan in slices is not worth compiling."""
        if len(plan.graph.equations) > LONG:
            return not self._is_quick(slowdown)
        return slowdown > FAR * allowed(self.most, self.written)

    def _promising(
        self,
        preparation: Rewritten,
        found: tuple[Plan, float],
        before: tuple[Plan, float] | None,
        compiled: Sequence[Fit],
    ) -> tuple[Plan, float] | None:
        """`found`, or a plan for a smaller target; None if neither is worth compiling.

        The last compiled plan in slices shows by how much predictions are too low.
        """
        plan, target = found
        if self._is_too_slow(plan, self._slowdown(preparation, plan)):
            return found
        prospects = Prospects.of(self.budget, self.plain)
        sliced = [fit for fit in compiled if fit.plan.loops and fit.result.nbytes < float("inf")]
        if not plan.loops or not sliced:
            return found
        if prospects.is_far(plan, sliced[-1]):
            target = prospects.nearer(target, sliced[-1])
            plan = self._plan(preparation, target)
            if prospects.is_far(plan, sliced[-1]):
                return None
        if before is not None and prospects.is_repeated(plan, sliced[-1]):
            return None
        return plan, target

    def _other(
        self,
        preparation: Rewritten,
        target: float,
        before: tuple[Plan, float] | None,
        most: float,
        limit: float,
    ) -> tuple[Plan, float] | None:
        """A plan, for `target` or a smaller one, that differs from the plan before; and its target.

        The plan is predicted to need at most `limit` bytes. If the compiler may store values that
        a plan counts as fused, the plan found keeps no value of more than `most` bytes.
        """
        for _ in range(_SMALLER):
            plan = self._plan(preparation, target)
            fused = plan.is_plain or (before is not None and not plan.loops)
            if fused and plan.predicted > target:
                plan = _split_above(self._planner(preparation), preparation, self.parts, most)
                return (plan, target) if plan.predicted <= limit else None
            is_other = before is None or plan.steps != before[0].steps
            if is_other and plan.predicted <= limit:
                return plan, target
            target *= _SAME
        return None


def _quickest(plans: Sequence[Plan], target: float) -> list[int]:
    """Positions of the plans predicted to fit the target, quickest first; then of the others."""
    times = [plan.elapsed if plan.predicted <= target else float("inf") for plan in plans]
    return sorted(range(len(plans)), key=times.__getitem__)


def _split_above(
    planner: Planner, prepared: Rewritten, parts: tuple[Parts, ...], nbytes: float
) -> Plan:
    """A plan that splits every value and slice of more than `nbytes`, as if nothing were fused.

    XLA for CPUs leaves sums to a library, so sines that are summed are stored (jax 0.10.2).
    """
    finer = replace(
        planner,
        slice_bytes=min(planner.slice_bytes, nbytes),
        model=replace(planner.model, fuses=False),
        plans={},
        graphs={},
    )
    return finer.split_above(prepared.program, int(nbytes), parts)
