"""``python -m benchmarks.story_gallery``: the plots of docs/stories, from records.

Writes a plot for each entry of stories.toml from the records in measured/, the same bytes each
time. ``--from RUN …`` first takes the records from these runs. Ends with 1 if a record is missing.
"""

import argparse
import math
import sys
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, Literal

import msgspec  # noqa: TID251 - it checks what the files hold

from assay.model.units import format_quantity
from assay.model.verdict import Outcome, Record
from assay.store import records
from assay.store.files import write_whole

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "stories"
_WIDTH: Final = 480
"""Pixels: a phone shows the texts at two thirds of their size."""
_TOP, _STEP, _BAR = 34, 38, 14
_LONGEST: Final = 350
_STYLE: Final = (
    ".p{fill:#fff}.t{fill:#1f2328}.f{fill:#59636e}.passed{fill:#0969da}.known-defect{fill:#cf222e}"
    "@media(prefers-color-scheme:dark){.p{fill:#0d1117}.t{fill:#e6edf3}.f{fill:#9198a1}"
    ".passed{fill:#4493f8}.known-defect{fill:#ff7b72}}"
    "text{font:13px 'DejaVu Sans',Verdana,Arial,sans-serif}.h{font-weight:bold}.s{font-size:11px}"
)


class Bar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bar: the record that it shows, and what the reader sees."""

    label: str
    workload: str
    variant: str
    claim: str
    target: str

    def shows(self, record: Record) -> bool:
        """Whether the record is this bar's."""
        named = (record.workload, record.variant, record.claim, record.target)
        return named == (self.workload, self.variant, self.claim, self.target)


class Plot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One plot; on a ``log`` scale bars compare numbers that differ by orders of magnitude."""

    name: str
    title: str
    suite: str
    bars: tuple[Bar, ...]
    scale: Literal["linear", "log"] = "linear"

    @property
    def measured(self) -> Path:
        """The file of its records."""
        return FOLDER / "measured" / f"{self.name}.jsonl"

    @property
    def drawn(self) -> Path:
        """The file of the plot."""
        return FOLDER / "plots" / f"{self.name}.svg"


def plots() -> tuple[Plot, ...]:
    """The plots of ``stories.toml``."""
    found = tomllib.loads((FOLDER / "stories.toml").read_text())
    return msgspec.convert(found["plot"], tuple[Plot, ...])


def matched(plot: Plot, found: Sequence[Record]) -> Iterator[tuple[Bar, Record]]:
    """Each bar with the last of its records.

    Raises:
        LookupError: a bar has no record with a number.
    """
    for bar in plot.bars:
        own = [each for each in found if each.suite == plot.suite and bar.shows(each)]
        if not own or own[-1].measured is None:
            raise LookupError(
                f"got no record of {plot.suite}/{bar.workload}/{bar.variant} {bar.claim} on "
                f"{bar.target}, wanted one with a number; run the suite, then --from RUN"
            )
        yield bar, own[-1]


def drawing(plot: Plot, found: Sequence[Record]) -> str:
    """The plot as SVG. Bars of known defects are red, and each shows its number."""
    rows = list(matched(plot, found))
    largest = max(float(record.measured or 0) for _, record in rows)
    positive = [float(record.measured) for _, record in rows if record.measured]
    height = _TOP + _STEP * len(rows) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(plot.title)}</title><style>{_STYLE}</style>",
        f'<rect class="p" width="{_WIDTH}" height="{height}"/>',
        f'<text class="t h" x="8" y="20">{escape(plot.title)}</text>',
    ]
    for number, (bar, record) in enumerate(rows):
        value, y = float(record.measured or 0), _TOP + _STEP * number
        length = _length(value, largest, min(positive, default=1.0), plot.scale)
        text = format_quantity(value, record.unit, decimals=2)
        kind = "known-defect" if record.verdict is Outcome.KNOWN_DEFECT else "passed"
        parts += [
            f'<text class="t" x="8" y="{y + 12}">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="8" y="{y + 17}" width="{length:.1f}" height="{_BAR}"/>',
            f'<text class="{kind}" x="{length + 14:.1f}" y="{y + 29}">{escape(text)}</text>',
        ]
    scale = "; logarithmic scale" if plot.scale == "log" else ""
    told = f"red: known defect{scale}; {_toolchain(rows[0][1])}"
    parts.append(f'<text class="f s" x="8" y="{height - 8}">{escape(told)}</text></svg>\n')
    return "\n".join(parts)


def _length(value: float, largest: float, least: float, scale: str) -> float:
    if not value:
        return 0.0
    if scale == "linear":
        return _LONGEST * value / largest
    return _LONGEST * (1 + math.log(value / least)) / (1 + math.log(largest / least))


def _toolchain(record: Record) -> str:
    named = [
        f"{name} {record.toolchain[name]}" for name in ("jax", "libtpu") if name in record.toolchain
    ]
    return f"{', '.join(named)}, {record.run[:4]}-{record.run[4:6]}-{record.run[6:8]}"


def take(plot: Plot, found: Sequence[Record]) -> None:
    """Keep the records of a plot."""
    lines = [records.line_of(record) for _, record in matched(plot, found)]
    write_whole(plot.measured, b"".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the records of the runs, if any are given, and draw each plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", nargs="+", default=[], metavar="RUN", type=Path, dest="runs")
    given = parser.parse_args(arguments).runs
    found = [record for run in given for record in records.load(run)]
    for name in ("measured", "plots"):
        (FOLDER / name).mkdir(exist_ok=True)
    failed = False
    for plot in plots():
        try:
            if given:
                take(plot, found)
            write_whole(plot.drawn, drawing(plot, records.load(plot.measured)).encode())
            sys.stdout.write(f"PASS {plot.name}\n")
        except (LookupError, records.RecordsError) as error:
            failed = True
            sys.stdout.write(f"FAIL {plot.name}: {error}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
