"""The programs that are timed, and the process that takes their times when told to.

``python -m benchmarks.timing_judgement.program`` reads plans from its input, a JSON line each, and
answers with a line of seconds. Added work is added turns of the same compiled loop, so that
programs with and without it differ in nothing else.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypedDict

TURNS: Final = 100
"""The loop's turns without added work: one turn is one per cent."""

SIZES: Final[Mapping[str, int]] = {"medium": 160, "small": 64}
"""The timed programs: the width of the square matrix that each loop multiplies."""

CALIBRATION: Final = ("matmul", "copy", "dispatch")
_CALIBRATION_WIDTH: Final = 384
_CALIBRATION_COPY: Final = 1 << 21  # 8 MiB of float32
_WARM_UP: Final = 5

Plan = list[tuple[str, int]]
"""What to run, in order: a program's name and its turns (which calibration ignores)."""


class Ready(TypedDict):
    """The first line that a process says."""

    jax: str
    device: str


def programs() -> dict[str, Callable[[int], object]]:
    """Every program by name, compiled and warm; each call runs it and waits for its result."""
    import jax  # noqa: TID251 - the programs are written in it
    import jax.numpy as jnp  # noqa: TID251

    def loop(matrix: jax.Array, turns: int) -> jax.Array:
        def turn(_: int, carried: jax.Array) -> jax.Array:
            return jnp.tanh(carried @ carried) * 0.1

        looped: jax.Array = jax.lax.fori_loop(0, turns, turn, matrix)
        return looped.sum()

    def square(width: int) -> jax.Array:
        return jax.random.normal(jax.random.key(0), (width, width), jnp.float32)

    looped, multiplied = jax.jit(loop), jax.jit(lambda matrix: matrix @ matrix)
    copied = jax.jit(lambda vector: vector + 1)
    large, wide = jnp.zeros(_CALIBRATION_COPY, jnp.float32), square(_CALIBRATION_WIDTH)
    one = jnp.zeros((), jnp.float32)
    timed: dict[str, Callable[[int], object]] = {
        "matmul": lambda _: multiplied(wide).block_until_ready(),
        "copy": lambda _: copied(large).block_until_ready(),
        "dispatch": lambda _: copied(one).block_until_ready(),
    }
    for name, width in SIZES.items():
        timed[name] = partial(_waited, looped, square(width))
    for program in timed.values():
        for _ in range(_WARM_UP):
            program(TURNS)
    return timed


def _waited(looped: Callable[..., Any], matrix: object, turns: int) -> object:
    return looped(matrix, turns).block_until_ready()


def answer(timed: Mapping[str, Callable[[int], object]], plan: Plan) -> list[float]:
    """The seconds that each entry of the plan took, in its order."""
    seconds = []
    for name, turns in plan:
        program = timed[name]
        begun = time.perf_counter()
        program(turns)
        seconds.append(time.perf_counter() - begun)
    return seconds


def main() -> None:
    """Answers plans until its input ends."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax  # noqa: TID251

    timed = programs()
    ready = Ready(jax=jax.__version__, device=jax.devices()[0].device_kind)
    _say(ready)
    for line in sys.stdin:
        _say(answer(timed, json.loads(line)))


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
