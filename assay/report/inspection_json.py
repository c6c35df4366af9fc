"""An inspection as the one JSON object of ``assay inspect --json``."""

import json
from enum import Enum
from typing import Any, Final

from assay.model.evidence import Failure
from assay.model.inspection import Comparison, Difference, Inspection, Overlap
from assay.model.module import Collective, Shape, Transfer, WhileLoop
from assay.model.summary import Donation, FullBufferWrite, LiveBuffer, ModuleSummary

Json = dict[str, Any]

_KEYS: Final[dict[type, str]] = {
    Collective: "opcode devices computation instruction bytes=nbytes_per_execution "
    "trips_per_step=executions at_most bytes_per_step=nbytes_per_run source",
    Difference: "aspect subject before after bytes=nbytes source",
    Donation: "argument parameter=parameter_number shape bytes=shape.nbytes honoured "
    "output=output_index copied_by",
    Failure: "kind message source=line needed_bytes capacity_bytes",
    FullBufferWrite: "computation instruction bytes=nbytes_per_execution trips_per_step=executions "
    "source at_most bytes_per_step=nbytes_per_run content opcode shape loop in_place",
    LiveBuffer: "buffer=name bytes=nbytes source=line holds opcode shape",
    Inspection: "temp_bytes=evidence.memory.temp_bytes "
    "library_bytes=evidence.memory.library_bytes "
    "argument_bytes=evidence.memory.argument_bytes output_bytes=evidence.memory.output_bytes "
    "alias_bytes=evidence.memory.alias_bytes host_temp_bytes=evidence.memory.host_temp_bytes "
    "host_argument_bytes=evidence.memory.host_argument_bytes "
    "host_output_bytes=evidence.memory.host_output_bytes "
    "host_alias_bytes=evidence.memory.host_alias_bytes peak_bytes fits "
    "device_bytes=evidence.memory.device_bytes capacity_bytes=evidence.device_memory_bytes "
    "headroom_bytes",
    Overlap: "kind=pair.kind opcode=pair.opcode computation=pair.computation start=pair.start "
    "done=pair.done bytes=pair.nbytes trips_per_step=pair.executions at_most=pair.at_most "
    "needed_seconds hidden_seconds exposed_seconds_per_step=exposed_seconds_per_run "
    "between_flops=pair.between.flops between_bytes=pair.between.nbytes source=pair.source",
    Transfer: "direction opcode computation instruction bytes=nbytes_per_execution "
    "trips_per_step=executions at_most bytes_per_step=nbytes_per_run source",
    WhileLoop: "instruction body trips trips_from reason runs_per_step=executions at_most source",
}
"""The keys of each object; those of an inspection are the keys of ``memory``. ``key=attribute`` is
written where the two have different names.
"""


def to_json(inspection: Inspection, comparison: Comparison | None = None) -> str:
    """The object, indented; null for what is not known.

    ``error`` and ``failure`` are there only if the program failed, ``diff`` only if the program was
    compared with another.
    """
    evidence, module = inspection.evidence, inspection.evidence.module
    page: Json = {
        "subject": inspection.subject,
        "target": evidence.target or None,
        "toolchain": evidence.toolchain.identity or None,
        "means": inspection.means.value,
        "memory": object_of(inspection),
        "transfers": {
            "to_host_bytes_per_step": _at(module, "to_host_bytes_per_run"),
            "to_device_bytes_per_step": _at(module, "to_device_bytes_per_run"),
            "ops": _objects(module, "transfers"),
        },
        "copies": _objects(module and inspection, "copies"),
        "overlap": _objects(module and inspection, "overlaps"),
        "peak": _objects(module, "peak.buffers"),
        "donations": _objects(module, "donations"),
        "arguments": arrays_of(module)[0],
        "outputs": arrays_of(module)[1],
        "loops": _objects(module, "loops"),
        "fingerprint": _at(module, "fingerprint"),
        "warnings": inspection.warnings,
    }
    if inspection.error:
        failure = object_of(evidence.failure) if evidence.failure else None
        page |= {"error": inspection.error, "failure": failure}
    if comparison is not None:
        found = comparison.differences
        page["diff"] = {
            "before": comparison.before,
            "error": comparison.error or None,
            "differences": None if found is None else list(map(_difference, found)),
            "notes": comparison.notes,
        }
    return json.dumps(page, indent=2, ensure_ascii=False)


def object_of(value: Any) -> Json:
    """The record as an object with the keys of its type."""
    pairs = (field.partition("=") for field in _KEYS[type(value)].split())
    return {key: _at(value, path or key) for key, _, path in pairs}


def _difference(difference: Difference) -> Json:
    return {"aspect": difference.aspect.value, "text": str(difference), **object_of(difference)}


def _objects(value: Any, path: str) -> list[Json] | None:
    found = _at(value, path)
    return None if found is None else list(map(object_of, found))


def _at(value: Any, path: str) -> Any:
    """What the path leads to, encoded; None for an empty text and if a part of the path is None."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Shape):
        return str(value)
    return None if value == "" else value


def arrays_of(module: ModuleSummary | None) -> tuple[list[Json] | None, list[Json] | None]:
    """The arguments and the outputs; None for both if they are not known."""
    if module is None or module.inventory is None:
        return None, None
    found = module.inventory
    named = zip(found.argument_names, found.arguments, strict=True)
    return [{"argument": name, **_array(shape)} for name, shape in named], [
        _array(shape) for shape in found.outputs
    ]


def _array(shape: Shape) -> Json:
    memory = "host" if shape.on_host else "device"
    return {"shape": str(shape), "bytes": shape.nbytes, "memory": memory}
