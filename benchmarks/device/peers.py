"""Times of memsafe and of hand-written versions: ``python -m benchmarks.device.peers FILE``.

Each program runs as written, by hand, and by memsafe in shares of its temporaries, all in turns.
The results have memsafe's predicted times as well as the measured ones. With ``--large``, it runs
programs that do not fit as written instead: the paper's sizes, and long sequences. Each result is
one line of JSON. Programs that FILE has are not run again.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import jax  # noqa: TID251 - what is measured here is JAX itself.
import ml_dtypes
from filelock import FileLock

from benchmarks.device.profiles import profiled
from benchmarks.experts import grids, networks, points
from benchmarks.experts.measured import Way, difference, in_turns, way
from memsafe import BudgetError  # noqa: TID251 - it is measured here.
from memsafe.function import Calls  # noqa: TID251 - its prediction is looked at.
from memsafe.options import Asked  # noqa: TID251
from suites.tensor_splitting.kernels import by_differences
from suites.tensor_splitting.neighbours import l2
from suites.tensor_splitting.residual import ResidualSizes, residual_problem
from suites.tensor_splitting.sized import (
    Build,
    attention,
    encoder,
    gradients,
    kernel,
    nearest,
    regression,
)

_TURNS: Final = 5
_MOST_SLOWDOWN: Final = 4.0
"""``max_slowdown`` of memsafe: plans that memsafe refuses by default are measured too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A program, its hand-written versions, and memsafe's budgets as shares of its temporaries."""

    name: str
    problem: Build
    ways: tuple[str, ...] = ()
    shares: tuple[float, ...] = (0.25, 0.0625)


Turns = Callable[[list[Way]], tuple[list[float], list[float], list[dict[str, Any]]]]
"""Returns seconds of each way in turns, then by itself, and the profile of one call of each."""

Row = dict[str, Any]
_BF16: Final = ml_dtypes.bfloat16
_RESNET: Final = partial(
    residual_problem, ResidualSizes(blocks=16, batch=512, side=32, channels=64)
)

CASES: Final = (
    Case(
        name="attention gradient, bf16, 12,288",
        problem=gradients(attention(12_288, dtype=_BF16), 0, 1, 2),
        ways=("lax-map", "dot-product-attention", "cudnn"),
    ),
    Case(
        name="ResNet gradient",
        problem=gradients(_RESNET, 0, 1),
        ways=("lax-map",),
        shares=(0.5, 0.25),
    ),
    Case(
        name="encoder gradient, 4 × 4,096",
        problem=gradients(encoder(4, 4_096), 0),
        ways=("lax-map", "checkpoint", "dot-product-attention"),
    ),
    Case(
        name="GPT gradient",
        problem=partial(networks.gpt, 8, 8, 1_024, 1_024),
        ways=("nothing-saveable", "dots-with-no-batch-dims-saveable"),
    ),
    Case(name="nearest neighbours, 100,000", problem=nearest(100_000, l2), ways=("lax-map",)),
    Case(name="kernel product, 49,152", problem=kernel(49_152, by_differences), ways=("lax-map",)),
    Case(
        name="SGPR gradient, 434,874 × 1,000, double",
        problem=gradients(regression(434_874, 1_000), 0, squared=False),
        ways=("lax-map",),
    ),
    Case(
        name="neural ODE",
        problem=partial(grids.neural_ode, 64, 32_768, 128),
        ways=("nested", "remat"),
    ),
    Case(
        name="t-SNE gradient",
        problem=partial(points.t_sne, 20_000, 50, 500),
        ways=(points.BY_HAND,),
    ),
    Case(name="wave equation", problem=partial(grids.wave, 64, 160), ways=("nested", "remat")),
)
"""Programs that take less than about a second on an H200, and gigabytes as written."""

LARGE: Final = (
    ("encoder gradient, 1 × 131,072", gradients(encoder(1, 131_072), 0), 16e9),
    ("kernel product, 1,000,000", kernel(1_000_000, by_differences), 2e9),
    ("nearest neighbours, 10,000,000", nearest(10_000_000, l2), 6e9),
    ("encoder gradient, 1 × 262,144", gradients(encoder(1, 262_144), 0), 32e9),
    (
        "SGPR gradient, 434,874 × 10,000, double",
        gradients(regression(434_874, 10_000), 0, squared=False),
        8e9,
    ),
    ("encoder gradient, 1 × 524,288", gradients(encoder(1, 524_288), 0), 32e9),
)
"""Programs, each with memsafe's budget in bytes. As written, none fits a device."""


