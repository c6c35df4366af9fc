"""Faults between the items and the exit code: judging, reports of workers, pages, sentences."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from assay.model.defect import KnownDefect, Measures, Upstream
from assay.model.qualification import Cause, Decision, Feature
from assay.model.verdict import ExitCode, Finding, Outcome
from assay.plugin.items import Verdicts
from tests.faults.changes import Change, alters, gives, is_killed, raises
from tests.faults.fault import CRASHED, FAILED, INSPECT, MISUSE, QUALIFY, Fault
from tests.faults.reading import COMPILES

_FAILS = "Assay itself failed (exit 3)"
_WORKER = ("-n", "1")
_DEFECT = KnownDefect(
    variants=("*",),
    expects={"*": Measures(least=0, most=0)},
    targets=("*",),
    reason="injected",
    upstream=Upstream(link="https://example.org/1"),
    last_seen="2026-11-20",
)


def _raises(place: str, *says: str, more: tuple[str, ...] = COMPILES, ends: int = CRASHED) -> Fault:
    return Fault(
        name=f"{place.partition(':')[2]} raises",
        place=f"assay.{place}",
        change=raises(),
        more=more,
        ends=ends,
        says=says,
    )


def _claim(name: str, change: Change, ends: int, *says: str) -> Fault:
    return Fault(
        name=name,
        place="assay.claims.compile:Compiles.judge",
        change=change,
        more=("-k", "compiles"),
        ends=ends,
        says=("compiles", *says),
    )


def _without_values(real: Callable[..., Verdicts]) -> Callable[..., Verdicts]:
    def stand_in(report: object) -> Verdicts:
        found = real(report)
        left = tuple(record for record in found.records if record.claim != "values-equal")
        return replace(found, records=left)

    return stand_in


def _fails_too(root: Path) -> None:
    path = root / "mysuites/test_stacks.py"
    path.write_text(path.read_text().replace("Quantity(2, Unit.COUNT)", "Quantity(3, Unit.COUNT)"))


RUNNING = (
    _raises("judge.case:judge", "assay/judge/case.py", _FAILS),
    _raises("judge.case:judge_variant", "assay/judge/case.py", _FAILS),
    _raises(
        "judge.case:judge_negative_control", "assay/judge/case.py", _FAILS, more=("-k", "compiles")
    ),
    _raises("judge.case:known_defects", "assay/judge/case.py", _FAILS),
    _raises("judge.baseline:against_baseline", "assay/judge/baseline.py", _FAILS, more=()),
    _raises("run:record_of", "1 item reached no verdict", ends=FAILED),
    _raises("run:update_baselines", "assay/run.py"),
    _raises("claims.compile:Compiles.judge", "assay/claims/compile.py", _FAILS),
    _raises("plugin.items:attach_verdicts", "assay/plugin/items.py"),
    _raises("plugin.items:conclude", "A test or a worker failed (exit 1)", ends=FAILED),
    _raises("plugin.items:check_items", "assay/plugin/items.py", ends=2),
    _raises("plugin.coverage:unused_baseline_items", "assay/plugin/coverage.py"),
    _raises("plugin.settings:Settings.parse", "assay/plugin/settings.py"),
    _raises("plugin.controller:invocation_of", "assay/plugin/controller.py"),
    _raises("report.summary:summary", "assay/report/summary.py", "(exit 3)"),
    _raises("report.formats:junit", "assay/report/formats.py", "(exit 3)"),
    _raises("report.terminal:print_run", "assay/report/terminal.py"),
    _raises("report.labels:closing_sentence", "assay/report/labels.py"),
    _raises("model.verdict:exit_code", "assay/model/verdict.py"),
    Fault(
        name="exit_code is always 0",
        place="assay.model.verdict:exit_code",
        change=gives(ExitCode.PASSED),
        prepare=_fails_too,
        ends=FAILED,
        says=("parameters",),
    ),
    _claim(
        "a claim passes without a measurement",
        gives(Finding(outcome=Outcome.PASSED)),
        CRASHED,
        _FAILS,
    ),
    _claim(
        "a claim measures NaN",
        gives(Finding(outcome=Outcome.PASSED, measured=math.nan, limit=0)),
        CRASHED,
        _FAILS,
    ),
    _claim(
        "a claim always passes",
        gives(Finding(outcome=Outcome.PASSED, measured=0, limit=0)),
        FAILED,
        "compiles.negative-control",
        "The run fails (exit 1)",
    ),
    _claim(
        "a claim always fails",
        gives(Finding(outcome=Outcome.FAILED, measured=1, limit=0)),
        FAILED,
        "The run fails (exit 1)",
    ),
    _claim(
        "a claim is never measured",
        gives(Finding(outcome=Outcome.INCONCLUSIVE)),
        FAILED,
        "(exit 1)",
    ),
    _claim(
        "a claim is unsupported", gives(Finding(outcome=Outcome.UNSUPPORTED)), FAILED, "(exit 1)"
    ),
    _claim("a claim gives nothing", gives(None), CRASHED, _FAILS),
    Fault(
        name="one claim of several is never measured",
        place="assay.claims.memory:CopiedBytes.judge",
        change=gives(Finding(outcome=Outcome.INCONCLUSIVE)),
        ends=FAILED,
        says=("copied-bytes-per-iteration", "(exit 1)"),
    ),
    Fault(
        name="one claim of several is unsupported",
        place="assay.claims.memory:CopiedBytes.judge",
        change=gives(Finding(outcome=Outcome.UNSUPPORTED)),
        ends=FAILED,
        says=("copied-bytes-per-iteration", "(exit 1)"),
    ),
    Fault(
        name="every comparison holds",
        place="assay.model.claim:Claim._compare",
        change=alters(lambda finding: replace(finding, outcome=Outcome.PASSED)),
        ends=FAILED,
        says=("negative-control", "The run fails (exit 1)"),
    ),
    Fault(
        name="every program has a known defect",
        place="assay.judge.case:known_defects",
        change=gives((_DEFECT,)),
        ends=FAILED,
        says=("fixed upstream", "The run fails (exit 1)"),
    ),
    Fault(
        name="the negative controls alone are tried",
        place="assay.plugin.items:check_items",
        change=alters(lambda items: [item for item in items if item.trial.must_fail]),
        ends=FAILED,
        says=("(exit 1)",),
    ),
    Fault(
        name="every negative control is said to fail",
        place="assay.judge.case:judge_negative_control",
        change=gives(Finding(outcome=Outcome.INCONCLUSIVE)),
        ends=FAILED,
        says=("negative-control", "(exit 1)"),
    ),
    Fault(
        name="no item is made",
        place="assay.plugin.items:check_items",
        change=gives([]),
        ends=FAILED,
        says=("missing: mine on cpu: 0 of 12 expected verdicts",),
    ),
    Fault(
        name="verdicts are dropped on their way",
        place="assay.plugin.items:attach_verdicts",
        change=gives(None),
        ends=FAILED,
        says=("12 items reached no verdict",),
    ),
    Fault(
        name="verdicts are dropped on their way from a worker",
        place="assay.plugin.items:attach_verdicts",
        change=gives(None),
        more=_WORKER,
        ends=FAILED,
        says=("12 items reached no verdict",),
    ),
    Fault(
        name="verdicts are dropped where they arrive",
        place="assay.plugin.items:verdicts_of",
        change=gives(Verdicts()),
        ends=FAILED,
        says=("12 items reached no verdict",),
    ),
    Fault(
        name="one verdict of two is dropped where it arrives",
        place="assay.plugin.items:verdicts_of",
        change=_without_values,
        ends=FAILED,
        says=("1 item reached no verdict", "The run is incomplete (exit 1)"),
    ),
    Fault(
        name="a worker is killed",
        place="assay.plugin.session:Session.judge_timed",
        change=is_killed(after=1),
        more=_WORKER,
        ends=FAILED,
        says=("worker", "reached no verdict", "The run is incomplete (exit 1)"),
    ),
    Fault(
        name="a worker is killed at its first verdict",
        place="assay.plugin.session:Session.judge_timed",
        change=is_killed(),
        more=_WORKER,
        ends=FAILED,
        says=("worker", "12 items reached no verdict"),
    ),
    Fault(
        name="a worker is killed and may not be replaced",
        place="assay.plugin.session:Session.judge_timed",
        change=is_killed(after=1),
        more=(*_WORKER, "--max-worker-restart=0"),
        ends=FAILED,
        says=("worker", "reached no verdict", "The run is incomplete (exit 1)"),
    ),
)

KILLED_CONTROLLER = Fault(
    name="the controller is killed",
    place="assay.store.records:append",
    change=is_killed(after=2),
    ends=-signal.SIGKILL,
    says=(),
)

_PASSED_FEATURE = Feature(
    id="mine.stacks",
    name="Stacks",
    promise="injected",
    required=True,
    decision=Decision.PASSED,
    cause=Cause.HOLDS,
    reason="injected",
)
QUALIFYING = (
    Fault(
        name="a worker is killed while a target is qualified",
        place="assay.plugin.session:Session.judge_timed",
        change=is_killed(after=1),
        command=QUALIFY,
        more=_WORKER,
        ends=FAILED,
        says=("coverage is missing", "Not qualified at level 1 (exit 1)"),
    ),
    Fault(
        name="qualification passes every feature",
        place="assay.judge.qualification:decide",
        change=gives(_PASSED_FEATURE),
        prepare=_fails_too,
        command=QUALIFY,
        ends=CRASHED,
        says=("Assay itself failed (exit 3)",),
    ),
    Fault(
        name="qualify raises",
        place="assay.judge.qualification:qualify",
        change=raises(),
        command=QUALIFY,
        ends=CRASHED,
        after_a_good_run=True,
        says=("assay/judge/qualification.py",),
    ),
    Fault(
        name="the pages of a certificate raise",
        place="assay.report.qualification:pages",
        change=raises(),
        command=QUALIFY,
        ends=CRASHED,
        after_a_good_run=True,
        says=("assay/report/qualification.py",),
    ),
    Fault(
        name="qualify reads no records",
        place="assay.store.records:load",
        change=gives(()),
        command=QUALIFY,
        ends=MISUSE,
        says=("records.jsonl holds 0 verdicts",),
    ),
    Fault(
        name="qualify reads half of the records",
        place="assay.store.records:load",
        change=alters(lambda found: found[: len(found) // 2]),
        command=QUALIFY,
        ends=CRASHED,
        says=("Assay itself failed (exit 3)",),
    ),
)

INSPECTING = (
    Fault(
        name="an analysis raises while a program is inspected",
        place="assay.hlo.full_buffer_writes:full_writes",
        change=raises(),
        command=INSPECT,
        ends=CRASHED,
        says=("assay/hlo/full_buffer_writes.py",),
    ),
    Fault(
        name="the memory analysis raises while a program is inspected",
        place="assay.frameworks.framework:memory_of",
        change=raises(),
        command=INSPECT,
        ends=CRASHED,
        says=("assay/frameworks/framework.py",),
    ),
    Fault(
        name="the observer's process is killed while a program is inspected",
        place="assay.frameworks.jax:JaxFramework.compile",
        change=is_killed(),
        command=INSPECT,
        ends=FAILED,
        says=("the process ended by SIGKILL",),
    ),
    Fault(
        name="an empty module is inspected",
        place="assay.frameworks.framework:Compiled.hlo_proto",
        change=gives(b""),
        command=INSPECT,
        ends=CRASHED,
        says=("hlo",),
    ),
    Fault(
        name="the page raises",
        place="assay.report.inspection_output:print_inspection",
        change=raises(),
        command=INSPECT,
        ends=CRASHED,
        says=("assay/report/inspection_output.py",),
    ),
)
