"""Compiled ways to write a program: memory, results and time."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median
from typing import Any, Final

import jax  # noqa: TID251 — what is measured here is JAX itself.
import numpy as np

from assay.frameworks.installed import processor
from memsafe import BudgetError, memsafe  # noqa: TID251 — it is measured here.
from memsafe.measure import Place, measured  # noqa: TID251

_LEAST_S: Final = 0.1
"""Seconds for which a turn repeats calls of a way: the time of one millisecond call is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run a program.

    ``nbytes`` is all memory of the program, with what libraries hold on a CPU.
    ``setup_s`` is the time from the function to its executable, without a run. ``call_s`` is the
    time of one call. ``difference`` is the largest difference from the plain program's results, by
    `difference`.
    """

    name: str
    run: Callable[[], Any]
    nbytes: int
    setup_s: float
    call_s: float
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A refusal by memsafe: ``smallest`` is the smallest peak that it reached, in bytes."""

    smallest: float


def machine() -> str:
    """JAX's version, the processor and its load, for a table of times."""
    cores, load = os.cpu_count(), os.getloadavg()[0]
    return f"jax {jax.__version__}, {cores} cores of {processor()}, load {load:.1f}"


def way(name: str, function: Callable[..., Any], values: Any, truth: Any) -> Way:
    """``function`` compiled and run twice; ``truth`` are the right results, None if unknown."""
    tree: Any
    leaves, tree = jax.tree.flatten(values)
    start = time.perf_counter()
    found = measured(
        lambda *leaves: jax.tree.leaves(function(*tree.unflatten(leaves))),
        [jax.typeof(leaf) for leaf in leaves],
        Place(device=jax.devices()[0]),
        runs=True,
    )
    setup_s = time.perf_counter() - start
    assert found.compiled is not None, "a CPU compiler refuses no size"
    executable = found.compiled

    def run() -> Any:
        return jax.block_until_ready(executable(*leaves))

    results = jax.device_get(run())
    start = time.perf_counter()
    run()
    return Way(
        name=name,
        run=run,
        nbytes=int(found.nbytes),
        setup_s=setup_s,
        call_s=time.perf_counter() - start,
        difference=difference(results, results if truth is None else truth),
    )


def within(budget: int, function: Callable[..., Any], values: Any, truth: Any) -> Way:
    """``function`` by memsafe within ``budget`` bytes. Raises BudgetError.

    ``setup_s`` is the time of the first call without that of a run. The other figures are of the
    same plan, compiled once more.
    """
    safe = memsafe(function, budget)
    start = time.perf_counter()
    jax.block_until_ready(safe(*values))
    first_s = time.perf_counter() - start
    found = way("memsafe", safe, values, truth)
    return replace(found, setup_s=first_s - found.call_s)


def within_or_refused(
    budget: int, function: Callable[..., Any], values: Any, truth: Any
) -> Way | Refused:
    """The result of `within`, or the refusal."""
    try:
        return within(budget, function, values, truth)
    except BudgetError as refusal:
        return Refused(smallest=refusal.smallest)


def difference(results: Any, truth: Any) -> float:
    """The largest difference of any floating-point result, over the largest value in ``truth``."""
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(truth), strict=True)
    gaps = [
        float(np.max(np.abs(ours - theirs)) / max(np.max(np.abs(theirs)), 1e-30))
        for ours, theirs in pairs
        if jax.numpy.issubdtype(theirs.dtype, np.floating)
    ]
    return float(np.max(gaps))  # NaN if any is.


def in_turns(ways: Sequence[Way], turns: int) -> list[float]:
    """The median time of a call of each way, in seconds; the ways take turns."""
    calls = [ceil(_LEAST_S / max(each.call_s, 1e-4)) for each in ways]
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(turns):
        for each, count, found in zip(ways, calls, seconds, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                each.run()
            found.append((time.perf_counter() - start) / count)
    return [median(found) for found in seconds]
