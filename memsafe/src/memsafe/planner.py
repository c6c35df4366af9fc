"""Finds the cheapest plan whose predicted peak keeps a budget.

The planner searches for a threshold. Values of at least that size are not kept whole. The peak of
the whole program must fit. The largest threshold that works is best, because the fewer values are
split, the less is computed twice. Then values that loops recompute are kept again while they fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import tee
from typing import TYPE_CHECKING

from memsafe.candidates import Candidate, candidate, usage_of, wanted_from
from memsafe.device_model import CPU, DeviceModel
from memsafe.emit import step_signature, traced_step
from memsafe.graph import Graph
from memsafe.jax_internals import inside_of
from memsafe.keeping import recomputed_groups, thresholds, untangled, values_above
from memsafe.plan import LONG, Loop, Plan, Whole
from memsafe.programs import signature
from memsafe.region import Region
from memsafe.region_costs import slice_bytes, step_work
from memsafe.slice_length import slice_length

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from jax.extend.core import ClosedJaxpr, Var

    from memsafe.rewrites import Rewritten
    from memsafe.shards import Parts

    Placed = tuple[Parts, ...]

__all__ = ["Planner"]

_TRIED = 3
"""Maximum number of candidates that are fully planned before the smallest plan is taken."""

_SPARER = 2
"""Maximum number of candidates that keep fewer values, tried to make room for costlier ones."""

_KEPT = 6
"""Maximum number of groups of values that each round tries to keep instead of recomputing."""

_DEPTH = 4
"""Maximum number of nested loops."""

_ROUNDS = 2
"""Maximum number of groups that are kept in the end, one in each round."""

_FREE = 1.1
"""Up to this multiple of the work of the program as written, a plan is not worth improving."""

_FREE_INSIDE = 1.5
"""Like `_FREE`, but inside a loop, where the work saved is only a part of the whole."""

_CRUMBS = 256
"""Each step may take the budget divided by this; before, nested loops had slices of 8 bytes."""

_WAY = 16
"""Maximum number of kept equations that a loop of a lean plan takes in to reach one more sink.

