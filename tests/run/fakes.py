"""A run without a compiler: each arm needs the temporary bytes that the test says."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from assay import claims
from assay.model.claim import Check, Claim
from assay.model.evidence import Evidence, Failure, Memory, Toolchain, Unavailable
from assay.model.trial import Trial
from assay.model.verdict import Record
from assay.model.workload import Arm, KnownDefect, Program, Role, Workload
from assay.run import Accept, Run, accept_numbers

TARGET = "gpu-h100:8"
OLD, NOW = {"jaxlib": "0.10.2"}, {"jaxlib": "0.12.0"}


def _program(devices: Sequence[Any]) -> Program:
    raise AssertionError(devices)


OFFLOAD = Arm(name="offload", role=Role.POLICY, program=_program, reference="save")
SAVE = Arm(name="save", role=Role.CONTROL, program=_program)
TWIN = Arm(name="twin", role=Role.TWIN, program=_program, reference="save")
WORKLOAD = Workload(suite="scan", name="stack", arms=(OFFLOAD, SAVE, TWIN))
ACCEPTED_TEMP = claims.AcceptedTempBytes(tolerance=0.1)


@dataclass
class Observed:
    """Stands for the compilers, and counts what it was asked."""

    temp_bytes: dict[str, int] = field(
        default_factory=lambda: {"offload": 1000, "save": 2000, "twin": 3000}
    )
    versions: dict[str, str] = field(default_factory=lambda: dict(OLD))
    unavailable: dict[str, Unavailable] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    hlo_gz: bytes = b""
    asked: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __call__(self, workload: Workload, arm: Arm, target: str) -> Evidence:
        self.asked[workload.name, arm.name, target] += 1
        return Evidence(
            suite=workload.suite,
            workload=workload.name,
            arm=arm.name,
            target=target,
            toolchain=Toolchain(versions=dict(self.versions)),
            device_memory_bytes=2**20,
            memory=Memory(
                temp_bytes=self.temp_bytes[arm.name],
                argument_bytes=0,
                output_bytes=0,
                alias_bytes=0,
                host_temp_bytes=0,
            ),
            unavailable=self.unavailable.get(arm.name),
            failure=self.failures.get(arm.name),
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

    def start(self, accept: Accept = Accept.NOTHING) -> Run:
        self.runs += 1
        directory = self.root / f"run-{self.runs}"
        directory.mkdir(parents=True)
        return Run(
            name=directory.name,
            directory=directory,
            baselines=self.baselines,
            accept=accept,
            observe=self.observed,
        )

    def judge(self, *trials: Trial, accept: Accept = Accept.NOTHING) -> list[Record]:
        """A whole run: every trial, then the numbers that it accepted are written."""
        run = self.start(accept)
        records = [run.judge(trial) for trial in trials]
        accept_numbers(run, records)
        return records


def trial(
    arm: Arm = OFFLOAD,
    claim: Claim = ACCEPTED_TEMP,
    *,
    target: str = TARGET,
    must_fail: bool = False,
    defects: tuple[KnownDefect, ...] = (),
    twins: tuple[Arm, ...] = (),
) -> Trial:
    """A trial; ``twins`` are the negative controls that the plugin would find for an arm."""
    workload = Workload(
        suite=WORKLOAD.suite, name=WORKLOAD.name, arms=WORKLOAD.arms, known_defects=defects
    )
    check = Check(claim=claim, workloads=(workload,), twin=TWIN.name)
    one = partial(Trial, check=check, workload=workload, target=target)
    controls = tuple(one(arm=twin, must_fail=True, arms=(arm,)) for twin in twins)
    return one(arm=arm, must_fail=must_fail, controls=controls)
