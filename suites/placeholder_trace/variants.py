"""The variants: ways to apply layers, uses and reads of placeholders, negative controls."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay import FailureKind, Program, Role, Steps, Variant
from suites.placeholder_trace.formulas import ContractVariant
from suites.placeholder_trace.reads import READS, USES, read_program, use_program
from suites.placeholder_trace.sizes import JaxSizes, LayerSizes, StagedSizes

# PyTorch is imported when a program is asked for: where it is missing, the variants are there all
# the same, and cannot run.

CONTROL, POLICY, DEFECT, REMEDY, NEGATIVE_CONTROL = (
    Role.CONTROL,
    Role.POLICY,
    Role.DEFECT,
    Role.REMEDY,
    Role.NEGATIVE_CONTROL,
)


_ON_NO_CHIP = 2**30
"""Bytes of bf16 that no on-chip memory holds, in which a temporary would not show."""


def layer_variants(sizes: LayerSizes) -> tuple[Variant, ...]:
    """Layers that are run. A negative control's ``scan`` traces as it once did, or as it might."""
    growing = replace(sizes, batches=(*sizes.batches[:-1], sizes.batches[-1] + 1))
    return (
        _looped("loop", CONTROL, "loop", sizes),
        _looped("scan", REMEDY, "scan", sizes),
        _looped("scan-layers", REMEDY, "scan-layers", sizes),
        _looped("scan-layers-pure", POLICY, "scan-layers-pure", sizes),
        _looped("negative-old-tracing", NEGATIVE_CONTROL, "scan-layers", sizes, fakes="old"),
        _looped("negative-empty-on-device", NEGATIVE_CONTROL, "scan-layers", sizes, fakes="empty"),
        _looped("negative-growing-batch", NEGATIVE_CONTROL, "loop", growing),
    )


def _looped(name: str, role: Role, way: str, sizes: LayerSizes, fakes: str = "") -> Variant:
    program = partial(_loop_program, way, sizes, fakes)
    return Variant(name=name, role=role, reference="loop", program=program)


def _loop_program(way: str, sizes: LayerSizes, fakes: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.loops import build

    return Program(steps=Steps(count=len(sizes.batches), build=partial(build, way, sizes, fakes)))


def staged_variants(kind: str, sizes: StagedSizes) -> tuple[Variant, ...]:
    """Layers that are staged. Negative controls that need no layers have none."""
    rows = max(64 * sizes.batch * sizes.sequence, _ON_NO_CHIP // (2 * sizes.width))
    one = replace(sizes, layers=1)
    return (
        _staged("loop", CONTROL, "scan-layers", partial(_stage, kind, "loop", sizes, "")),
        _staged("scan-layers", REMEDY, "loop", partial(_stage, kind, "scan-layers", sizes, "")),
        _staged(
            "negative-old-tracing",
            NEGATIVE_CONTROL,
            "scan-layers",
            partial(_stage, kind, "scan-layers", sizes, "old"),
        ),
        _staged("one-layer", CONTROL, "loop", partial(_stage, kind, "scan-layers", one, "")),
        _staged(
            "negative-in-three",
            NEGATIVE_CONTROL,
            "one-layer",
            partial(_stage, kind, "scan-in-three", sizes, ""),
        ),
        _staged(
            "negative-many-rows", NEGATIVE_CONTROL, "loop", partial(_many_rows, rows, sizes.width)
        ),
        _staged("negative-by-the-host", NEGATIVE_CONTROL, "loop", _by_the_host),
        _staged("negative-factor", NEGATIVE_CONTROL, "loop", _factor),
        replace(
            _staged("negative-does-not-trace", NEGATIVE_CONTROL, "loop", _does_not_trace),
            fails_with=FailureKind.TRACE,
        ),
    )


def _staged(name: str, role: Role, reference: str, program: Any) -> Variant:
    return Variant(name=name, role=role, reference=reference, program=program)


def _stage(kind: str, way: str, sizes: StagedSizes, fakes: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.staged import staged_program

    return staged_program(kind, way, sizes, fakes)


def _many_rows(rows: int, width: int, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.negative_controls import many_rows

    return many_rows(rows, width)


def _by_the_host(devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.negative_controls import by_the_host, by_the_host_in_loops

    # A TPU's compiler writes the loops' conditions so that nobody can tell how often they run.
    return by_the_host() if devices[0].platform == "tpu" else by_the_host_in_loops()


def _factor(_devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.negative_controls import factor

    return factor()


def _does_not_trace(_devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.negative_controls import mismatched

    return mismatched()


_CONTRACT = (
    ("two-of-one-shape", CONTROL, "two-of-one-shape", 2),
    ("one-used-twice", CONTROL, "one-used-twice", 1),
    ("gradient", CONTROL, "gradient", 2),
    ("optimiser-step", CONTROL, "optimiser-step", 2),
    ("one-tebibyte", CONTROL, "one-tebibyte", 1),
    ("negative-one-for-two", NEGATIVE_CONTROL, "one-used-twice", 2),
)
_HASHED = (
    ("hash-of-data", CONTROL, "data"),
    ("hash-of-placeholders", CONTROL, "placeholders"),
    ("negative-hash-of-one-used-twice", NEGATIVE_CONTROL, "one placeholder twice"),
)


def contract_variants() -> tuple[Variant, ...]:
    """What a placeholder must be able to stand for."""
    staged = tuple(
        ContractVariant(name=name, role=role, parameters=count, program=partial(_contract, program))
        for name, role, program, count in _CONTRACT
    )
    hashed = tuple(
        Variant(name=name, role=role, reference="hash-of-data", program=partial(_hash, pair))
        for name, role, pair in _HASHED
    )
    return (*staged, *hashed)


def _contract(name: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.contract import stage

    return stage(name)


def _hash(pair: str, _devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.contract import hash_of

    return hash_of(pair)


def read_variants() -> tuple[Variant, ...]:
    """Every read, and every use that is none."""
    reads = (
        Variant(
            name=f"read-{name}",
            role=DEFECT,
            program=partial(_read, name),
            fails_with=FailureKind.TRACE,
        )
        for name in READS
    )
    uses = (Variant(name=f"use-{name}", role=CONTROL, program=partial(_use, name)) for name in USES)
    return (*reads, *uses)


def _read(name: str, _devices: Sequence[Any]) -> Program:
    return read_program(name)


def _use(name: str, _devices: Sequence[Any]) -> Program:
    return use_program(name)


def jax_variants(sizes: JaxSizes) -> tuple[Variant, ...]:
    """The same in JAX; the negative control makes real arrays while it is traced."""
    return (
        Variant(name="loop", role=CONTROL, program=partial(_jax, "loop", sizes)),
        Variant(name="scan", role=CONTROL, program=partial(_jax, "scan", sizes)),
        Variant(
            name="one-layer", role=CONTROL, program=partial(_jax, "scan", replace(sizes, layers=1))
        ),
        Variant(
            name="negative-traced-on-data",
            role=NEGATIVE_CONTROL,
            program=partial(_jax, "data", sizes),
            fails_with=FailureKind.TRACE,
        ),
        Variant(
            name="negative-in-three",
            role=NEGATIVE_CONTROL,
            reference="one-layer",
            program=partial(_jax, "in three", sizes),
        ),
    )


def _jax(way: str, sizes: JaxSizes, devices: Sequence[Any]) -> Program:
    from suites.placeholder_trace.jax_control import jax_program

    return jax_program(way, sizes, devices)
