"""An inspection as ``assay inspect`` prints it: a page of sections, or one JSON object."""

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from rich.console import Console

from assay.model.evidence import Failure, Memory
from assay.model.inspection import Comparison, Difference, Inspection, Means, Overlap, why_lost
from assay.model.module import Shape, Transfer, WhileLoop
from assay.model.summary import Donation, FullBufferWrite, LiveBuffer, ModuleSummary
from assay.model.timing import format_seconds
from assay.model.units import format_bytes
from assay.report.labels import plural
from assay.report.terminal import Page, table_of

Json = dict[str, Any]

_KEYS: Final[dict[type, str]] = {
    Difference: "aspect subject before after bytes=nbytes source",
    Donation: "argument parameter=parameter_number shape bytes=shape.nbytes honoured "
    "output=output_index copied_by",
    Failure: "kind message source=line needed_bytes capacity_bytes",
    FullBufferWrite: "computation instruction bytes=nbytes_per_execution trips_per_step=executions "
    "source at_most bytes_per_step=nbytes_per_run content opcode shape loop in_place",
    LiveBuffer: "buffer=name bytes=nbytes source=line holds opcode shape",
    Inspection: "temp_bytes=evidence.memory.temp_bytes "
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
"""The keys of each object, of an inspection those of ``memory``; ``key=attribute`` where the two
have different names.
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
        "memory": _object(inspection),
        "transfers": {
            "to_host_bytes_per_step": _at(module, "to_host_bytes_per_run"),
            "to_device_bytes_per_step": _at(module, "to_device_bytes_per_run"),
            "ops": _objects(module, "transfers"),
        },
        "copies": _objects(module and inspection, "copies"),
        "overlap": _objects(module and inspection, "overlaps"),
        "peak": _objects(module, "peak.buffers"),
        "donations": _objects(module, "donations"),
        "arguments": _arrays(module)[0],
        "outputs": _arrays(module)[1],
        "loops": _objects(module, "loops"),
        "fingerprint": _at(module, "fingerprint"),
        "warnings": inspection.warnings,
    }
    if inspection.error:
        failure = _object(evidence.failure) if evidence.failure else None
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


def _object(value: Any) -> Json:
    pairs = (field.partition("=") for field in _KEYS[type(value)].split())
    return {key: _at(value, path or key) for key, _, path in pairs}


def _difference(difference: Difference) -> Json:
    return {"aspect": difference.aspect.value, "text": str(difference), **_object(difference)}


def _objects(value: Any, path: str) -> list[Json] | None:
    found = _at(value, path)
    return None if found is None else list(map(_object, found))


def _at(value: Any, path: str) -> Any:
    """What the path leads to, encoded; None for an empty text and if a part of the path is None."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Shape):
        return str(value)
    return None if value == "" else value


def _arrays(module: ModuleSummary | None) -> tuple[list[Json] | None, list[Json] | None]:
    """The arguments and the outputs."""
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


_COLUMNS: Final = 100
_ROWS: Final = 10
_NEGLIGIBLE: Final = 1000  # a buffer of less than a thousandth of the peak explains nothing
_UNKNOWN: Final = "?"
_NO_ASSIGNMENT: Final = "no buffer assignment in this dump: dump with --xla_dump_hlo_as_proto"
# jax itself drops a donation whose shape no output has, with a Python warning.
_NO_DONATION: Final = "none reaches the compiler (donate_argnums; jax drops what fits no output)"
_KEY_OF: Final = {
    "from start": "start",
    "hidden": "hidden_seconds",
    "per step": "bytes_per_step",
    "takes": "needed_seconds",
    "trips": "trips_per_step",
    "way": "direction",
}
"""The key in the JSON object of what stands under a head, if the two have different names."""


class Section(NamedTuple):
    """A line that sums up, then a table or a list, of which the first ten rows are shown.

    ``rows`` are the objects of ``--json``. The first ``numbers`` columns are bytes, seconds or
    counts. ``omitted`` counts rows that are left out already.
    """

    title: str
    text: str = ""
    style: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Json] = ()
    numbers: int = 1
    omitted: int = 0
    items: Sequence[str] = ()

    @property
    def table(self) -> list[list[str]]:
        """The rows that are shown, as text."""
        return [list(self._cells(row)) for row in self.rows[:_ROWS]]

    @property
    def more(self) -> int:
        """The number of rows and items that are not shown."""
        return self.omitted + max(0, len(self.rows) - _ROWS, len(self.items) - _ROWS)

    def _cells(self, row: Json) -> Iterator[str]:
        for column, head in enumerate(self.heads):
            value = row[_KEY_OF.get(head, head)]
            if value is None:
                yield _UNKNOWN if column < self.numbers else ""
            elif head == "trips":
                yield f"{'≤' if row['at_most'] else ''}{value:,}"
            elif isinstance(value, str):
                yield value
            else:
                yield _duration(value) if isinstance(value, float) else _size(value)


