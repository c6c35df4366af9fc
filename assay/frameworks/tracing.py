"""Tracing made ready to be timed: what is done before any compiler, each time from nothing."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.frameworks.framework import Framework
from assay.model.workload import Program

_MOST_RUNS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyToTrace:
    """A program that each run traces and lowers anew, with nothing kept of the run before."""

    tools: Framework
    program: Program
    platform: str
    devices: Sequence[Any]
    trace_seconds: float | None = None
    compile_seconds: float | None = None
    most_runs: int = _MOST_RUNS

    def run(self, count: int) -> float:
        """The seconds of so many tracings; what they leave behind is dropped between them."""
        return sum(self._once() for _ in range(count))

    def _once(self) -> float:
        self.tools.forget()
        start = time.perf_counter()
        traced = self.tools.trace(self.program, self.devices)
        lowered = self.tools.lower(traced, self.platform, self.devices)
        seconds = time.perf_counter() - start
        del lowered
        return seconds
