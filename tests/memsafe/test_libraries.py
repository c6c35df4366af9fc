"""The budget counts the memory of a CPU's libraries, which XLA's compiler does not report."""

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

import memsafe
from memsafe import BudgetError
from memsafe.libraries import library_bytes
from memsafe.measure import compiled_modules
from memsafe.transform import Staged
from tests.memsafe.budgets import assert_same, peak_bytes

MIB = 2**20
ROWS = jnp.asarray(np.random.default_rng(0).standard_normal((4096, 64), np.float32))
SCORES = 4 * 4096 * 4096
ROOM = 32 * MIB
"""Bytes: half of the scores."""


def attention(x: Array) -> Array:
    return jax.nn.softmax(x @ x.T, -1) @ x


def compiled(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return jax.jit(function).lower(*arguments).compile(compiler_options=options or None)


def held(program: Any) -> int:
    (module,) = compiled_modules(program)
    return library_bytes(module)


def reported(program: Any) -> int:
    return int(program.memory_analysis().temp_size_in_bytes)


def test_the_compiler_reports_nothing_of_what_a_library_holds() -> None:
    program = compiled(attention, ROWS)
    assert reported(program) == 0
    assert held(program) > SCORES


def test_it_reports_all_where_no_library_takes_part() -> None:
    program = compiled(attention, ROWS, xla_cpu_experimental_ynn_fusion_type="")
    assert reported(program) > SCORES
    assert held(program) == 0


def test_a_budget_that_the_report_keeps_but_a_library_not_is_kept() -> None:
    """Before libraries were counted, the program passed as written."""
    assert reported(compiled(attention, ROWS)) + 2 * ROWS.nbytes < ROOM < SCORES
    safe: Staged[..., Array] = memsafe.memsafe(attention, ROOM)
    assert_same(safe(ROWS), attention(ROWS), tolerance=1e-5)
    assert peak_bytes(safe, ROWS) <= ROOM


def test_a_budget_with_room_for_both_leaves_the_program_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    memsafe.explain(attention, peak_bytes(attention, ROWS))(ROWS)
    said = capsys.readouterr().out
    assert "unchanged" in said
    assert "in libraries, which the compiler does not report" in said


def test_what_cannot_be_split_is_refused_for_what_a_library_may_hold() -> None:
    def squares(x: Array) -> Array:
        return jnp.sum(lax.optimization_barrier(x) ** 2, 0)

    flat = jnp.ones((64, 2**16))
    assert held(compiled(squares, flat)) >= flat.nbytes
    with pytest.raises(BudgetError, match="budget"):
        memsafe.memsafe(squares, flat.nbytes // 2)(flat)


def test_convolutions_hold_their_windows() -> None:
    def grouped(x: Array, k: Array) -> Array:
        labels = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=8
        )

    program = compiled(grouped, jnp.ones((1, 64, 64, 8)), jnp.ones((3, 3, 1, 8)))
    assert held(program) >= 4 * 64 * 64 * 8 * 9


MEASURED = """
import re, sys
import jax, jax.numpy as jnp
from jax import lax
from memsafe.measure import compiled_modules
from memsafe.libraries import library_bytes

def attention(x):
    return jax.nn.softmax(x @ x.T, -1) @ x

def normalised(x):
    x = x.reshape(4096, -1)
    x = x - x.mean(0)
    return (x / x.std(1, keepdims=True)).sum(0)

def convolved(x):
    kernel = jnp.ones((3, 3, 1, 16))
    x = x.reshape(-1, 64, 64, 16)
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=16)

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

function, shape = {
    "attention": (attention, (8192, 64)),
    "normalised": (normalised, (4096, 2048)),
    "convolved": (convolved, (65536, 16)),
}[sys.argv[1]]
x = jnp.ones(shape)
compiled = jax.jit(function).lower(x).compile()
small = jax.block_until_ready(jax.jit(function)(jnp.ones((shape[0] // 16 or 1, *shape[1:]))))
(module,) = compiled_modules(compiled)
memory = compiled.memory_analysis()
before = peak()
jax.block_until_ready(compiled(x))
taken = peak() - before - memory.temp_size_in_bytes - memory.output_size_in_bytes
print(memory.temp_size_in_bytes, library_bytes(module), taken)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of the process from /proc")
@pytest.mark.parametrize("program", ["attention", "normalised", "convolved"])
def test_a_process_takes_no_more_than_what_is_counted(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    temporary, most, taken = map(int, re.findall(r"-?\d+", ended.stdout))
    assert temporary < 8 * MIB
    assert taken < most + 32 * MIB  # For blocks of products and the process's first allocations.
    if program == "attention":
        assert taken > 4 * 8192**2  # The scores: the library holds them whole.
