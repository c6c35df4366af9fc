"""An inspection as ``assay inspect`` prints it: a page of sections."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final, NamedTuple

from rich.console import Console

from assay.model.evidence import Memory
from assay.model.inspection import Comparison, Inspection, Means, why_lost
from assay.model.summary import Donation, FullBufferWrite, ModuleSummary
from assay.model.timing import format_seconds
from assay.model.units import format_bytes
from assay.report.inspection_json import Json, arrays_of, object_of
from assay.report.labels import plural
from assay.report.terminal import Page, table_of

_COLUMNS: Final = 100
_ROWS: Final = 10
_NEGLIGIBLE: Final = 1000  # a buffer of less than a thousandth of the peak explains nothing
_UNKNOWN: Final = "?"
_NO_ASSIGNMENT: Final = "no buffer assignment in this dump: dump with --xla_dump_hlo_as_proto"
# jax itself drops a donation that has the shape of no output, with a Python warning.
_NO_DONATION: Final = (
    "none reaches the compiler: no argument is donated (--donate, donate_argnums), or none fits an "
    "output"
)
_KEY_OF: Final = {
    "from start": "start",
    "hidden": "hidden_seconds",
    "per step": "bytes_per_step",
    "takes": "needed_seconds",
    "trips": "trips_per_step",
    "way": "direction",
}
"""The JSON key of the values under a head, if key and head have different names."""


class Section(NamedTuple):
    """A line that sums up, then a table or a list, of which the first ten rows are shown.

    ``rows`` are the objects of ``--json``, with further keys where a head has none there. The first
    ``numbers`` columns are bytes, seconds or counts. ``omitted`` counts rows that are left out
    already.
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
    """What is known of the program; of one that did not compile, the error and the warnings."""
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
        if module.collectives:
            yield _collectives(module)
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
        **({"in libraries ≤": memory.library_bytes} if memory.library_bytes else {}),
        "arguments": memory.argument_bytes,
        "outputs": memory.output_bytes,
        "of them shared": memory.alias_bytes,
        "host": memory.host_bytes,
        "peak": inspection.peak_bytes,
    }
    items = (_held_in_libraries(memory),) if memory.library_bytes else ()
    return Section("MEMORY", text, style, tuple(parts), [parts], numbers=len(parts), items=items)


def memory_in_words(memory: Memory) -> str:
    """The bytes of a program's memory by name, and what the compiler does not report."""
    parts = (f"{each.name}={getattr(memory, each.name)}" for each in fields(memory))
    note = f", {_held_in_libraries(memory)}" if memory.library_bytes else ""
    return f"Memory({', '.join(parts)}){note}"


def _held_in_libraries(memory: Memory) -> str:
    """The part of a program's memory that the compiler does not report."""
    return (
        f"libraries hold at most {_size(memory.library_bytes)}: XLA's CPU compiler leaves "
        "operations to them and does not report their memory"
    )


def _host_memory(memory: Memory, module: ModuleSummary | None) -> Section:
    parts = {
        "temporaries": memory.host_temp_bytes,
        "arguments": memory.host_argument_bytes,
        "outputs": memory.host_output_bytes,
        "of them shared": memory.host_alias_bytes,
    }
    arguments, outputs = arrays_of(module)
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
    return Section("TRANSFERS", text, heads=heads, rows=list(map(object_of, found)), numbers=2)


def _collectives(module: ModuleSummary) -> Section:
    found = sorted(module.collectives, key=lambda each: -(each.nbytes_per_run or 0))
    return Section(
        "COLLECTIVES",
        f"a device sends {_size(module.collective_bytes_per_run)} to others per step",
        heads=("bytes", "trips", "per step", "opcode", "among", "source"),
        rows=[{**object_of(each), "among": f"{each.devices or _UNKNOWN}"} for each in found],
        numbers=3,
    )


def _copies(copies: Sequence[FullBufferWrite]) -> Section:
    if not copies:
        return Section("COPIES", "no full-buffer copies", "green")
    inside = sum(bool(each.loop) for each in copies)
    per_run = [each.nbytes_per_run for each in copies]
    per_step = _UNKNOWN if None in per_run else _size(sum(filter(None, per_run)))
    rows = list(map(object_of, copies))
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
        rows=list(map(object_of, found)),
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
        rows=list(map(object_of, shown)),
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
        rows=[{**object_of(each), "what became of it": why_lost(each)} for each in lost],
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
