"""An inspection as one JSON object; what is not known is null. The names are *fixed*."""

import json
from typing import Any

from assay.model.evidence import Evidence
from assay.model.inspection import Comparison, Difference, Inspection, Overlap
from assay.model.module import Shape, Transfer, WhileLoop
from assay.model.summary import Donation, FullBufferWrite, LiveBuffer, ModuleSummary

Json = dict[str, Any]


def to_json(inspection: Inspection, comparison: Comparison | None = None) -> str:
    """The object, indented; ``error`` and ``failure`` are there only if the program failed.

    ``diff`` is there only if the program was compared with another.
    """
    page = _inspection(inspection)
    if comparison is not None:
        page["diff"] = _comparison(comparison)
    return json.dumps(page, indent=2, ensure_ascii=False)


def _comparison(comparison: Comparison) -> Json:
    found = comparison.differences
    return {
        "before": comparison.before,
        "error": comparison.error or None,
        "differences": None if found is None else [_difference(each) for each in found],
        "notes": list(comparison.notes),
    }


def _difference(difference: Difference) -> Json:
    return {
        "aspect": difference.aspect.value,
        "text": str(difference),
        "subject": difference.subject,
        "before": difference.before,
        "after": difference.after,
        "bytes": difference.nbytes,
        "source": difference.source,
    }


def _inspection(inspection: Inspection) -> Json:
    evidence, module = inspection.evidence, inspection.evidence.module
    known = module is not None
    page: Json = {
        "subject": inspection.subject,
        "target": evidence.target or None,
        "toolchain": evidence.toolchain.identity or None,
        "means": inspection.means.value,
        "memory": _memory(inspection),
        "transfers": _transfers(module),
        "copies": [_copy(each) for each in inspection.copies] if known else None,
        "overlap": [_overlap(each) for each in inspection.overlaps] if known else None,
        "peak": [_live(each) for each in module.peak.buffers] if module and module.peak else None,
        "donations": [_donation(each) for each in module.donations] if module else None,
        "arguments": _arguments(module),
        "outputs": _outputs(module),
        "loops": [_loop(each) for each in module.loops] if module else None,
        "fingerprint": (module.fingerprint or None) if module else None,
        "warnings": list(inspection.warnings),
    }
    if inspection.error:
        page |= {"error": inspection.error, "failure": _failure(evidence)}
    return page


def _memory(inspection: Inspection) -> Json:
    memory = inspection.evidence.memory
    return {
        "temp_bytes": memory.temp_bytes if memory else None,
        "argument_bytes": memory.argument_bytes if memory else None,
        "output_bytes": memory.output_bytes if memory else None,
        "alias_bytes": memory.alias_bytes if memory else None,
        "host_temp_bytes": memory.host_temp_bytes if memory else None,
        "host_argument_bytes": memory.host_argument_bytes if memory else None,
        "host_output_bytes": memory.host_output_bytes if memory else None,
        "host_alias_bytes": memory.host_alias_bytes if memory else None,
        "peak_bytes": inspection.peak_bytes,
        "fits": inspection.fits,
        "device_bytes": memory.device_bytes if memory else None,
        "capacity_bytes": inspection.evidence.device_memory_bytes,
        "headroom_bytes": inspection.headroom_bytes,
    }


def _arguments(module: ModuleSummary | None) -> list[Json] | None:
    if module is None or module.inventory is None:
        return None
    named = zip(module.inventory.argument_names, module.inventory.arguments, strict=True)
    return [{"argument": name, **_placed(shape)} for name, shape in named]


def _outputs(module: ModuleSummary | None) -> list[Json] | None:
    if module is None or module.inventory is None:
        return None
    return [_placed(shape) for shape in module.inventory.outputs]


def _placed(shape: Shape) -> Json:
    memory = "host" if shape.on_host else "device"
    return {"shape": str(shape), "bytes": shape.nbytes, "memory": memory}


def _transfers(module: ModuleSummary | None) -> Json:
    return {
        "to_host_bytes_per_step": module.to_host_bytes_per_run if module else None,
        "to_device_bytes_per_step": module.to_device_bytes_per_run if module else None,
        "ops": [_transfer(each) for each in module.transfers] if module else None,
    }


def _transfer(transfer: Transfer) -> Json:
    return {
        "direction": transfer.direction.value,
        "opcode": transfer.opcode,
        "computation": transfer.computation,
        "instruction": transfer.instruction,
        "bytes": transfer.nbytes_per_execution,
        "trips_per_step": transfer.executions,
        "at_most": transfer.at_most,
        "bytes_per_step": transfer.nbytes_per_run,
        "source": transfer.source,
    }


def _copy(write: FullBufferWrite) -> Json:
    return {
        "computation": write.computation,
        "instruction": write.instruction,
        "bytes": write.nbytes_per_execution,
        "trips_per_step": write.executions,
        "source": write.source,
        "at_most": write.at_most,
        "bytes_per_step": write.nbytes_per_run,
        "content": write.content.value,
        "opcode": write.opcode,
        "shape": str(write.shape),
        "loop": write.loop or None,
        "in_place": write.in_place,
    }


def _overlap(overlap: Overlap) -> Json:
    pair = overlap.pair
    return {
        "kind": pair.kind.value,
        "opcode": pair.opcode,
        "computation": pair.computation,
        "start": pair.start,
        "done": pair.done,
        "bytes": pair.nbytes,
        "trips_per_step": pair.executions,
        "at_most": pair.at_most,
        "needed_seconds": overlap.needed_seconds,
        "hidden_seconds": overlap.hidden_seconds,
        "exposed_seconds_per_step": overlap.exposed_seconds_per_run,
        "between_flops": pair.between.flops if pair.between else None,
        "between_bytes": pair.between.nbytes if pair.between else None,
        "source": pair.source,
    }


def _live(buffer: LiveBuffer) -> Json:
    return {
        "buffer": buffer.name,
        "bytes": buffer.nbytes,
        "source": buffer.line,
        "holds": buffer.holds.value,
        "opcode": buffer.opcode,
        "shape": str(buffer.shape),
    }


def _donation(donation: Donation) -> Json:
    return {
        "argument": donation.argument,
        "parameter": donation.parameter_number,
        "shape": str(donation.shape),
        "bytes": donation.shape.nbytes,
        "honoured": donation.honoured,
        "output": None if donation.output_index is None else list(donation.output_index),
        "copied_by": list(donation.copied_by),
    }


def _loop(loop: WhileLoop) -> Json:
    return {
        "instruction": loop.instruction,
        "body": loop.body,
        "trips": loop.trips,
        "trips_from": loop.trips_from.value,
        "reason": loop.reason or None,
        "runs_per_step": loop.executions,
        "at_most": loop.at_most,
        "source": loop.source,
    }


def _failure(evidence: Evidence) -> Json | None:
    failure = evidence.failure
    if failure is None:
        return None
    return {
        "kind": failure.kind.value,
        "message": failure.message,
        "source": failure.line or None,
        "needed_bytes": failure.needed_bytes,
        "capacity_bytes": failure.capacity_bytes,
    }
