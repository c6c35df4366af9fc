"""The sections of an inspection's page: what each comes to in a line, and its rows, in words."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from assay.model.evidence import Memory
from assay.model.inspection import Inspection, Overlap, why_lost
from assay.model.module import Inventory, Transfer
from assay.model.summary import Donation, FullBufferWrite, LiveBuffer, ModuleSummary

ROWS: Final = 10
"""How many rows of a list are shown; the rest is counted."""

_NEGLIGIBLE: Final = 1000  # a buffer of less than a thousandth of the peak explains nothing
_STEP: Final = 1024
_STEPS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECOND_STEPS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))
_NANO: Final = 1e9
_UNKNOWN: Final = "?"
_NO_ASSIGNMENT: Final = "no buffer assignment in this dump: dump with --xla_dump_hlo_as_proto"
# jax itself drops a donation that no output has the shape for, and tells in a Python warning.
_NOTHING_GIVEN: Final = "none reaches the compiler (donate_argnums; jax drops what fits no output)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One block: what it comes to in a line, then rows of cells under heads.

    The first ``numbers`` columns stand to the right; ``more`` counts the rows that are left out.
    """

    title: str
    says: str
    style: str = ""
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    numbers: int = 0
    more: int = 0


def sections(inspection: Inspection) -> Iterator[Section]:
    """What the program was seen to do; nothing of what failed before it was compiled."""
    if inspection.evidence.memory or inspection.evidence.module:
        yield _memory(inspection)
    if inspection.evidence.memory and inspection.evidence.memory.host_bytes:
        yield _host_memory(inspection.evidence.memory, inspection.evidence.module)
    if inspection.evidence.module is None:
        return
    yield _transfers(inspection)
    yield _copies(inspection)
    yield _overlap(inspection)
    yield _peak(inspection)
    yield _donations(inspection)


def _memory(inspection: Inspection) -> Section:
    memory = inspection.evidence.memory
    if memory is None:
        return Section(title="Memory", says=_NO_ASSIGNMENT)
    needs = f"{_size(inspection.evidence.needed_bytes)} needed"
    headroom, capacity = inspection.headroom_bytes, inspection.evidence.device_memory_bytes
    says, style = f"{needs}; the memory of this device is not known", ""
    if headroom is not None and capacity is not None:
        fits = headroom >= 0
        says = f"{'fits' if fits else 'DOES NOT FIT'}: {needs} of {size(capacity)}"
        says += f", {size(abs(headroom))} {'free' if fits else 'too much'}"
        style = "green" if fits else "bold red"
    parts = {
        "temporaries": memory.temp_bytes,
        "arguments": memory.argument_bytes,
        "outputs": memory.output_bytes,
        "of them shared": memory.alias_bytes,
        "host": memory.host_bytes,
        "peak": inspection.peak_bytes,
    }
    row = tuple(_UNKNOWN if each is None else size(each) for each in parts.values())
    heads = tuple(parts)
    return Section(
        title="Memory", says=says, style=style, heads=heads, rows=(row,), numbers=len(heads)
    )


def _host_memory(memory: Memory, module: ModuleSummary | None) -> Section:
    parts = {
        "temporaries": memory.host_temp_bytes,
        "arguments": memory.host_argument_bytes,
        "outputs": memory.host_output_bytes,
        "of them shared": memory.host_alias_bytes,
    }
    there = tuple(_on_host(module.inventory)) if module and module.inventory else ()
    return Section(
        title="Host memory",
        says=", ".join(f"{name} {size(nbytes)}" for name, nbytes in parts.items()),
        heads=("bytes", "holds", "name", "shape") if there else (),
        rows=there[:ROWS],
        numbers=1,
        more=len(there) - ROWS,
    )


def _on_host(inventory: Inventory) -> Iterator[tuple[str, ...]]:
    """The arguments and outputs that lie in host memory."""
    for name, shape in zip(inventory.argument_names, inventory.arguments, strict=True):
        if shape.on_host:
            yield size(shape.nbytes), "argument", name, str(shape)
    for number, shape in enumerate(inventory.outputs):
        if shape.on_host:
            yield size(shape.nbytes), "output", str(number), str(shape)


def _transfers(inspection: Inspection) -> Section:
    module = inspection.evidence.module
    assert module is not None
    if not module.transfers:
        says = "none between host and device"
        if not inspection.evidence.separate_host_memory:
            says = "cannot be seen: a CPU has one memory"
        return Section(title="Transfers", says=says)
    out, back = module.to_host_bytes_per_run, module.to_device_bytes_per_run
    ordered = sorted(module.transfers, key=lambda each: -(each.nbytes_per_run or 0))
    return Section(
        title="Transfers",
        says=f"{_size(out)} to the host and {_size(back)} to the device per step",
        heads=("bytes", "trips", "way", "instruction", "source"),
        rows=tuple(map(_transfer_row, ordered[:ROWS])),
        numbers=2,
        more=len(ordered) - ROWS,
    )


def _transfer_row(transfer: Transfer) -> tuple[str, ...]:
    return (
        size(transfer.nbytes_per_execution),
        _trips(transfer.executions, at_most=transfer.at_most),
        transfer.direction.value,
        transfer.instruction,
        transfer.source or "",
    )


