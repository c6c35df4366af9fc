"""The odd machine of a fleet is found, and equal machines are not odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from assay.fleet.cluster import carried
from assay.model.fleet import Machine, MachineRun
from assay.model.timing import Change
from assay.model.units import Unit
from assay.model.verdict import ExitCode, Outcome, Record
from assay.report.fleet_output import code_of, machines_page, print_machines
from assay.stats.machines import compared, ratios_of

PROGRAMS = [(f"program {number}",) for number in range(8)]
Samples = Mapping[str, Mapping[tuple[str, ...], list[float]]]


def times(slowness: Mapping[str, float], *, seed: int = 0, process: float = 0.02) -> Samples:
    """24 samples of each program on each machine, with the noise of processes and samples."""
    chance = np.random.default_rng(seed)
    return {
        name: {
            program: list(
                0.01
                * (1 + number)
                * factor
                * np.exp(chance.normal(0, process) + chance.normal(0, 0.02, 24))
            )
            for number, program in enumerate(PROGRAMS)
        }
        for name, factor in slowness.items()
    }


def odd(samples: Samples) -> dict[str, Change]:
    changes = {name: ratio.change for name, ratio in ratios_of(samples).items()}
    return {name: each for name, each in changes.items() if each is not Change.SAME}


@pytest.mark.parametrize("seed", range(20))
def test_equal_machines_are_not_odd(seed: int) -> None:
    found = odd(times(dict.fromkeys("abcdefgh", 1.0), seed=seed))
    assert set(found.values()) <= {Change.TOO_NOISY}


@pytest.mark.parametrize("seed", range(20))
def test_a_machine_that_is_15_percent_slower_is_found(seed: int) -> None:
    found = odd(times({**dict.fromkeys("abcdefg", 1.0), "slow": 1.15}, seed=seed))
    assert found == {"slow": Change.SLOWER}


def test_a_machine_that_is_faster_is_found() -> None:
    assert odd(times({"a": 1.0, "b": 1.0, "c": 1.0, "fast": 0.8})) == {"fast": Change.FASTER}


def test_of_three_machines_only_the_slow_one_is_odd() -> None:
    assert odd(times({"a": 1.0, "b": 1.0, "slow": 2.0})) == {"slow": Change.SLOWER}


def test_of_two_machines_both_are_odd() -> None:
    found = odd(times({"a": 1.0, "b": 2.0}))
    assert found == {"a": Change.FASTER, "b": Change.SLOWER}


def test_one_program_is_enough_for_a_machine_of_half_the_speed() -> None:
    samples = {
        name: {PROGRAMS[0]: each[PROGRAMS[0]]}
        for name, each in times({"a": 1.0, "b": 1.0, "slow": 2.0}).items()
    }
    assert odd(samples) == {"slow": Change.SLOWER}


def test_a_machine_alone_has_no_ratio() -> None:
    assert ratios_of(times({"a": 1.0})) == {}


MakeRecord = Callable[..., Record]


def runs(record_of: MakeRecord, **changed: dict[str, object]) -> tuple[Machine, ...]:
    """Three machines with the same two records, but for the fields that are changed."""
    same = {"variant": "other", "measured": 7, "unit": Unit.COUNT}
    return compared(
        [
            MachineRun(
                name=name,
                folder=name,
                exit_code=ExitCode.PASSED,
                records=(record_of(**changed.get(name, {})), record_of(**same)),
            )
            for name in ("a", "b", "c")
        ]
    )


def test_machines_with_the_same_numbers_are_not_odd(record_of: MakeRecord) -> None:
    machines = runs(record_of)
    assert not any(machine.is_odd for machine in machines)
    assert code_of(machines) is ExitCode.PASSED


def test_a_machine_with_another_number_is_odd(record_of: MakeRecord) -> None:
    machines = runs(record_of, b={"measured": 17 * 2**30})
    assert [machine.is_odd for machine in machines] == [False, True, False]
    assert code_of(machines) is ExitCode.FAILED


def test_a_machine_with_another_verdict_is_odd(record_of: MakeRecord) -> None:
    machines = runs(record_of, c={"verdict": Outcome.FAILED})
    assert [machine.is_odd for machine in machines] == [False, False, True]


@pytest.mark.parametrize("unit", [Unit.SECONDS, Unit.RATIO])
def test_a_time_that_differs_is_no_other_number(record_of: MakeRecord, unit: Unit) -> None:
    machines = runs(record_of, **{n: {"unit": unit, "measured": i} for i, n in enumerate("abc")})
    assert not any(machine.is_odd for machine in machines)


def test_a_noisy_verdict_is_not_odd(record_of: MakeRecord) -> None:
    machines = runs(record_of, c={"verdict": Outcome.INCONCLUSIVE, "measured": None})
    assert not any(machine.is_odd for machine in machines)


def test_without_a_majority_each_machine_is_named(record_of: MakeRecord) -> None:
    machines = runs(record_of, **{n: {"measured": i} for i, n in enumerate("abc")})
    assert all(machine.is_odd for machine in machines)


def shown(machines: tuple[Machine, ...]) -> str:
    text = StringIO()
    print_machines(Console(file=text, width=100), machines, Path("results/fleet"))
    return text.getvalue()


def test_the_table_names_the_odd_machine_and_its_number(record_of: MakeRecord) -> None:
    machines = runs(record_of, b={"measured": 17 * 2**30})
    for text in (shown(machines), machines_page(machines)):
        assert "1 machine unlike the fleet: b (exit 1)." in text
        assert "host-bytes of scan_stack/offload-hidden on gpu-h100:8 is passed, 17.0 GiB" in text
        assert "the fleet has passed, 16.0 GiB" in " ".join(text.split())
    assert '<a href="b/report.html">b</a>' in machines_page(machines)


def test_the_table_names_a_machine_that_was_lost(record_of: MakeRecord) -> None:
    lost = MachineRun(name="gone", why="its worker was lost 3 times (SIGKILL)")
    machines = (*runs(record_of), *compared([lost]))
    assert code_of(machines) is ExitCode.FAILED
    assert "gone: inconclusive: its worker was lost 3 times (SIGKILL)" in shown(machines)


def test_machines_get_settings_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"CI": "true", "CI_JOB_TOKEN": "secret", "XLA_FLAGS": "a"})
    assert carried() == {"CI": "true", "XLA_FLAGS": "a"}