def compared(case: Case, turns: Turns) -> list[Row]:
    """A row of results for each way to run the program."""
    rows: list[Row] = []
    problem = case.problem()
    with jax.enable_x64(problem.is_double):
        values = jax.device_put(problem.values())
        plain = way("plain", problem.plain, values, None)
        truth = jax.device_get(plain.run())
        ways: list[Way] = [plain]
        predicted: list[float | None] = [1.0]
        own = _bytes_of(values, truth)
        for name in case.ways:
            try:
                ways.append(way(name, problem.ways[name], values, truth))
            except Exception as error:  # noqa: BLE001 - written down
                rows.append({"way": name, "error": f"{type(error).__name__}: {str(error)[:500]}"})
                continue
            predicted.append(None)
        for share in case.shares:
            budget = int(own + share * (plain.nbytes - own))
            try:
                made, slowdown = _within(budget, problem.plain, values, truth)
            except BudgetError as refusal:
                told = {"refused": refusal.smallest, "budget": budget}
                rows.append({"way": f"memsafe {share:g}", **told})
                continue
            ways.append(made)
            predicted.append(slowdown)
    seconds, alone, profiles = turns(ways)
    for made, guess, one, single, profile in zip(
        ways, predicted, seconds, alone, profiles, strict=True
    ):
        rows.append(
            {
                "busy_s": profile["busy_s"],
                "idle_s": profile["idle_s"],
                "pauses": profile["pauses"],
                "kernels": profile["kernels"],
                "alone_s": single,
                "way": made.name,
                "bytes": made.nbytes,
                "seconds": one,
                "over_plain": one / seconds[0],
                "predicted": guess,
                "setup_s": made.setup_s,
                "difference": made.difference,
            }
        )
    return rows


def _within(budget: int, function: Any, values: Any, truth: Any) -> tuple[Way, float]:
    """The program by memsafe within a budget, and the slowdown that memsafe predicts."""
    start = time.perf_counter()
    asked = Asked(device=jax.devices()[0], max_slowdown=_MOST_SLOWDOWN)
    fit = Calls.asked(function, budget, asked).fit(tuple(values), {})
    setup_s = time.perf_counter() - start
    executable, leaves = fit.result.compiled, jax.tree.leaves(values)
    assert executable is not None

    def run() -> Any:
        return jax.block_until_ready(executable(*leaves))

    results = jax.device_get(run())
    start = time.perf_counter()
    run()
    made = Way(
        name=f"memsafe, {budget / 1e9:.2f} GB",
        run=run,
        nbytes=int(fit.result.nbytes),
        setup_s=setup_s,
        call_s=time.perf_counter() - start,
        difference=difference(results, jax.tree.leaves(truth)),
    )
    return made, fit.slowdown


def large(build: Build, budget: float) -> list[Row]:
    """The results of a program that fits only by memsafe: bytes compiled and measured, seconds."""
    problem = build()
    device = jax.devices()[0]
    with jax.enable_x64(problem.is_double):
        values = jax.device_put(problem.values())
        start = time.perf_counter()
        asked = Asked(device=device, max_slowdown=_MOST_SLOWDOWN)
        fit = Calls.asked(problem.plain, int(budget), asked).fit(tuple(values), {})
        setup_s = time.perf_counter() - start
        executable, leaves = fit.result.compiled, jax.tree.leaves(values)
        assert executable is not None
        before = device.memory_stats() or {}
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            results = jax.block_until_ready(executable(*leaves))
            seconds.append(time.perf_counter() - start)
        finite = all(bool(jax.numpy.isfinite(each).all()) for each in jax.tree.leaves(results))
    row = {
        "bytes": fit.result.nbytes,
        "plain_bytes": fit.plain.nbytes,
        "peak_before": before.get("peak_bytes_in_use"),
        "peak_after": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "seconds": seconds,
        "predicted": fit.slowdown,
        "setup_s": setup_s,
        "finite": finite,
    }
    return [row]


def _bytes_of(*trees: Any) -> int:
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(trees))


def main() -> int:
    """Measures what FILE lacks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--part", default="1/1", help="I/N: the I-th of every N programs")
    parser.add_argument("--large", action="store_true", help="what does not fit as written")
    parser.add_argument("--lock", type=Path, help="a file to lock while times are measured")
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    lock = FileLock(options.lock) if options.lock else nullcontext()

    def turns(ways: list[Way]) -> tuple[list[float], list[float], list[dict[str, Any]]]:
        with lock:
            # Programs that run in between may move a program's memory. Then XLA must update its
            # CUDA graphs. The two figures show whether that takes time.
            alone = [in_turns([each], _TURNS)[0] for each in ways]
            return in_turns(ways, _TURNS), alone, [profiled(each.run) for each in ways]

    works: list[tuple[str, Callable[[], list[Row]]]] = [
        (case.name, partial(compared, case, turns)) for case in CASES
    ]
    if options.large:
        works = [(name, partial(large, build, most)) for name, build, most in LARGE]
    given = options.file.read_text().splitlines() if options.file.exists() else []
    known = {json.loads(line)["case"] for line in given}
    with options.file.open("a") as file:
        for name, work in works[part - 1 :: parts]:
            if name in known or options.only not in name:
                continue
            try:
                rows = work()
            except Exception as error:  # noqa: BLE001 - written down, like all that is found
                rows = [{"error": f"{type(error).__name__}: {str(error)[:2000]}"}]
            for row in rows:
                file.write(json.dumps({"case": name, **row}) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
