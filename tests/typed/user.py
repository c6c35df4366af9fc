"""A user's file that mypy checks in strict mode: both packages ship their types (tox -e types)."""

from collections.abc import Callable

import numpy as np

import assay
import memsafe


def step(x: np.ndarray) -> np.ndarray:
    """A function of a user."""
    return x


compiled: assay.Compiled = assay.compile(step, np.zeros(8), target="tpu-v5e:2x4")
temp_bytes: int = compiled.memory.temp_bytes
copied_bytes: int = compiled.loop_copies("1MiB").bytes_per_iteration
safe: Callable[[np.ndarray], np.ndarray] = memsafe.memsafe(step, budget="1GB")


@memsafe.memsafe(budget="1GB")
def decorated(x: np.ndarray, times: int) -> np.ndarray:
    """Another, whose arguments and result stay known."""
    return x * times


doubled: np.ndarray = decorated(np.zeros(8), 2)

# Negative controls: without types, mypy would find these comments unused.
_ = compiled.memory.tmp_bytes  # type: ignore[attr-defined]
memsafe.memsafe(step, budgt="1GB")  # type: ignore[call-overload]
memsafe.memsafe(budgt="1GB")  # type: ignore[call-overload]
decorated(np.zeros(8), "2")  # type: ignore[arg-type]
