"""Assay's reading beside xprof's: both from the same HLO text, in turns, in one process.

xprof's `HloGraphDb` is the nearest thing in the open that reads a module to answer questions of
it. It is private to xprof, so a later version may move it; that is then not measured, and no pass.
"""

import gc
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from assay.hlo.summary import read
from assay.model.installation import install_command
from assay.targets.jax_internals import module_of_text

MODULE: Final = "xprof.cli.internal.hlo_graph_db"
_ROUNDS: Final = 5


class NotMeasured(Exception):
    """There is no xprof to compare with; says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The least seconds of some rounds, each way of reading one module.

    ``xprof_seconds`` are for the graph and its ``summary`` query, which is the first to look into
    every computation; ``xprof_lazy_seconds`` are for the graph alone, of which xprof leaves all
    but the entry unread.
    """

    text_seconds: float
    proto_seconds: float
    xprof_seconds: float
    xprof_lazy_seconds: float

    @property
    def times(self) -> float:
        """How many times as long as xprof Assay takes from the same text."""
        return self.text_seconds / self.xprof_seconds


def compare(text: str, proto: bytes, assignment: bytes = b"") -> Comparison:
    """Reads a module in turns with Assay from text, from its proto, and with xprof.

    Raises:
        NotMeasured: xprof is not installed, or holds no `HloGraphDb` where it was.
    """
    graph = _graph()
    ways: tuple[Callable[[], object], ...] = (
        lambda: read(module_of_text(text), assignment),
        lambda: read(proto, assignment),
        lambda: graph.from_text(text).query("summary"),
        lambda: graph.from_text(text),
    )
    seconds = [[_seconds(way) for way in ways] for _ in range(_ROUNDS)]
    ours, from_proto, theirs, lazy = map(min, zip(*seconds, strict=True))
    return Comparison(
        text_seconds=ours, proto_seconds=from_proto, xprof_seconds=theirs, xprof_lazy_seconds=lazy
    )


def _graph() -> Any:
    try:
        return importlib.import_module(MODULE).HloGraphDb
    except ModuleNotFoundError as error:
        raise NotMeasured(
            f"not measured: {error.name} is not installed; {install_command('benchmarks')}"
        ) from error
    except AttributeError as error:
        raise NotMeasured(
            f"not measured: this xprof has no HloGraphDb in {MODULE}; pip install 'xprof==2.24.2'"
        ) from error


def _seconds(way: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    way()
    return time.perf_counter() - start
