"""Whether Assay reads what others' compilers wrote: ``python -m benchmarks.outside_dumps FOLDER``.

Give it a folder of anything that holds HLO: text that ``--xla_dump_to`` or
``compiled.as_text()`` wrote, its ``.hlo.pb`` files, or checkouts of public repositories, from
whose C++ and Python tests and Markdown pages the ``HloModule ...`` strings are cut. XLA's own
parser, in a process of its own, reads each module first, and what it refuses (a template with
holes, a test of its error messages, another XLA's syntax) is no business of Assay. What it reads,
`assay.hlo.summary.read` must read: the last column says ok, or how Assay fails. Exits with 1 if
Assay fails on any module, or if there was none to read. Modules of a file are numbered from 1.
"""

import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from assay.hlo.schema import MalformedModule, split
from assay.hlo.summary import read
from assay.targets.jax_internals import module_of_text

_SOURCES: Final = {
    ".cc": r'R"(?P<mark>[^(\s]*)\((?P<text>.*?)\)(?P=mark)"',
    ".md": r"```[a-z]*\n(?P<text>.*?)```",
    ".py": r'(?P<mark>"""|\'\'\')(?P<text>.*?)(?P=mark)',
}
"""How each language writes a text of many lines."""

_ALIKE: Final = {".cpp": ".cc", ".cxx": ".cc", ".h": ".cc", ".hpp": ".cc"}
_TEXTS: Final = frozenset({".hlo", ".txt"})
_MODULE: Final = re.compile(r"^[ \t]*HloModule\s", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One module of a file: HLO text, or an HloProto as XLA dumps it."""

    name: str
    content: str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one dump.

    ``counts`` are instructions, loops, transfers and full-buffer writes.
    """

    name: str
    verdict: str
    counts: tuple[int, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether Assay failed on what XLA reads."""
        return self.verdict.startswith("Assay fails")


class Parser:
    """XLA's own parser in a process of its own, which a failed check of XLA ends."""

    def __init__(self) -> None:
        self._process = _process()

    def proto(self, dump: Dump) -> bytes:
        """The serialized module of a dump.

        Raises:
            ValueError: XLA refuses it.
        """
        try:
            return self._process.submit(_parsed, dump.content).result()
        except BrokenProcessPool:
            self._process = _process()
            raise ValueError("a failed check of XLA ended the process") from None


def dumps(folder: Path) -> Iterator[Dump]:
    """Every module in every file under a folder, in the order of the names."""
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        contents = list(_contents(file))
        for number, content in enumerate(contents, 1):
            name = str(file.relative_to(folder))
            yield Dump(name=name if len(contents) == 1 else f"{name}#{number}", content=content)


def row(dump: Dump, parser: Parser) -> Row:
    """Reads one dump as Assay reads a compiler's module."""
    try:
        module = parser.proto(dump)
    except ValueError as error:
        return Row(name=dump.name, verdict=f"XLA's own parser refuses: {_brief(error)}")
    try:
        assignment = split(dump.content)[1] if isinstance(dump.content, bytes) else b""
        found = read(module, assignment)
    except Exception as error:  # noqa: BLE001 - any failure at all is what is looked for here
        return Row(name=dump.name, verdict=f"Assay fails: {type(error).__name__}: {_brief(error)}")
    counts = (
        found.instructions,
        len(found.loops),
        len(found.transfers),
        len(found.full_buffer_writes),
    )
    return Row(name=dump.name, verdict="ok", counts=counts)


def _contents(file: Path) -> Iterator[str | bytes]:
    if file.suffix == ".pb":
        yield file.read_bytes()
        return
    language = _ALIKE.get(file.suffix, file.suffix)
    if language not in _SOURCES and language not in _TEXTS:
        return
    text = file.read_text(errors="replace")
    if language in _TEXTS:
        yield from _modules(text)
    else:
        for string in re.finditer(_SOURCES[language], text, re.DOTALL):
            yield from _modules(string["text"])


def _modules(text: str) -> Iterator[str]:
    """What stands from one line that opens a module to the next."""
    starts = [found.start() for found in _MODULE.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        yield text[start:end]


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_silence)


def _silence() -> None:
    """A failed check of XLA writes its stack to the standard error; the table says what counts."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _parsed(content: str | bytes) -> bytes:
    if isinstance(content, str):
        return module_of_text(content)
    from jaxlib import _hlo  # type: ignore[attr-defined]  # noqa: TID251

    try:
        module, _ = split(content)
        parsed = _hlo.HloModule.from_serialized_hlo_module_proto(module)
    except (MalformedModule, RuntimeError) as error:
        raise ValueError(str(error)) from error
    return bytes(parsed.as_serialized_hlo_module_proto())


def _brief(error: Exception) -> str:
    words = " ".join(str(error).rpartition("error: ")[2].split())  # behind where XLA's parser was
    return words if len(words) <= 160 else f"{words[:157]}..."  # noqa: PLR2004 - a line's width


def main(arguments: list[str]) -> int:
    """Prints a line for each module and a sum; 1 if Assay fails on one, or there was none."""
    say = sys.stdout.write
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        say("got no folder; wanted one of HLO dumps; do this: outside_dumps FOLDER\n")
        return 2
    parser = Parser()
    rows = []
    say(
        f"{'instructions':>12} {'loops':>6} {'transfers':>9} {'full-buffer writes':>8}  module: "
        "verdict\n"
    )
    for dump in dumps(Path(arguments[0])):
        rows.append(found := row(dump, parser))
        numbers = found.counts or ("", "", "", "")
        say("{:>12} {:>6} {:>9} {:>8}  ".format(*numbers) + f"{found.name}: {found.verdict}\n")
    ok, failed = sum(bool(each.counts) for each in rows), sum(each.failed for each in rows)
    say(f"{len(rows)} modules: {ok} ok, {failed} that Assay fails on, ")
    say(f"{len(rows) - ok - failed} that XLA's own parser refuses\n")
    return 1 if failed or not ok else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