Kept equations gain nothing in a loop. Their slices have other shapes than elsewhere, so they are
one more program to the compiler. An encoder whose loop spans from its last attention to the
derivative of that attention takes half as long again to compile.
"""

_LEAN = 1.08
"""Maximum work of a lean plan over that of a plan whose loops are shared at any price."""


@dataclass(slots=True, kw_only=True)
class Planner:
    """Plans programs for one kind of device.

    Attributes:
        slice_bytes: Bytes of a slice that keep the device busy. Larger slices are not faster.
        model: Cost model of the device.
        depth: Maximum number of nested loops.
        plans: The plans it has made, by program, budget and depth.
        recompute: Yields variants of a program that recompute what its loops keep, cheapest first.
        steps: Single steps of loops, as programs.
        recomputing: Variants of each step that recompute values.
        graphs: The programs that it has planned.
        candidates: Candidates that keep no value of a size or more, by program and size in bytes.
        looped: Candidates that split a given set of values, by program, set and `way`.
        least: Bytes that every step may take, however deep it is; 0: a share of the budget.
        most: Maximum time of a plan that is improved further, as a multiple of its program's time.
        across: Whether loops may run along dimensions that are divided over several devices.
    """

    slice_bytes: float
    model: DeviceModel = CPU
    depth: int = _DEPTH
    plans: dict[Hashable, Plan] = field(default_factory=dict)
    recompute: Callable[[ClosedJaxpr], Iterator[Rewritten]] = lambda _: iter(())
    steps: dict[Hashable, ClosedJaxpr] = field(default_factory=dict)
    recomputing: dict[Hashable, Iterator[Rewritten]] = field(default_factory=dict)
    graphs: dict[Hashable, Graph] = field(default_factory=dict)
    candidates: dict[Graph, dict[int, Candidate | None]] = field(default_factory=dict)
    looped: dict[Hashable, Candidate] = field(default_factory=dict)
    least: float = 0.0
    most: float = math.inf
    across: bool = False

    def plan(
        self, closed: ClosedJaxpr, budget: float, parts: Placed = (), *, is_optional: bool = False
    ) -> Plan:
        """The cheapest plan found within `budget` bytes without the arguments, or the smallest.

        `parts` says how the arguments are divided over devices; bytes are then those of one device.
        A plan `is_optional` if the program fits as it is. Then a plan of much work is not improved:
        of 715 such plans, 52 were much work, and none reached `_FREE` when improved (2026-11-29).
        """
        if not self.least:
            least = max(budget / _CRUMBS, 1.0)
            return replace(self, least=least).plan(closed, budget, parts, is_optional=is_optional)
        program = signature(closed), parts, self.across
        key = (program, self.depth, _magnitude(budget), _magnitude(self.least), is_optional)
        if key not in self.plans:
            if program not in self.graphs:
                self.graphs[program] = Graph(closed, parts, self.model, self.across)
            self.plans[key] = self._found(self.graphs[program], budget, is_optional=is_optional)
        return self.plans[key]

    def plan_of_step(self, step: ClosedJaxpr, available: float, parts: Placed) -> Plan:
        """The plan of a step for `soft` bytes, or for all `available` bytes if that is less work.

        If slices do not fit or take longer, the plan recomputes what the loops of the step keep.
        """
        whole = self.plan(step, math.inf, parts)
        fits = whole.predicted <= available
        plan = self.plan(step, min(self.soft, available), parts, is_optional=fits)
        if self.soft < available and 1 + plan.share_again > _FREE:
            plan = min(plan, self.plan(step, available, parts), key=lambda one: one.work)
        if plan.predicted <= available and 1 + plan.share_again <= _FREE:
            return plan
        smallest = plan
        for each in self._with_values_again(step):
            again = self.plan(each.program, math.inf, parts)
            again = replace(again, written=whole.graph, notes=each.notes)
            if again.predicted <= available:
                quicker = plan.predicted <= available and plan.elapsed <= again.elapsed
                return plan if quicker else again
            smallest = min(smallest, again, key=lambda one: one.predicted)
        return smallest

    def split_above(self, closed: ClosedJaxpr, threshold: int, parts: Placed = ()) -> Plan:
        """The plan that keeps no value of more than `threshold` bytes, whatever the peak."""
        if not self.least:
            return replace(self, least=self.slice_bytes).split_above(closed, threshold, parts)
        graph = Graph(closed, parts, self.model, self.across)
        chosen = candidate(graph, values_above(graph, threshold + 1))
        return self._realized(chosen, self.slice_bytes)

    def _found(self, graph: Graph, budget: float, *, is_optional: bool) -> Plan:
        best = self._realized(self._candidate(graph, set()), budget)
        if best.predicted <= budget:
            return best
        candidates = self._candidates(graph, budget)
        for at, each in enumerate(candidates[:_TRIED]):
            plan = self._realized(each, budget)
            if plan.predicted <= budget:
                is_hopeless = is_optional and plan.work > self._free * graph.costs.work
                others = candidates[at + 1 :]
                return plan if is_hopeless else self._improved(each, plan, others, budget)
            best = min(best, plan, key=lambda one: one.predicted)
        return best

    def _improved(
        self, chosen: Candidate, plan: Plan, others: Sequence[Candidate], budget: float
    ) -> Plan:
        """`plan` with less recomputed, or a cheaper plan of `others`; either with less to compile.

        `others` keep fewer values, so there is room to keep those that are most work to recompute.
        """
        cost, chosen, plan = self._refined(chosen, plan, budget)
        if plan.work <= self._free * plan.graph.costs.work or self._is_far(plan, cost):
            return self._lean(chosen, plan, budget)
        sparer = sorted(others, key=lambda other: len(other.split))
        for each in [other for other in sparer if len(other.split) > len(chosen.split)][:_SPARER]:
            spare = self._realized(each, budget)
            if spare.predicted <= budget:
                other_cost, other, other_plan = self._refined(each, spare, budget)
                if other_cost < cost:
                    return self._lean(other, other_plan, budget)
        return self._lean(chosen, plan, budget)

    def _is_far(self, plan: Plan, cost: float) -> bool:
        """Whether the plan of a long program takes so long that no improved plan will do."""
        is_long = self.depth == _DEPTH and len(plan.graph.equations) > LONG
        return is_long and self.model.cached * cost > self.most * plan.graph.costs.work

    @property
    def _free(self) -> float:
        return _FREE if self.depth == _DEPTH else _FREE_INSIDE

    def _candidates(self, graph: Graph, budget: float) -> list[Candidate]:
        """Candidates predicted to fit, the cheapest first; if there are none, the smallest one."""
        sizes = thresholds(graph, budget)
        seen: dict[int, tuple[float, float, Candidate | None]] = {}

        def fits(at: int) -> bool:
            if at not in seen:
                each = self._above(graph, sizes[at])
                estimate = self._estimate(each, budget) if each else (math.inf, math.inf)
                seen[at] = (*estimate, each)
            return seen[at][0] <= budget

        low, high = 0, len(sizes)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle + 1, high)
        beyond = 1
        while low + beyond < len(sizes):
            fits(low + beyond)
            beyond *= 2
        if low == len(sizes):  # Smaller thresholds are not always better.
            next((at for at in range(len(sizes)) if fits(at)), None)
        good = sorted((one for one in seen.values() if one[0] <= budget), key=lambda one: one[1])
        bad = sorted((one for one in seen.values() if one[0] > budget), key=lambda one: one[0])
        return [each for *_, each in good if each] or [each for *_, each in bad[:1] if each]

    def _above(self, graph: Graph, threshold: int) -> Candidate | None:
        """The candidate that keeps no value of `threshold` bytes or more; None if `Tangled`."""
        known = self.candidates.setdefault(graph, {})
        if threshold not in known:
            is_tangled = any(found is None and size > threshold for size, found in known.items())
            known[threshold] = None if is_tangled else untangled(graph, threshold)
        return known[threshold]

    def _candidate(self, graph: Graph, split: set[Var], way: int | None = None) -> Candidate:
        if (key := (graph, frozenset(split), way)) not in self.looped:
            self.looped[key] = candidate(graph, split, way)
        return self.looped[key]

    def _lean(self, chosen: Candidate, plan: Plan, budget: float) -> Plan:
        """A plan with less to compile, if it fits and costs little more; else `plan`."""
        other = self._candidate(chosen.graph, chosen.split, _WAY)
        if other.in_loops >= chosen.in_loops or other.work > _LEAN * chosen.work:
            return plan
        lean = self._realized(other, budget)
        return lean if lean.predicted <= budget else plan

    def _refined(
        self, chosen: Candidate, plan: Plan, budget: float
    ) -> tuple[float, Candidate, Plan]:
        """The cost, candidate and plan after keeping values of `chosen` that several loops compute.

        Values are kept where they fit and lower the cost.
        """
        _, cost = self._estimate(chosen, budget)
        if chosen.work <= self._free * chosen.graph.costs.work:
            return cost, chosen, plan
        for _ in range(_ROUNDS):
            others = [
                self._candidate(chosen.graph, chosen.split - group)
                for group in recomputed_groups(chosen, budget)[:_KEPT]
            ]
            rated = [
                (*self._estimate(other, budget, fitting=True), at)
                for at, other in enumerate(others)
            ]
            good = [(other_cost, at) for nbytes, other_cost, at in rated if nbytes <= budget]
            lowest, at = min(good, default=(cost, -1))
            if lowest >= cost:
                break
            better = self._realized(others[at], budget, fitting=True)
            if better.predicted > budget:
                break
            chosen, cost, plan = others[at], lowest, better
        return cost, chosen, plan

    def _estimate(
        self, each: Candidate, budget: float, *, fitting: bool = False
    ) -> tuple[float, float]:
        """Predicted peak and cost, trusting that a slice too large can be split again."""
        graph, found = each.graph, usage_of(each)
        transient = [
            self._transient(graph, item, self._left(budget, alive), fitting=fitting)
            for item, alive in zip(each.order, found.during, strict=True)
        ]
        cost = each.work
        for item, nbytes in zip(each.order, transient, strict=True):
            if isinstance(item, Region):
                whole = slice_bytes(graph, item, item.size)
                steps = max(1.0, whole / max(min(nbytes, self.soft), 1.0))
                cost += steps * step_work(graph, item)
        return found.peak(transient).nbytes, cost

    def _transient(
        self, graph: Graph, item: int | Region, available: float, *, fitting: bool
    ) -> float:
        if isinstance(item, Region):
            one = slice_bytes(graph, item, item.least)
            if self._nests(one, available):
                return min(one, available, self.soft)
            length = slice_length(graph, item, available, self.slice_bytes, fitting=fitting)
            return slice_bytes(graph, item, length)
        plans = self._body_plans(graph, item, available).values()
        return max((plan.predicted for plan in plans), default=0.0)

    def _body_plans(self, graph: Graph, index: int, available: float) -> dict[str, Plan]:
        """The plans of the programs that an equation runs."""
        sub_jaxprs = graph.sub_jaxprs.get(index)
        if sub_jaxprs is None:
            return {}
        parts = graph.body_parts[index]
        with inside_of(graph.equations[index]):
            return {name: self.plan(body, available, parts) for name, body in sub_jaxprs.items()}

    def _realized(self, each: Candidate, budget: float, *, fitting: bool = False) -> Plan:
        """The plan of `each`, with loops inside loops planned too."""
        graph, wanted, found = each.graph, each.wanted(), usage_of(each)
        steps: list[Loop | Whole] = []
        transient: list[float] = []
        for item, alive in zip(each.order, found.during, strict=True):
            available = self._left(budget, alive)
            if isinstance(item, Region):
                loop = self._loop(graph, item, wanted, available, fitting=fitting)
                steps.append(loop)
                transient.append(loop.transient)
            else:
                steps.append(self._whole(graph, item, available))
                transient.append(self._transient(graph, item, available, fitting=fitting))
        reached = found.peak(transient)
        inside = [(turns, one.again) for step in steps for turns, one in step.inside(graph)]
        halos = (step.halo_work(graph) for step in steps if isinstance(step, Loop))
        work = each.work + sum(halos)
        again = sum(turns * again for turns, (again, _) in inside)
        in_slices = each.in_slices * (1 + again / max(each.work, 1.0))
        moved = each.traffic + sum(turns * moved for turns, (_, moved) in inside)
        return Plan(
            graph=graph,
            steps=tuple(steps),
            predicted=reached.nbytes,
            live=found.live(reached.unit, graph.size.__getitem__),
            fullest=steps[reached.unit] if steps else None,
            work=work + again,
            time=work + again - (1 - self.model.cached) * in_slices,
            traffic=moved,
            obstacles=tuple(each.obstacles),
        )

    def _loop(
        self, graph: Graph, region: Region, wanted: set[Var], available: float, *, fitting: bool
    ) -> Loop:
        leaving = tuple((at, tuple(v)) for at, v in wanted_from(region, graph, wanted))
        one = slice_bytes(graph, region, region.least)
        if self._nests(one, available):
            loop = Loop(region=region, length=region.least, leaving=leaving, transient=one)
            divided = (graph.divided.get(value, ()) for value in region.inputs(graph))
            within = replace(self, depth=self.depth - 1)
            inner = within.plan_of_step(self._step(graph, loop), available, ((), (), *divided))
            worth = one > available or 1 + inner.share_again <= _FREE
            if inner.predicted < one and worth:
                return replace(loop, inner=inner, transient=inner.predicted)
        length = slice_length(graph, region, available, self.slice_bytes, fitting=fitting)
        transient = slice_bytes(graph, region, length)
        return Loop(region=region, length=length, leaving=leaving, transient=transient)

    def _with_values_again(self, step: ClosedJaxpr) -> Iterator[Rewritten]:
        """Variants of a step that recompute what its loops keep, each made only when requested."""
        key = signature(step)
        known = self.recomputing[key] if key in self.recomputing else self.recompute(step)
        self.recomputing[key], again = tee(known)
        return again

    def _step(self, graph: Graph, loop: Loop) -> ClosedJaxpr:
        """One step of `loop` as a program; loops over equal layers share one program."""
        key = step_signature(graph, loop)
        if key not in self.steps:
            self.steps[key] = traced_step(graph, loop)
        return self.steps[key]

    def _nests(self, one: float, available: float) -> bool:
        """Whether the shortest slice, of `one` bytes, should be split by an inner loop."""
        return self.depth > 1 and one > min(self.soft, available)

    @property
    def soft(self) -> float:
        """The bytes of a slice beyond which it is split again although it fits."""
        return 8 * self.slice_bytes

    def _left(self, budget: float, alive: float) -> float:
        """Bytes that a step may take: what the budget leaves, with a minimum against slow loops."""
        return max(budget - alive, budget / 64, self.least)

    def _whole(self, graph: Graph, index: int, available: float) -> Whole:
        plans = self._body_plans(graph, index, available)
        changed = {name: plan for name, plan in plans.items() if not plan.is_as_written}
        return Whole(equation=index, sub_jaxprs=changed)


def _magnitude(budget: float) -> int:
    """The key of a budget: budgets within a tenth of each other share a plan."""
    return round(8 * math.log2(min(max(budget, 1.0), 1e30)))
