"""The arms: ways to apply layers, uses and reads of placeholders, and the twins of each claim."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay import Arm, FailureKind, Program, Role, Steps
from suites.placeholder_trace.formulas import ContractArm
from suites.placeholder_trace.reads import READS, USES, read_program, use_program
from suites.placeholder_trace.sizes import JaxSizes, LayerSizes, StagedSizes

# PyTorch is imported when a program is asked for: where it is missing, the arms are there all the
# same, and cannot run.

CONTROL, POLICY, DEFECT, REMEDY, TWIN = (
    Role.CONTROL,
    Role.POLICY,
    Role.DEFECT,
    Role.REMEDY,
    Role.TWIN,
)


_ON_NO_CHIP = 2**30
"""Bytes of bf16 that no on-chip memory holds, in which a temporary would not show."""


def layer_arms(sizes: LayerSizes) -> tuple[Arm, ...]:
    """Layers that are run. A twin's ``scan`` traces on what it once did, or on what it might."""
    growing = replace(sizes, batches=(*sizes.batches[:-1], sizes.batches[-1] + 1))
    return (
        _looped("loop", CONTROL, "loop", sizes),
        _looped("scan", REMEDY, "scan", sizes),
        _looped("scan-layers", REMEDY, "scan-layers", sizes),
        _looped("scan-layers-pure", POLICY, "scan-layers-pure", sizes),
        _looped("twin-old-tracing", TWIN, "scan-layers", sizes, fakes="old"),
        _looped("twin-empty-on-device", TWIN, "scan-layers", sizes, fakes="empty"),
        _looped("twin-growing-batch", TWIN, "loop", growing),
    )


def _looped(name: str, role: Role, way: str, sizes: LayerSizes, fakes: str = "") -> Arm:
    program = partial(_loop_program, way, sizes, fakes)
    return Arm(name=name, role=role, reference="loop", program=program)


def _loop_program(way: str, sizes: LayerSizes, fakes: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.loops import build

    return Program(steps=Steps(count=len(sizes.batches), build=partial(build, way, sizes, fakes)))


def staged_arms(kind: str, sizes: StagedSizes) -> tuple[Arm, ...]:
    """Layers that are staged. Twins that need no layers have none: they compile at once."""
    rows = max(64 * sizes.batch * sizes.sequence, _ON_NO_CHIP // (2 * sizes.width))
    one = replace(sizes, layers=1)
    return (
        _staged("loop", CONTROL, "scan-layers", partial(_stage, kind, "loop", sizes, "")),
        _staged("scan-layers", REMEDY, "loop", partial(_stage, kind, "scan-layers", sizes, "")),
        _staged(
            "twin-old-tracing",
            TWIN,
            "scan-layers",
            partial(_stage, kind, "scan-layers", sizes, "old"),
        ),
        _staged("one-layer", CONTROL, "loop", partial(_stage, kind, "scan-layers", one, "")),
        _staged(
            "twin-in-three", TWIN, "one-layer", partial(_stage, kind, "scan-in-three", sizes, "")
        ),
        _staged("twin-many-rows", TWIN, "loop", partial(_many_rows, rows, sizes.width)),
        _staged("twin-by-the-host", TWIN, "loop", _by_the_host),
        _staged("twin-factor", TWIN, "loop", _factor),
        replace(
            _staged("twin-does-not-trace", TWIN, "loop", _does_not_trace),
            fails_with=FailureKind.TRACE,
        ),
    )


def _staged(name: str, role: Role, reference: str, program: Any) -> Arm:
    return Arm(name=name, role=role, reference=reference, program=program)


def _stage(kind: str, way: str, sizes: StagedSizes, fakes: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.staged import staged_program

    return staged_program(kind, way, sizes, fakes)


def _many_rows(rows: int, width: int, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.twins import many_rows

    return many_rows(rows, width)


def _by_the_host(devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.twins import by_the_host, by_the_host_in_loops

    # A TPU's compiler writes the loops' conditions so that nobody can tell how often they run.
    return by_the_host() if devices[0].platform == "tpu" else by_the_host_in_loops()


def _factor(_devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.twins import factor

    return factor()


def _does_not_trace(_devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.twins import mismatched

    return mismatched()


_CONTRACT = (
    ("two-of-one-shape", CONTROL, "two-of-one-shape", 2),
    ("one-used-twice", CONTROL, "one-used-twice", 1),
    ("gradient", CONTROL, "gradient", 2),
    ("optimiser-step", CONTROL, "optimiser-step", 2),
    ("one-tebibyte", CONTROL, "one-tebibyte", 1),
    ("twin-one-for-two", TWIN, "one-used-twice", 2),
)
_HASHED = (
    ("hash-of-data", CONTROL, "data"),
    ("hash-of-placeholders", CONTROL, "placeholders"),
    ("twin-hash-of-one-used-twice", TWIN, "one placeholder twice"),
)


def contract_arms() -> tuple[Arm, ...]:
    """What a placeholder must be able to stand for."""
    staged = tuple(
        ContractArm(name=name, role=role, parameters=count, program=partial(_contract, program))
        for name, role, program, count in _CONTRACT
    )
    hashed = tuple(
        Arm(name=name, role=role, reference="hash-of-data", program=partial(_hash, pair))
        for name, role, pair in _HASHED
    )
    return (*staged, *hashed)


def _contract(name: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.contract import stage

    return stage(name)


def _hash(pair: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.contract import hash_of

    return hash_of(pair)


def read_arms() -> tuple[Arm, ...]:
    """Every read, and every use that is none."""
    reads = (
        Arm(
            name=f"read-{name}",
            role=DEFECT,
            program=partial(_read, name),
            fails_with=FailureKind.TRACE,
        )
        for name in READS
    )
    uses = (Arm(name=f"use-{name}", role=CONTROL, program=partial(_use, name)) for name in USES)
    return (*reads, *uses)


def _read(name: str, _devices: Sequence[Any]) -> Program:
    return read_program(name)


def _use(name: str, _devices: Sequence[Any]) -> Program:
    return use_program(name)


def jax_arms(sizes: JaxSizes) -> tuple[Arm, ...]:
    """The same in JAX; the twin makes real arrays while it is traced."""
    return (
        Arm(name="loop", role=CONTROL, program=partial(_jax, "loop", sizes)),
        Arm(name="scan", role=CONTROL, program=partial(_jax, "scan", sizes)),
        Arm(
            name="one-layer", role=CONTROL, program=partial(_jax, "scan", replace(sizes, layers=1))
        ),
        Arm(
            name="twin-traced-on-data",
            role=TWIN,
            program=partial(_jax, "data", sizes),
            fails_with=FailureKind.TRACE,
        ),
        Arm(
            name="twin-in-three",
            role=TWIN,
            reference="one-layer",
            program=partial(_jax, "in three", sizes),
        ),
    )


def _jax(way: str, sizes: JaxSizes, devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.jax_control import jax_program

    return jax_program(way, sizes, devices)
