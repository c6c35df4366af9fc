"""An inspection on the terminal: what a tired engineer wants to know, largest first."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from assay.model.inspection import Comparison, Inspection, Means
from assay.report.inspection_sections import ROWS, Section, count, duration, sections
from assay.report.labels import plain

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
