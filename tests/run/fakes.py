"""A run without a compiler: each variant needs the temporary bytes that the test says."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay import claims
from assay.measure import Measurements
from assay.model.claim import Check, Claim, Trial
from assay.model.defect import KnownDefect
from assay.model.evidence import Evidence, Failure, Memory, Toolchain
from assay.model.target import Unavailable
from assay.model.verdict import Record
from assay.model.workload import Program, Role, Variant, Workload
from assay.run import BaselineUpdate, Run, update_baselines

TARGET = "gpu-h100:8"
OLD, NOW = {"jaxlib": "0.10.2"}, {"jaxlib": "0.12.0"}


def _program(devices: Sequence[Any]) -> Program:
    raise AssertionError(devices)


OFFLOAD = Variant(name="offload", role=Role.POLICY, program=_program, reference="save")
SAVE = Variant(name="save", role=Role.CONTROL, program=_program)
NEGATIVE_CONTROL = Variant(
    name="negative_control", role=Role.NEGATIVE_CONTROL, program=_program, reference="save"
)
WORKLOAD = Workload(suite="scan", name="stack", variants=(OFFLOAD, SAVE, NEGATIVE_CONTROL))
BASELINE_TEMP = claims.BaselineTempBytes(tolerance=0.1)


def _unmeasured(*request: object) -> Any:
    raise AssertionError(request)


@dataclass
class Observed:
    """Stands for the compilers, and counts what it was asked."""

    temp_bytes: dict[str, int] = field(
        default_factory=lambda: {"offload": 1000, "save": 2000, "negative_control": 3000}
    )
    versions: dict[str, str] = field(default_factory=lambda: dict(OLD))
    unavailable: dict[str, Unavailable] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    hlo_gz: bytes = b""
    device: str = ""
    asked: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __call__(
        self, workload: Workload, variant: Variant, target: str, _growth: float | None = None
    ) -> Evidence:
        self.asked[workload.name, variant.name, target] += 1
        return Evidence(
            suite=workload.suite,
            workload=workload.name,
            variant=variant.name,
            target=target,
            toolchain=Toolchain(versions=dict(self.versions)),
            device=self.device,
            device_memory_bytes=2**20,
            memory=Memory(
                temp_bytes=self.temp_bytes[variant.name],
                argument_bytes=0,
                output_bytes=0,
                alias_bytes=0,
                host_temp_bytes=0,
            ),
            unavailable=self.unavailable.get(variant.name),
            failure=self.failures.get(variant.name),
            hlo_gz=self.hlo_gz,
        )


@dataclass
class Harness:
    """Runs one after another over the same baselines, each with a folder of its own."""

    root: Path
    observed: Observed = field(default_factory=Observed)
    runs: int = 0

    @property
    def baselines(self) -> Path:
        return self.root / "baselines"

    def start(self, update: BaselineUpdate = BaselineUpdate.NOTHING) -> Run:
        self.runs += 1
        directory = self.root / f"run-{self.runs}"
        directory.mkdir(parents=True)
        return Run(
            name=directory.name,
            directory=directory,
            baselines=self.baselines,
            update=update,
            measurements=Measurements(
                directory=directory,
                baselines=self.baselines,
                observe=self.observed,
                time=_unmeasured,
                rerun=_unmeasured,
                most_seconds=30.0,
            ),
        )

    def judge(
        self, *trials: Trial, update: BaselineUpdate = BaselineUpdate.NOTHING
    ) -> list[Record]:
        """A whole run: every trial, then the numbers that it stored are written."""
        run = self.start(update)
        records = [run.judge_timed(trial)[0] for trial in trials]
        update_baselines(run, records)
        return records


def measuring(run: Run, **measurements: Any) -> Run:
    """The run with other measurements."""
    return replace(run, measurements=replace(run.measurements, **measurements))


def trial(
    variant: Variant = OFFLOAD,
    claim: Claim = BASELINE_TEMP,
    *,
    target: str = TARGET,
    must_fail: bool = False,
    defects: tuple[KnownDefect, ...] = (),
    negative_controls: tuple[Variant, ...] = (),
) -> Trial:
    """A trial; ``negative_controls`` are those that the plugin would find for a variant."""
    workload = Workload(
        suite=WORKLOAD.suite, name=WORKLOAD.name, variants=WORKLOAD.variants, known_defects=defects
    )
    check = Check(claim=claim, workloads=(workload,), negative_control=NEGATIVE_CONTROL.name)
    one = partial(Trial, check=check, workload=workload, target=target)
    controls = tuple(
        one(variant=negative_control, must_fail=True, variants=(variant,))
        for negative_control in negative_controls
    )
    return one(variant=variant, must_fail=must_fail, controls=controls)
