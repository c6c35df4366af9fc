"""The project that every fault is put to: small programs, five claims, a control for each."""

from __future__ import annotations

INI = """
[pytest]
filterwarnings =
    error
    ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning
addopts = -p no:cacheprovider
"""

SUITE = """
import jax, jax.numpy as jnp, numpy as np
from assay import (
    Variant,
    Check,
    FailureKind,
    Formula,
    Program,
    Quantity,
    Role,
    Unit,
    Workload,
    claims,
)

ROWS, WIDTH = 16, 512
ROW_BYTES = WIDTH * 4
STACK = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
ROW = jax.ShapeDtypeStruct((WIDTH,), jnp.float32)

def values():
    return np.zeros(STACK.shape, np.float32), np.arange(WIDTH, dtype=np.float32)

def program(function, *more):
    return Program(
        function=function, arguments=(STACK, ROW, *more), donate_argnums=(0,),
        values=values, observe=function,
    )

def looped(devices):
    def step(stack, row):
        return jax.lax.fori_loop(0, ROWS, lambda i, stack: stack.at[i].set(row * i), stack)
    return program(step)

def plain(devices):
    rows = np.arange(ROWS, dtype=np.float32)[:, None]
    return program(lambda stack, row: row * rows + 0 * stack)

def swapped(devices):
    def step(stack, row, more=1.0):
        def body(i, pair):
            first, second = pair
            return second.at[i].set(row * i + more), first
        return jax.lax.fori_loop(0, ROWS, body, (stack, stack + 1))[0]
    return program(step, jax.ShapeDtypeStruct((), jnp.float32))

def mismatched(devices):
    return program(lambda stack, row: stack + jnp.zeros(9))

STACKS = Workload(
    suite="mine",
    name="stacks",
    variants=(
        Variant(name="looped", role=Role.POLICY, program=looped, reference="plain"),
        Variant(name="plain", role=Role.CONTROL, program=plain),
        Variant(name="swapped", role=Role.NEGATIVE_CONTROL, program=swapped, reference="looped"),
        Variant(
            name="mismatched",
            role=Role.NEGATIVE_CONTROL,
            program=mismatched,
            fails_with=FailureKind.TRACE,
        ),
    ),
)

def bytes_of(number):
    return Formula(f"{number} B", lambda case: Quantity(number, Unit.BYTES))

def check(claim, negative_control="swapped"):
    return Check(
        claim=claim, workloads=(STACKS,), variants=("looped",), negative_control=negative_control
    )


test_compiles = check(claims.Compiles(), "mismatched")
test_copies = check(claims.CopiedBytes(larger_than=bytes_of(ROW_BYTES)))
test_temporaries = check(claims.TempBytesAtMost(limit=bytes_of(ROW_BYTES * ROWS)))
test_baseline = check(claims.BaselineTempBytes())
test_values = check(claims.ValuesEqual())
test_parameters = check(
    claims.Parameters(equal=Formula("two", lambda case: Quantity(2, Unit.COUNT)))
)
"""

TIMES = """
import jax, jax.numpy as jnp, numpy as np
from assay import Variant, Check, Program, Role, Workload, claims

X = jax.ShapeDtypeStruct((256, 256), jnp.float32)

def multiplied(count):
    def program(devices):
        def function(x):
            return jax.lax.fori_loop(0, count, lambda i, y: y @ x, x)
        return Program(
            function=function, arguments=(X,), observe=function,
            values=lambda: (np.eye(256, dtype=np.float32),),
        )
    return program

PRODUCTS = Workload(
    suite="times",
    name="products",
    variants=(
        Variant(name="one", role=Role.CONTROL, program=multiplied(2)),
        Variant(name="another", role=Role.REMEDY, program=multiplied(2), reference="one"),
        Variant(name="more", role=Role.NEGATIVE_CONTROL, program=multiplied(20), reference="one"),
    ),
)
test_times = Check(
    claim=claims.TimeRatio(least_change=0.5, seen_change=1.0),
    workloads=(PRODUCTS,), variants=("another",), negative_control="more",
)
"""

PROGRAM = """
import jax, jax.numpy as jnp

def step(x):
    return jax.lax.fori_loop(0, 8, lambda i, y: y.at[i].set(y[i] * 2), x)

def example_args():
    return (jax.ShapeDtypeStruct((8, 128), jnp.float32),)
"""

RULES = """
schema = 1

[[feature]]
id = "mine.stacks"
name = "Stacks"
promise = "A loop writes a row."
suite = "mine"
elsewhere = "nowhere else"

[[feature.requirements]]
level = 1
targets = ["cpu*"]
workloads = ["stacks"]
variants = ["looped"]
claims.compiles = ["mismatched"]
claims.copied-bytes-per-iteration = ["swapped"]
claims.temp-bytes = ["swapped"]
claims.values-equal = ["swapped"]
claims.parameters = ["swapped"]
"""

FILES = {
    "pytest.ini": INI,
    "mysuites/test_stacks.py": SUITE,
    "times/test_times.py": TIMES,
    "program.py": PROGRAM,
    "rules.toml": RULES,
}