def _copies(inspection: Inspection) -> Section:
    found = inspection.copies
    if not found:
        return Section(title="Copies", says="no full-buffer copies", style="green")
    inside = [each for each in found if each.loop]
    per_step = _sum(each.nbytes_per_run for each in found)
    says = f"{len(inside)} in loops, {len(found) - len(inside)} outside; {_size(per_step)} per step"
    return Section(
        title="Copies",
        says=says,
        style="yellow" if inside else "",
        heads=("bytes", "trips", "per step", "loop", "what", "source"),
        rows=tuple(map(_copy_row, found[:ROWS])),
        numbers=3,
        more=len(found) - ROWS,
    )


def _copy_row(write: FullBufferWrite) -> tuple[str, ...]:
    return (
        size(write.nbytes_per_execution),
        _trips(write.executions, at_most=write.at_most),
        _size(write.nbytes_per_run),
        write.loop or "-",
        f"{write.content.value} {write.shape}",
        write.source or write.instruction,
    )


def _overlap(inspection: Inspection) -> Section:
    found = inspection.overlaps
    if not found:
        return Section(title="Overlap", says="no asynchronous operation")
    exposed = _sum(each.exposed_seconds_per_run for each in found)
    says = f"{count(len(found), 'asynchronous operation')}, "
    unknown = sum(each.exposed_seconds_per_run is None for each in found)
    if inspection.device is None:
        says += "hidden how far takes a device: name a --target"
    elif unknown:
        says += f"{unknown} of unknown duration on this device"
    else:
        says += f"{duration(exposed)} per step exposed, by the device model"
    return Section(
        title="Overlap",
        says=says,
        heads=("bytes", "trips", "takes", "hidden", "kind", "from start", "source"),
        rows=tuple(map(_overlap_row, found[:ROWS])),
        numbers=4,
        more=len(found) - ROWS,
    )


def _overlap_row(overlap: Overlap) -> tuple[str, ...]:
    pair = overlap.pair
    return (
        size(pair.nbytes),
        _trips(pair.executions, at_most=pair.at_most),
        duration(overlap.needed_seconds),
        duration(overlap.hidden_seconds),
        pair.kind.value,
        pair.start,
        pair.source or "",
    )


def _peak(inspection: Inspection) -> Section:
    module = inspection.evidence.module
    assert module is not None
    peak = module.peak
    if peak is None:
        return Section(title="Alive at the peak", says=_NO_ASSIGNMENT)
    at = f" at {peak.at}{f' ({peak.line})' if peak.line else ''}" if peak.at else ""
    shown = [each for each in peak.buffers[:ROWS] if each.nbytes * _NEGLIGIBLE >= peak.nbytes]
    return Section(
        title="Alive at the peak",
        says=f"{size(peak.nbytes)}{at}",
        heads=("bytes", "holds", "buffer", "shape", "source"),
        rows=tuple(map(_live_row, shown)),
        numbers=1,
        more=len(peak.buffers) - len(shown),
    )


def _live_row(buffer: LiveBuffer) -> tuple[str, ...]:
    return (
        size(buffer.nbytes),
        buffer.holds.value,
        buffer.name,
        str(buffer.shape),
        buffer.line or "",
    )


def _donations(inspection: Inspection) -> Section:
    module = inspection.evidence.module
    assert module is not None
    given = module.donations
    if not given:
        return Section(title="Donation", says=_NOTHING_GIVEN)
    lost = inspection.lost_donations
    unknown = sum(each.honoured is None for each in given)
    honoured = [each for each in given if each.honoured]
    nbytes = sum(each.shape.nbytes for each in honoured)
    says = f"{len(honoured)} of {len(given)} honoured, {size(nbytes)} reused"
    if unknown:
        says = (
            f"{unknown} of {len(given)} reused by an output; without a buffer assignment it is "
            "unknown whether they are also copied"
        )
    return Section(
        title="Donation",
        says=says,
        style="yellow" if lost else "" if unknown else "green",
        heads=("bytes", "argument", "what became of it") if lost else (),
        rows=tuple(map(_lost_row, lost[:ROWS])),
        numbers=1,
        more=len(lost) - ROWS,
    )


def _lost_row(donation: Donation) -> tuple[str, ...]:
    return size(donation.shape.nbytes), donation.argument, why_lost(donation)


def size(nbytes: float) -> str:
    """Bytes to three digits: ``1.25 GiB``."""
    scaled, step = float(nbytes), 0
    while abs(scaled) >= _STEP and step < len(_STEPS) - 1:
        scaled, step = scaled / _STEP, step + 1
    if step == 0:
        return f"{nbytes:.0f} B"
    return f"{_three_digits(scaled)} {_STEPS[step]}"


def duration(seconds: float | None) -> str:
    """Seconds to three digits: ``1.25 ms``."""
    if seconds is None:
        return _UNKNOWN
    if not seconds:
        return "0"
    for step, unit in _SECOND_STEPS:
        if step and seconds >= step:
            return f"{_three_digits(seconds / step)} {unit}"
    return f"{_three_digits(seconds * _NANO)} ns"


def _three_digits(value: float) -> str:
    digits = max(0, 2 - (len(str(int(abs(value)))) - 1))
    return f"{value:.{digits}f}"


def _size(nbytes: float | None) -> str:
    return _UNKNOWN if nbytes is None else size(nbytes)


def _trips(executions: int | None, *, at_most: bool) -> str:
    return _UNKNOWN if executions is None else f"{'≤' if at_most else ''}{executions:,}"


def _sum(values: Iterable[float | None]) -> float | None:
    total: float = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def count(number: int, noun: str) -> str:
    """A number with its noun: ``2 loops``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
