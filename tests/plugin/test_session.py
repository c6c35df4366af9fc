"""What one pytest process holds of a device, and when it lets it go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.model.evidence import Evidence, Toolchain
from assay.model.rerun import Rerun, RerunRequest
from assay.model.timing import Sensitivity
from assay.model.workload import Level, Program, Role, Variant, Workload
from assay.plugin import session as plugin_session
from assay.plugin.session import Session
from assay.plugin.settings import Settings
from assay.run import BaselineUpdate


class FakeObserver:
    """Stands for the process that holds a device."""

    alive = 0

    def __init__(self, *_: object, **__: object) -> None:
        FakeObserver.alive += 1

    def observe(
        self, workload: Workload, variant: Variant, target: str, _growth: float | None
    ) -> Evidence:
        versions = Toolchain(versions={})
        return Evidence(
            suite=workload.suite,
            workload=workload.name,
            variant=variant.name,
            target=target,
            toolchain=versions,
        )

    def close(self) -> None:
        FakeObserver.alive -= 1


def _program(devices: Sequence[Any]) -> Program:
    raise AssertionError(devices)


VARIANT = Variant(name="variant", role=Role.CONTROL, program=_program)
WORKLOAD = Workload(suite="suite", name="workload", variants=(VARIANT,))


def _session(root: Path, target: str) -> Session:
    return Session(
        Settings(
            root=root,
            targets=(target,),
            level=Level.QUICK,
            update=BaselineUpdate.NOTHING,
            results=root / "results",
            baselines=root / "baselines",
            compile_timeout_seconds=1.0,
            memory_limit=None,
            timing_seconds=1.0,
            against="0.10.2",
            against_seconds=1.0,
            cached=True,
            named=True,
            required=(),
            history="",
            resume=None,
            process=None,
        ),
        name="run",
    )


@pytest.mark.parametrize(("target", "alive"), [("gpu", 0), ("tpu", 0), ("cpu", 1)])
def test_an_accelerator_is_free_while_two_processes_are_rerun_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, alive: int
) -> None:
    seen: list[int] = []

    def rerun(
        _workload: Workload, _variant: Variant, target: str, *_: object, **__: object
    ) -> Rerun:
        seen.append(FakeObserver.alive)
        return Rerun(suite="suite", workload="workload", variant="variant", target=target)

    monkeypatch.setattr(FakeObserver, "alive", 0)
    monkeypatch.setattr(plugin_session, "Observer", FakeObserver)
    monkeypatch.setattr(plugin_session, "rerun", rerun)
    run = _session(tmp_path, target).run
    run.measurements.evidence(WORKLOAD, VARIANT, target)
    assert FakeObserver.alive == 1
    request = RerunRequest(
        workload=WORKLOAD,
        variant=VARIANT,
        target=target,
        baseline="0.10.2",
        sensitivity=Sensitivity(least=0.02, seen=0.04),
    )
    run.measurements.rerun(request, lambda _: None)
    assert seen == [alive]
