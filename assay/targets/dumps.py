"""Dumps: what a compiler writes about a compilation, beside the executable that it returns.

Every XLA compiler can dump the module after its last pass with the buffer assignment in it, as an
HloProto, at no cost that shows (a tenth of a second at most on the suites' programs). Executables
hand out the module alone, and one that was compiled by a newer plugin than jaxlib not even that.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

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
    """A dump whose folder is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="assay-dump-") as folder:
        yield Dump(Path(folder))


def refuses_options(error: Exception) -> bool:
    """Whether a compiler failed because it does not know the options of a dump."""
    text = str(error)
    return "No such compile option" in text or "xla_dump" in text
