"""Faults of what is read: HLO, the compiler's answers, and the framework's adapter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.model.evidence import Memory, Tensor
from tests.faults.changes import alters, gives, raises
from tests.faults.fault import CRASHED, FAILED, Fault

_KIB = 1024
COMPILES = ("-k", "compiles and looped")
"""One verdict is enough to see that a part of all of them fails."""

_ANALYSES = (
    "assignment:BufferAssignment.from_proto",
    "full_buffer_writes:donations",
    "trip_count:executions",
    "fingerprint:fingerprint",
    "summary:inventory",
    "summary:loops",
    "module:Module.from_proto",
    "overlap:overlaps",
    "peak:peak",
    "full_buffer_writes:full_writes",
    "schema:split",
    "summary:transfers",
    "trip_count:TripCounter.__init__",
)
_ADAPTER = (
    "frameworks.framework:Compiled.hlo_proto",
    "frameworks.framework:Compiled.memory",
    "frameworks.jax:JaxFramework.compile",
    "frameworks.jax:JaxFramework.describe",
    "frameworks.jax:JaxFramework.execute",
    "frameworks.jax:JaxFramework.lower",
    "frameworks.jax:JaxFramework.trace",
    "frameworks.framework:memory_of",
    "frameworks.installed:framework",
    "targets.devices:live_devices",
    "targets.jax_internals:compile_with_dump",
)


def _file(place: str) -> str:
    return "assay/" + place.partition(":")[0].replace(".", "/") + ".py"


def _none(_: Memory) -> Memory:
    return Memory(temp_bytes=0, argument_bytes=0, output_bytes=0, alias_bytes=0, host_temp_bytes=0)


def _in_kib(memory: Memory) -> Memory:
    return replace(memory, temp_bytes=memory.temp_bytes // _KIB)


def _zeros(results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(replace(each, data=bytes(len(each.data))) for each in results)


def _of_no_bytes(full_buffer_writes: Any) -> Any:
    return tuple(replace(each, bytes=0) for each in full_buffer_writes)


READING = (
    *(
        Fault(
            name=f"{place.partition(':')[2]} raises",
            place=f"assay.hlo.{place}",
            change=raises(),
            more=COMPILES,
            ends=CRASHED,
            says=(_file(f"hlo.{place}"), "Assay itself failed (exit 3)"),
        )
        for place in _ANALYSES
    ),
    *(
        Fault(
            name=f"{place.partition(':')[2]} raises",
            place=f"assay.{place}",
            change=raises(),
            more=COMPILES,
            ends=CRASHED,
            says=(_file(place), "Assay itself failed (exit 3)"),
        )
        for place in _ADAPTER
    ),
    Fault(
        name="no whole write is found",
        place="assay.hlo.full_buffer_writes:full_writes",
        change=gives(()),
        ends=FAILED,
        says=("copied-bytes-per-iteration", "The run fails (exit 1)"),
    ),
    Fault(
        name="the buffer assignment is lost",
        place="assay.hlo.schema:split",
        change=alters(lambda parts: (parts[0], b"")),
        ends=FAILED,
        says=("copied-bytes-per-iteration", "(exit 1)"),
    ),
    Fault(
        name="the inventory drops an argument",
        place="assay.hlo.summary:inventory",
        change=alters(lambda found: replace(found, arguments=found.arguments[1:])),
        ends=FAILED,
        says=("parameters", "The run fails (exit 1)"),
    ),
    Fault(
        name="the compiler hands over an empty module",
        place="assay.frameworks.framework:Compiled.hlo_proto",
        change=gives(b""),
        more=COMPILES,
        ends=CRASHED,
        says=("hlo", "Assay itself failed (exit 3)"),
    ),
    Fault(
        name="the compiler hands over half of a module",
        place="assay.frameworks.framework:Compiled.hlo_proto",
        change=alters(lambda proto: proto[: len(proto) // 2]),
        more=COMPILES,
        ends=CRASHED,
        says=("hlo", "Assay itself failed (exit 3)"),
    ),
    Fault(
        name="no memory is needed",
        place="assay.frameworks.framework:memory_of",
        change=alters(_none),
        ends=FAILED,
        says=("temp-bytes-at-most.negative-control", "The run fails (exit 1)"),
    ),
    Fault(
        name="temporaries are reported in KiB",
        place="assay.frameworks.framework:memory_of",
        change=alters(_in_kib),
        ends=FAILED,
        says=("temp-bytes-at-most.negative-control", "The run fails (exit 1)"),
    ),
    Fault(
        name="a run gives no results",
        place="assay.frameworks.jax:JaxFramework.execute",
        change=gives(()),
        ends=FAILED,
        says=("values-equal", "(exit 1)"),
    ),
    Fault(
        name="a run gives zeros",
        place="assay.frameworks.jax:JaxFramework.execute",
        change=alters(_zeros),
        ends=FAILED,
        says=("values-equal.negative-control", "The run fails (exit 1)"),
    ),
)