def print_inspection(
    console: Console, inspection: Inspection, comparison: Comparison | None = None
) -> None:
    """Write the page; only the first line can be wider than the console or 100 columns."""
    page = Page(console, _COLUMNS)
    evidence, module = inspection.evidence, inspection.evidence.module
    page.text((inspection.title, "bold"), wrap=False)
    how = inspection.means.value
    if inspection.means is Means.COMPILED:
        page.text((str(evidence.toolchain), "dim"))
        how = "compiled program from the cache"
        if not evidence.cached:
            how = f"compiled in {_duration(evidence.seconds.compile)}"
    if module:
        instructions = plural(module.instructions, "instruction")
        page.text((f"{how}; {instructions}, {plural(len(module.loops), 'loop')}", "dim"))
    for section in sections(inspection, comparison):
        _print_section(page, section)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Write how one program differs from another."""
    for section in _differences(comparison):
        _print_section(Page(console, _COLUMNS), section)


def _print_section(page: Page, section: Section) -> None:
    page.line()
    page.text((section.title, f"bold {section.style}"), "  ", (section.text, section.style))
    if section.rows:
        page.table(table_of(section.heads, section.table, numbers=section.numbers))
    for item in section.items[:_ROWS]:
        page.text(item, first="  - ", indent=4)
    if section.more:
        page.text((f"… and {section.more} more", "dim"), first="  ")


def sections(inspection: Inspection, comparison: Comparison | None = None) -> Iterator[Section]:
    """What is known of the program; nothing of one that failed before it was compiled."""
    evidence, module = inspection.evidence, inspection.evidence.module
    if inspection.error:
        yield Section("ERROR", inspection.error, "red")
    if evidence.memory:
        yield _memory(inspection, evidence.memory)
    elif module:
        yield Section("MEMORY", _NO_ASSIGNMENT)
    if evidence.memory and evidence.memory.host_bytes:
        yield _host_memory(evidence.memory, module)
    if module:
        yield _transfers(module, one_memory=not evidence.separate_host_memory)
        yield _copies(inspection.copies)
        yield _overlaps(inspection)
        yield _peak(module)
        yield _donations(module, inspection.lost_donations)
    if comparison:
        yield from _differences(comparison)
    if inspection.warnings:
        yield Section("WARNINGS", style="yellow", items=inspection.warnings)


def _memory(inspection: Inspection, memory: Memory) -> Section:
    needed = f"{_size(inspection.evidence.needed_bytes)} needed"
    text, style = f"{needed}; the memory of this device is not known", ""
    if (headroom := inspection.headroom_bytes) is not None:
        needed += f" of {_size(inspection.evidence.device_memory_bytes)}"
        text, style = f"fits: {needed}, {_size(headroom)} free", "green"
        if headroom < 0:
            text, style = f"DOES NOT FIT: {needed}, {_size(-headroom)} too much", "red"
    parts = {
        "temporaries": memory.temp_bytes,
        "arguments": memory.argument_bytes,
        "outputs": memory.output_bytes,
        "of them shared": memory.alias_bytes,
        "host": memory.host_bytes,
        "peak": inspection.peak_bytes,
    }
    return Section("MEMORY", text, style, tuple(parts), [parts], numbers=len(parts))


def _host_memory(memory: Memory, module: ModuleSummary | None) -> Section:
    parts = {
        "temporaries": memory.host_temp_bytes,
        "arguments": memory.host_argument_bytes,
        "outputs": memory.host_output_bytes,
        "of them shared": memory.host_alias_bytes,
    }
    arguments, outputs = _arrays(module)
    arrays = [{"holds": "argument", "name": each["argument"], **each} for each in arguments or ()]
    for number, each in enumerate(outputs or ()):
        arrays.append({"holds": "output", "name": str(number), **each})
    return Section(
        "HOST MEMORY",
        ", ".join(f"{name} {_size(nbytes)}" for name, nbytes in parts.items()),
        heads=("bytes", "holds", "name", "shape"),
        rows=[each for each in arrays if each["memory"] == "host"],
    )


def _transfers(module: ModuleSummary, *, one_memory: bool) -> Section:
    out, back = _size(module.to_host_bytes_per_run), _size(module.to_device_bytes_per_run)
    text = f"{out} to the host and {back} to the device per step"
    if not module.transfers:
        text = "none between host and device"
        if one_memory:
            text = "cannot be seen: a CPU has one memory"
    found = sorted(module.transfers, key=lambda each: -(each.nbytes_per_run or 0))
    heads = ("bytes", "trips", "way", "instruction", "source")
    return Section("TRANSFERS", text, heads=heads, rows=list(map(_object, found)), numbers=2)


def _copies(copies: Sequence[FullBufferWrite]) -> Section:
    if not copies:
        return Section("COPIES", "no full-buffer copies", "green")
    inside = sum(bool(each.loop) for each in copies)
    per_run = [each.nbytes_per_run for each in copies]
    per_step = _UNKNOWN if None in per_run else _size(sum(filter(None, per_run)))
    rows = list(map(_object, copies))
    for row in rows:
        row["what"] = f"{row['content']} {row['shape']}"
        row["source"] = row["source"] or row["instruction"]
    return Section(
        "COPIES",
        f"{inside} in loops, {len(copies) - inside} outside; {per_step} per step",
        "yellow" if inside else "",
        heads=("bytes", "trips", "per step", "loop", "what", "source"),
        rows=rows,
        numbers=3,
    )


def _overlaps(inspection: Inspection) -> Section:
    found = inspection.overlaps
    if not found:
        return Section("OVERLAP", "no asynchronous operation")
    exposed = [each.exposed_seconds_per_run for each in found]
    if inspection.device is None:
        text = "name a --target to estimate how much of their time is hidden"
    elif None in exposed:
        text = f"{exposed.count(None)} of unknown duration on this device"
    else:
        text = f"{_duration(sum(filter(None, exposed)))} per step exposed, by the device model"
    return Section(
        "OVERLAP",
        f"{plural(len(found), 'asynchronous operation')}, {text}",
        heads=("bytes", "trips", "takes", "hidden", "kind", "from start", "source"),
        rows=list(map(_object, found)),
        numbers=4,
    )


def _peak(module: ModuleSummary) -> Section:
    if (peak := module.peak) is None:
        return Section("ALIVE AT THE PEAK", _NO_ASSIGNMENT)
    line = f" ({peak.line})" if peak.line else ""
    shown = [each for each in peak.buffers if each.nbytes * _NEGLIGIBLE >= peak.nbytes]
    return Section(
        "ALIVE AT THE PEAK",
        _size(peak.nbytes) + (f" at {peak.at}{line}" if peak.at else ""),
        heads=("bytes", "holds", "buffer", "shape", "source"),
        rows=list(map(_object, shown)),
        omitted=len(peak.buffers) - len(shown),
    )


def _donations(module: ModuleSummary, lost: Sequence[Donation]) -> Section:
    given = module.donations
    if not given:
        return Section("DONATION", _NO_DONATION)
    honoured = [each.shape.nbytes for each in given if each.honoured]
    text = f"{len(honoured)} of {len(given)} honoured, {_size(sum(honoured))} reused"
    style = "green"
    if unknown := sum(each.honoured is None for each in given):
        text = (
            f"{unknown} of {len(given)} reused by an output; without a buffer assignment it is "
            "unknown whether they are also copied"
        )
        style = ""
    return Section(
        "DONATION",
        text,
        "yellow" if lost else style,
        heads=("bytes", "argument", "what became of it"),
        rows=[{**_object(each), "what became of it": why_lost(each)} for each in lost],
    )


def _differences(comparison: Comparison) -> Iterator[Section]:
    found = comparison.differences
    if found is None:
        why = comparison.error or "no module to read"
        text = f"not compared with {comparison.before}: {why}"
    elif found:
        text = f"{len(found)} from {comparison.before}, the most important first"
    else:
        text = f"none from {comparison.before}: the same HLO but for names"
    yield Section("DIFFERENCES", text, items=[str(each) for each in found or ()])
    if comparison.notes:
        yield Section("NOT COMPARED", items=comparison.notes)


def _size(nbytes: float | None) -> str:
    return _UNKNOWN if nbytes is None else format_bytes(nbytes, decimals=2)


def _duration(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else format_seconds(seconds)
