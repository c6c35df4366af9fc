"""The decision on each feature of a target from its records, and how strict rules are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from assay.model.qualification import (
    AcceptedDefect,
    Cause,
    Cell,
    Decision,
    Demand,
    Feature,
    FeatureRule,
    JudgedCell,
    Requirement,
    Strictness,
)
from assay.model.units import Unit
from assay.model.verdict import MUST_FAIL, Ending, ExitCode, Outcome, Record
from assay.model.workload import matches_any

_DECISIONS: Final = {
    Cause.ASSAY_FAILED: Decision.INCONCLUSIVE,
    Cause.CLAIM_FAILED: Decision.FAILED,
    Cause.DEFECT_NOT_ACCEPTED: Decision.FAILED,
    Cause.LIMIT_EXCEEDED: Decision.FAILED,
    Cause.NOT_REACHED: Decision.FAILED,
    Cause.UNDETECTED: Decision.INCONCLUSIVE,
    Cause.INCONCLUSIVE: Decision.INCONCLUSIVE,
    Cause.NOT_JUDGED: Decision.FAILED,
    Cause.UNSUPPORTED: Decision.UNSUPPORTED,
    Cause.HOLDS: Decision.PASSED,
}
_RANK: Final = {cause: rank for rank, cause in enumerate(Cause)}
_UNJUDGED: Final = {
    Outcome.ERROR: Cause.ASSAY_FAILED,
    Outcome.FAILED: Cause.CLAIM_FAILED,
    Outcome.INCONCLUSIVE: Cause.INCONCLUSIVE,
    Outcome.UNSUPPORTED: Cause.NOT_JUDGED,
}

_Records = Mapping[tuple[str, str, str], Sequence[Record]]
"""The records of a suite, by workload, variant and claim."""


def demanded(rule: FeatureRule, target: str, level: int) -> dict[Cell, Requirement]:
    """The verdicts that a feature needs on a target at a level, each with its requirement."""
    return {
        Cell(workload, variant, claim): each
        for each in rule.requirements
        if each.level <= level and matches_any(target, each.targets)
        for workload in each.workloads
        for variant in each.variants
        for claim in each.claims
    }


def later(rules: Sequence[FeatureRule], *, target: str, level: int) -> dict[str, int]:
    """The features that only a higher level decides on the target, with that level."""
    first = {
        rule.id: [each.level for each in rule.requirements if matches_any(target, each.targets)]
        for rule in rules
    }
    return {name: min(levels) for name, levels in first.items() if levels and min(levels) > level}


def qualify(
    records: Iterable[Record], rules: Sequence[FeatureRule], *, target: str, level: int
) -> tuple[Feature, ...]:
    """Decide every feature of one target; records of other targets are ignored.

    A feature that no requirement applies to is unsupported; one that only a higher level decides is
    left out.
    """
    by_suite: dict[str, dict[tuple[str, str, str], list[Record]]] = {}
    for each in records:
        if each.target == target:
            mine = by_suite.setdefault(each.suite, {})
            mine.setdefault((each.workload, each.variant, each.claim), []).append(each)
    not_yet = later(rules, target=target, level=level)
    return tuple(
        decide(rule, demanded(rule, target, level), by_suite.get(rule.suite, {}))
        for rule in rules
        if rule.id not in not_yet
    )


def decide(rule: FeatureRule, cells: Mapping[Cell, Requirement], records: _Records) -> Feature:
    """Decide a feature by the first cause of its verdicts, in the order of ``Cause``.

    It passes only if every verdict that the rule names was reached in this run and its claim holds,
    or fails by a known defect that the rule accepts, and if every negative control of every claim
    failed it in the same run and workload. A verdict that is missing fails the feature. If no claim
    could be judged at all, the feature is unsupported.
    """
    judged = tuple(_judged(cell, needed, records) for cell, needed in cells.items())
    worst = min(judged, key=lambda each: _RANK[each.cause], default=None)
    cause = worst.cause if worst else Cause.UNSUPPORTED
    if judged and all(each.cause is Cause.NOT_JUDGED for each in judged):
        cause = Cause.UNSUPPORTED
    return Feature(
        id=rule.id,
        name=rule.name,
        promise=rule.promise,
        required=rule.required and bool(cells),
        decision=_DECISIONS[cause],
        cause=cause,
        reason=worst.reason if worst else rule.elsewhere,
        known_defects=_accepted(judged, cells, records) if cause is Cause.HOLDS else (),
        cells=judged,
    )


def _judged(cell: Cell, needed: Requirement, records: _Records) -> JudgedCell:
    """The verdict; of several records of one cell, the worst counts."""
    empty = JudgedCell(
        **cell._asdict(),
        cause=Cause.NOT_REACHED,
        verdict=None,
        measured=None,
        limit=None,
        at_most=needed.at_most.get(cell.claim),
        unit=Unit.BYTES,
        reason="",
        negative_controls=dict.fromkeys(needed.claims[cell.claim]),
    )
    found = [_seen(empty, each, needed, records) for each in records.get(cell, ())]
    return min(found, key=lambda each: _RANK[each.cause], default=empty)


def _seen(empty: JudgedCell, record: Record, needed: Requirement, records: _Records) -> JudgedCell:
    controls = [
        each
        for (workload, _, claim), group in records.items()
        if (workload, claim) == (record.workload, record.claim + MUST_FAIL)
        for each in group
        if each.run == record.run
    ]
    cause = _cause(record, needed)
    reason = record.reason
    blind = any(each.verdict is Outcome.FAILED for each in controls)
    if cause is Cause.HOLDS or (cause is Cause.INCONCLUSIVE and blind):
        cause, reason = _vouched(needed.claims[record.claim], controls) or (cause, reason)
    return replace(
        empty,
        cause=cause,
        verdict=record.verdict,
        measured=record.measured,
        limit=record.limit,
        unit=record.unit,
        reason=reason,
        negative_controls=empty.negative_controls
        | {each.variant: each.verdict for each in controls},
    )


def _cause(record: Record, needed: Requirement) -> Cause:
    """What the verdict alone says."""
    if record.verdict is Outcome.KNOWN_DEFECT:
        is_accepted = record.variant in needed.known_defects
        return Cause.HOLDS if is_accepted else Cause.DEFECT_NOT_ACCEPTED
    if not record.verdict.holds:
        return _UNJUDGED[record.verdict]
    most = needed.at_most.get(record.claim)
    is_within = most is None or (record.measured is not None and record.measured <= most)
    return Cause.HOLDS if is_within else Cause.LIMIT_EXCEEDED


def _vouched(named: Sequence[str], controls: Sequence[Record]) -> tuple[Cause, str] | None:
    """Why the negative controls do not prove the detector, None if every one failed the claim."""
    for each in controls:
        if each.verdict is Outcome.ERROR:
            return Cause.ASSAY_FAILED, each.reason
    if missing := set(named) - {each.variant for each in controls}:
        return Cause.NOT_REACHED, ", ".join(sorted(missing))
    for each in controls:
        if each.verdict is not Outcome.PASSED:
            return Cause.UNDETECTED, each.reason
    return None if controls else (Cause.UNDETECTED, "")


def _accepted(
    judged: Iterable[JudgedCell], cells: Mapping[Cell, Requirement], records: _Records
) -> tuple[AcceptedDefect, ...]:
    """The known defects that the rule accepts, one for each variant."""
    found: dict[str, AcceptedDefect] = {}
    for each in judged:
        if each.verdict is not Outcome.KNOWN_DEFECT:
            continue
        cell = Cell(each.workload, each.variant, each.claim)
        # What was measured differs between claims; the cause does not.
        accepted = AcceptedDefect(
            variant=each.variant,
            remedy=cells[cell].known_defects[each.variant],
            reason=each.reason.partition("; seen: ")[0],
            upstream=records[cell][0].upstream,
        )
        found.setdefault(each.variant, accepted)
    return tuple(found.values())


def exit_code(features: Sequence[Feature], ending: Ending) -> ExitCode:
    """0 only if every required feature passed, none failed, and the run ended without a fault.

    At least one feature must pass. A run that was cut short keeps its own code. A feature that
    passed without verdicts that hold is a fault of Assay.
    """
    if ending.cut_short is not None:
        return ending.cut_short
    passed = [each for each in features if each.decision is Decision.PASSED]
    unfounded = any({cell.cause for cell in each.cells} != {Cause.HOLDS} for each in passed)
    failed = any(each.cause is Cause.ASSAY_FAILED for each in features)
    if ending.is_faulty or unfounded or failed:
        return ExitCode.CRASHED
    satisfied = bool(passed) and all(each.satisfies for each in features)
    return ExitCode.PASSED if satisfied else ExitCode.FAILED


def dropped(
    base: Sequence[FeatureRule], own: Sequence[FeatureRule], *, target: str, level: int
) -> tuple[Demand, ...]:
    """The demands of ``base`` on the target that ``own`` does not make, or makes less strictly."""
    mine = {rule.id: rule for rule in own}
    found: list[Demand] = []
    for rule in base:
        kept = _demands(mine[rule.id], target, level) if rule.id in mine else {}
        if not kept:
            found.append(Demand(Strictness.FEATURE, rule.id, ""))
            continue
        for demand, most in _demands(rule, target, level).items():
            own_most = kept.get(demand)
            if own_most is None or own_most > most:
                found.append(demand)
    return tuple(found)


def _demands(rule: FeatureRule, target: str, level: int) -> dict[Demand, float]:
    """What the rule demands; the number is a limit, or 0 where there is nothing to compare."""
    cells = demanded(rule, target, level)
    found = {
        Demand(Strictness.FEATURE, rule.id, ""): 0.0,
        Demand(
            Strictness.WORDING, rule.id, "; ".join((rule.name, rule.promise, rule.elsewhere))
        ): 0.0,
    }
    if rule.required:
        found[Demand(Strictness.REQUIRED, rule.id, "")] = 0.0
    for cell, needed in cells.items():
        where = f"{rule.suite}/{cell.workload}/{cell.variant}: {cell.claim}"
        found[Demand(Strictness.VERDICT, rule.id, where)] = 0.0
        if cell.variant not in needed.known_defects:
            found[Demand(Strictness.WITHOUT_DEFECT, rule.id, where)] = 0.0
        for control in needed.claims[cell.claim]:
            of = f"{rule.suite}/{cell.workload}/{control}: {cell.claim}"
            found[Demand(Strictness.NEGATIVE_CONTROL, rule.id, of)] = 0.0
        if cell.claim in needed.at_most:
            found[Demand(Strictness.LIMIT, rule.id, where)] = needed.at_most[cell.claim]
    return found
