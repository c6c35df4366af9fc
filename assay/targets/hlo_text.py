"""HLO text to modules, and the HLO that XLA dumps while it compiles."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from assay.targets.jax_internals import hlo_module_from_text

_LAST_MODULE = "*after_optimizations.hlo.pb"


@dataclass(frozen=True, slots=True)
class Dump:
    """A folder that one compilation writes to.

    ``options`` are the compile options (of ``Lowered.compile``) that make it do so. They win over
    an ``xla_dump_to`` in ``XLA_FLAGS``.
    """

    folder: Path

    @property
    def options(self) -> Mapping[str, str | bool]:
        """Compile options; they change nothing in what is compiled."""
        return MappingProxyType(
            {
                "xla_dump_to": str(self.folder),
                "xla_dump_hlo_as_proto": True,
                "xla_dump_hlo_as_text": False,
            }
        )

    def hlo_proto(self) -> bytes | None:
        """The serialized HloProto of the compiled module; None if the compiler dumped none.

        A compilation may compile smaller modules on its way (to measure kernels, say); the largest
        is the one asked for.
        """
        found = [path.read_bytes() for path in self.folder.glob(_LAST_MODULE)]
        return max(found, key=len, default=None)


@contextmanager
def dump() -> Iterator[Dump]:
    """A dump whose folder is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="assay-dump-") as folder:
        yield Dump(Path(folder))


def refuses_options(error: Exception) -> bool:
    """Whether a compiler failed because it does not know the options of a dump."""
    text = str(error)
    return "No such compile option" in text or "xla_dump" in text


# From 0.12 on, XLA prints ``%name#1`` where it printed the name of a get-tuple-element before.
_QUOTED_OR_ELEMENT = re.compile(r'"(?:[^"\\]|\\.)*"|(%[\w.\-]+)((?:#\d+)+)')
_HEADER_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d+)")


def module_of_text(text: str) -> bytes:
    """The serialized HloModuleProto of HLO text; a parser that is too old for it is helped along.

    Raises:
        ValueError: the text is not HLO; names the line.
    """
    try:
        return hlo_module_from_text(text)
    except ValueError:
        spelled_out = spell_out_elements(text)
        if spelled_out == text:
            raise
    try:
        return hlo_module_from_text(spelled_out)
    except ValueError as error:
        raise ValueError(
            f"{error} (this jaxlib cannot read `%name#1`, and replacing it did not help; "
            "use the jaxlib that printed the text, or dump the module as a proto)"
        ) from error


def device_counts(text: str) -> tuple[int, int]:
    """(replicas, partitions) that the first line of HLO text names; the parser drops them."""
    named = dict(_HEADER_COUNT.findall(text.lstrip().partition("\n")[0]))
    return int(named.get("replica_count", 1)), int(named.get("num_partitions", 1))


def spell_out_elements(text: str) -> str:
    """The text with a get-tuple-element on a separate line for each ``%name#1``."""
    return "\n".join(_spelled_out(text.split("\n")))


def _spelled_out(lines: list[str]) -> Iterator[str]:
    known: set[str] = set()
    for line in lines:
        if line.rstrip().endswith("{"):  # a computation begins, with its own names
            known = set()
        added: list[str] = []

        def name(match: re.Match[str], known: set[str] = known, added: list[str] = added) -> str:
            if match[1] is None:
                return match[0]
            whole = match[1]
            for index in match[2].split("#")[1:]:
                element = f"{whole}--{index}"
                if element not in known:
                    added.append(f"  {element} = get-tuple-element({whole}), index={index}")
                    known.add(element)
                whole = element
            return whole

        changed = _QUOTED_OR_ELEMENT.sub(name, line)
        yield from added
        yield changed
