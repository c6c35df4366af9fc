"""HLO text to modules, and the HLO that XLA dumps while it compiles."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from assay.targets.jax_internals import hlo_module_from_text

_T = TypeVar("_T")


def compile_with_dump(
    compiled_with: Callable[[dict[str, str | bool]], _T],
) -> tuple[_T, bytes | None]:
    """What a compilation gives, and the serialized HloProto that it dumps.

    ``compiled_with`` gets the compile options that make XLA dump, or none where the compiler does
    not know them; it then dumps nothing. The options do not change the compiled program.
    """
    with tempfile.TemporaryDirectory(prefix="assay-dump-") as folder:
        # These win over an ``xla_dump_to`` in ``XLA_FLAGS``.
        options: dict[str, str | bool] = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_proto": True,
            "xla_dump_hlo_as_text": False,
        }
        try:
            compiled = compiled_with(options)
        except Exception as error:  # a plugin may raise any exception for unknown options
            if not any(words in str(error) for words in ("No such compile option", "xla_dump")):
                raise
            return compiled_with({}), None
        dumped = [path.read_bytes() for path in Path(folder).glob("*after_optimizations.hlo.pb")]
    # A compiler may compile smaller modules on its way, to measure kernels for example.
    return compiled, max(dumped, key=len, default=None)


# From 0.12 on, XLA prints ``%name#1`` where it printed the name of a get-tuple-element before.
_QUOTED_OR_ELEMENT = re.compile(r'"(?:[^"\\]|\\.)*"|(%[\w.\-]+)((?:#\d+)+)')
_HEADER_COUNT = re.compile(r"\b(num_partitions|replica_count)=(\d+)")


def module_of_text(text: str) -> bytes:
    """The serialized HloModuleProto of HLO text, also of text that is too new for this parser.

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
    lines: list[str] = []
    known: set[str] = set()

    def name_of(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:  # a quoted string
            return match[0]
        for index in match[2].split("#")[1:]:
            whole, name = name, f"{name}--{index}"
            if name not in known:
                known.add(name)
                lines.append(f"  {name} = get-tuple-element({whole}), index={index}")
        return name

    for line in text.split("\n"):
        if line.rstrip().endswith("{"):  # a computation begins, with names of its own
            known.clear()
        changed = _QUOTED_OR_ELEMENT.sub(name_of, line)
        lines.append(changed)
    return "\n".join(lines)
