"""An inspection as ``assay inspect`` prints it: a page of text, or one JSON object."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay.model.evidence import Evidence
from assay.model.inspection import Comparison, Difference, Inspection, Means, Overlap
from assay.model.module import Shape, Transfer, WhileLoop
from assay.model.summary import Donation, FullBufferWrite, LiveBuffer, ModuleSummary
from assay.report.inspection_sections import ROWS, Section, count, duration, sections
from assay.report.labels import plain

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


_INDENT: Final = "  "
_WIDEST: Final = 100


def print_inspection(
    console: Console, inspection: Inspection, comparison: Comparison | None = None
) -> None:
    """Write the page; no line is wider than the console or 100 columns, but for commands."""
    width = min(console.width, _WIDEST)
    console.print(Text(_headline(inspection), style="bold"), soft_wrap=True, highlight=False)
    for line in _provenance(inspection):
        _print(console, Text(plain(line), style="dim"), width)
    if inspection.error:
        console.print()
        _print(console, Text.assemble(("ERROR ", "bold red"), plain(inspection.error)), width)
    for section in sections(inspection):
        console.print()
        _print_section(console, section, width)
    if comparison is not None:
        print_comparison(console, comparison, width)
    _print_list(console, Text("WARNINGS", style="bold yellow"), inspection.warnings, width)


def _headline(inspection: Inspection) -> str:
    target = inspection.evidence.target
    return plain(f"{inspection.subject}{f' on {target}' if target else ''}")


def _provenance(inspection: Inspection) -> Iterator[str]:
    evidence, module = inspection.evidence, inspection.evidence.module
    how = inspection.means.value
    if inspection.means is Means.COMPILED:
        yield str(evidence.toolchain)
        how = f"compiled in {duration(evidence.seconds.compile)}"
    if module:
        loops = count(len(module.loops), "loop")
        yield f"{how}; {module.instructions:,} instructions, {loops}"


def _print_section(console: Console, section: Section, width: int) -> None:
    title = Text(section.title.upper(), style="bold")
    _print(console, Text.assemble(title, "  ", (plain(section.says), section.style)), width)
    for line in _lines(section, width):
        console.print(line, soft_wrap=True, highlight=False)
    if section.more > 0:
        console.print(Text(f"{_INDENT}… and {section.more} more", style="dim"), soft_wrap=True)


def _lines(section: Section, width: int) -> Iterator[Text]:
    if not section.rows:
        return
    table = [section.heads, *[tuple(map(plain, row)) for row in section.rows]]
    widths = _widths(table, width - len(_INDENT))
    for index, row in enumerate(table):
        cells = [
            _cell(text, widths[column], right=column < section.numbers)
            for column, text in enumerate(row)
        ]
        line = Text(_INDENT + _INDENT.join(cells), style="" if index else "dim")
        line.rstrip()
        yield line


def _widths(table: Sequence[tuple[str, ...]], room: int) -> list[int]:
    """The widest cell of each column; the widest columns give way until all fit."""
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    while sum(widths) + len(_INDENT) * (len(widths) - 1) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        widths[widest] -= 1
    return widths


def _cell(text: str, width: int, *, right: bool) -> str:
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    return text.rjust(width) if right else set_cell_size(text, width)


def print_comparison(console: Console, comparison: Comparison, width: int) -> None:
    """Write how one program differs from another."""
    found = comparison.differences
    says = f"none from {comparison.before}: the same HLO but for names"
    if found is None:
        says = f"not compared with {comparison.before}: {comparison.error or 'no module to read'}"
    elif found:
        says = f"{len(found)} from {comparison.before}, the most important first"
    head = Text.assemble(("DIFFERENCES", "bold"), "  ", plain(says))
    if found:
        _print_list(console, head, [str(each) for each in found], width)
    else:
        console.print()
        _print(console, head, width)
    _print_list(console, Text("NOT COMPARED", style="bold"), comparison.notes, width)


def _print_list(console: Console, head: Text, items: Sequence[str], width: int) -> None:
    if not items:
        return
    console.print()
    _print(console, head, width)
    for item in items[:ROWS]:
        lines = Text(plain(item)).wrap(console, width - 2 * len(_INDENT))
        for index, line in enumerate(lines):
            line.rstrip()
            bulleted = Text.assemble(_INDENT, "  " if index else "- ", line)
            console.print(bulleted, soft_wrap=True, highlight=False)
    if len(items) > ROWS:
        console.print(Text(f"{_INDENT}… and {len(items) - ROWS} more", style="dim"))


def _print(console: Console, text: Text, width: int) -> None:
    for line in text.wrap(console, width):
        line.rstrip()
        console.print(line, soft_wrap=True, highlight=False)
