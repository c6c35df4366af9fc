"""A default run reaches every program of the suites, and a verdict every pattern of an issue."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import Check
from assay.model.defect import UpstreamIssue, UpstreamState
from assay.model.workload import Workload, matches_any
from assay.targets import known

SUITES = Path(__file__).parents[2] / "suites"
MODULES = sorted(f"suites.{path.parent.name}.{path.stem}" for path in SUITES.glob("*/test_*.py"))


def checks() -> list[Check]:
    return [
        value
        for module in MODULES
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Check)
    ]


def workloads() -> dict[str, Workload]:
    return {f"{each.suite}/{each.name}": each for check in checks() for each in check.workloads}


def issues() -> dict[str, tuple[str, UpstreamIssue]]:
    """Each issue with its suite, by its problem."""
    return {
        each.upstream_issue.problem: (each.suite, each.upstream_issue)
        for each in workloads().values()
        if each.upstream_issue
    }


def verdicts(suite: str) -> Iterator[tuple[str, str, str]]:
    """Workload, variant and claim of what a suite can reach, negative controls among them."""
    for check in checks():
        for workload in check.workloads:
            for variant in workload.variants:
                judged = variant.name in check.negative_controls or check.covers(variant.name)
                if judged and workload.suite == suite:
                    yield workload.name, variant.name, check.claim.name


@pytest.mark.parametrize("workload", workloads().values(), ids=workloads())
def test_every_scope_names_targets_that_are_tried_by_default(workload: Workload) -> None:
    """One that names `cpu` alone is never run there: the target tried by default is `cpu:8`."""
    unreached = [
        pattern
        for scope in workload.scopes
        for pattern in scope.targets
        if not any(matches_any(name, [pattern]) for name in known())
    ]
    assert unreached == []


WITHOUT_ISSUE = {"sharded_scan"}
"""Hold on every compiler and release that is tested: no report of a failure is known."""


def test_every_suite_describes_an_issue() -> None:
    suites = {each.suite for each in workloads().values()}
    assert {suite for suite, _ in issues().values()} == suites - WITHOUT_ISSUE


@pytest.mark.parametrize(("suite", "issue"), issues().values(), ids=issues())
def test_every_pattern_of_an_issue_names_a_verdict(suite: str, issue: UpstreamIssue) -> None:
    """A misspelt one would silence the summary."""
    reached = set(verdicts(suite))
    patterns = (issue.workloads, issue.variants, issue.claims)
    shown = {each for each in reached if all(map(matches_any, each, patterns))}
    for number, kind in enumerate(patterns):
        for pattern in kind:
            assert any(matches_any(each[number], [pattern]) for each in shown), pattern
    for effect in issue.effects:
        for variant in (effect.without, effect.remedied):
            assert (effect.workload, variant, effect.claim) in reached


def test_a_known_defect_has_a_report_that_stands_somewhere_and_remedies_that_exist() -> None:
    variants: dict[str, set[str]] = {}
    for workload in workloads().values():
        variants.setdefault(workload.suite, set()).update(each.name for each in workload.variants)
    entries = [(each.suite, entry) for each in workloads().values() for entry in each.known_defects]
    assert entries
    for suite, entry in entries:
        upstream = entry.upstream
        assert upstream.state is not UpstreamState.UNKNOWN, upstream.link
        assert upstream.seen or upstream.state is UpstreamState.UNREPORTED, upstream.link
        assert set(entry.remedies.values()) <= variants[suite]
        patterns = set(entry.remedies)
        assert all(any(matches_any(name, [each]) for name in variants[suite]) for each in patterns)


def test_no_remedy_is_offered_for_itself_or_expected_to_fail_on_every_toolchain() -> None:
    for workload in workloads().values():
        for entry in workload.known_defects:
            for variant in workload.variants:
                if matches_any(variant.name, entry.variants):
                    remedy = entry.remedy(variant.name)
                    assert remedy != variant.name
                    assert not any(
                        matches_any(remedy, each.variants)
                        and matches_any(workload.name, each.workloads)
                        and not each.toolchain
                        and set(each.targets) & set(entry.targets)
                        and set(each.expects) & set(entry.expects)
                        for each in workload.known_defects
                    ), (entry.variants, remedy)
