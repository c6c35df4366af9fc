"""The pages' fenced blocks, and their commands with the output that the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHERE = (
    *("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/stories/*.md", "docs/regressions/*.md"),
    *("benchmarks/*.md", "memsafe/*.md", "memsafe/docs/*.md", "suites/*/*.md"),
)

_FENCED = re.compile(
    r"^ *```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_LEFT_OUT = "…"
# A line of a file that the page shows is the same on any toolchain.
_NUMBER = re.compile(
    r"(?<![\w.])(?<!\.py:)(?!0(?:\.0+)?(?![\d.,]))\d[\d,]*(?:\.\d+)?(?: (?:[KMGT]i?)?B)?\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block; ``title`` is the file that it shows, if any."""

    page: str
    line: int
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that a page says to type, and the lines that it shows as the output."""

    page: str
    line: int
    words: tuple[str, ...]
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page of the repository."""
    return sorted({path for pattern in WHERE for path in ROOT.glob(pattern)})


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return list(_blocks(path.relative_to(ROOT).as_posix(), path.read_text()))


def _blocks(page: str, text: str) -> Iterator[Block]:
    for found in _FENCED.finditer(text):
        yield Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 2,
            language=found["language"],
            title=found["title"] or "",
            text=found["text"],
        )


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block: with ``$``, the lines up to the next one are its output."""
    lines = block.text.replace("\\\n", "\\").splitlines()
    told = any(line.startswith("$ ") for line in lines)
    starts = [n for n, line in enumerate(lines) if line.startswith("$ ") or not told]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = lines[start].removeprefix("$ ").replace("\\", " ")
        try:
            words = tuple(shlex.split(text, comments=True))
        except ValueError:  # An apostrophe: no command, but output.
            continue
        if words:
            yield Command(
                page=block.page,
                line=block.line + start,
                words=words,
                shown=tuple(lines[start + 1 : end]),
            )


def alike(text: str) -> str:
    """A line whose numbers other than 0, and widths, are those of any toolchain."""
    return " ".join(_NUMBER.sub("N", text).split())


def missing(shown: tuple[str, ...], output: str) -> list[str]:
    """The first lines that a page shows together and the output does not have, in this order.

    ``…`` alone stands for any lines, and within a line for any text.
    """
    lines = [alike(line) for line in output.splitlines() if line.strip()]
    place, parts = 0, [[]] if shown else []
    for line in shown:
        if line.strip() == _LEFT_OUT:
            parts.append([])
        elif line.strip():
            parts[-1].append(line)
    for part in filter(None, parts):
        size = len(part)
        wanted = [_pattern(line) for line in part]
        starts = range(place, len(lines) - size + 1)
        found = next((n for n in starts if _fits(wanted, lines[n : n + size])), None)
        if found is None:
            return part
        place = found + size
    return []


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, alike(line).split(_LEFT_OUT))))


def _fits(patterns: list[re.Pattern[str]], lines: list[str]) -> bool:
    return all(
        pattern.fullmatch(line) is not None for pattern, line in zip(patterns, lines, strict=True)
    )
