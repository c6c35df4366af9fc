"""After XLA's copy_insertion_test.cc: which buffers a loop must copy, and which it must not.

Upstream runs one pass and counts copies; here the whole of each compiler runs, which may find a
better way, and Assay counts the bytes that are still copied.
"""

from __future__ import annotations

import pytest

from .cases import (
    EVERYWHERE,
    Case,
    Control,
    checks_of,
)
from .expectations import (
    CopiesOutside,
    LoopCopies,
    SomeLoopCopies,
    Trips,
)
from .observed import Hlo, entry

pytestmark = pytest.mark.exhaustive

# Larger than the memory on a TPU's chip, through which it would move the arrays otherwise.

# Larger than the memory on a TPU's chip, through which it would move the arrays otherwise.
DATA = "f32[524288,128]"
NBYTES = 524288 * 128 * 4
ROW_BYTES = 128 * 4
ROW = "f32[1,128]"
TRIPS = 10


def loop(*body: str, arrays: int, name: str = "") -> str:
    """The computations of a loop over a counter and some arrays; ``body`` ends with its results.

    The lines read ``a0``, ``a1`` … and ``i``; each result is the array that is handed on.
    """
    *lines, results = body
    state = f"(s32[]{f', {DATA}' * arrays})"
    elements = "\n  ".join(
        f"a{n} = {DATA} get-tuple-element(state), index={n + 1}" for n in range(arrays)
    )
    text = "\n  ".join(lines)
    return f"""
body{name} {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  {elements}
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  {text}
  ROOT after = {state} tuple(next, {results})
}}
go{name} {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant({TRIPS})
  ROOT less = pred[] compare(i, most), direction=LT
}}"""


def run(*lines: str, inits: tuple[str, ...], results: tuple[int, ...], computations: str) -> Hlo:
    """An entry that starts the loop with the inits and gives some of its arrays."""
    state = f"(s32[]{f', {DATA}' * len(inits)})"
    read = [f"r{n} = {DATA} get-tuple-element(loop), index={n + 1}" for n in results]
    if len(results) == 1:
        read[-1] = "ROOT " + read[-1]
    else:
        names = ", ".join(f"r{n}" for n in results)
        read.append(f"ROOT all = ({', '.join([DATA] * len(results))}) tuple({names})")
    return entry(
        *lines,
        "begin = s32[] constant(0)",
        f"start = {state} tuple(begin, {', '.join(inits)})",
        f"loop = {state} while(start), condition=go, body=body",
        *read,
        computations=computations,
    )


BY_COLUMNS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
X, Y = f"x = {DATA} parameter(0)", f"y = {DATA} parameter(1)"
# A product is computed once, where a sine may be computed again for each use.
PRODUCT = ("w = f32[128,128] parameter(1)", f"sx = {DATA} dot(x, w), {BY_COLUMNS}")
SIN_X, SIN_Y = f"sx = {DATA} sine(x)", f"sy = {DATA} sine(y)"
GROWING = (
    f"sine = {DATA} sine(a0)",
    f"more = {DATA} add(a0, sine)",
    "more",
)


def over_one(*body: str) -> Hlo:
    """A loop over the sine of one parameter."""
    return run(X, SIN_X, inits=("sx",), results=(0,), computations=loop(*body, arrays=1))


def over_two(*body: str) -> Hlo:
    """A loop over the sines of two parameters."""
    computations = loop(*body, arrays=2)
    return run(X, Y, SIN_X, SIN_Y, inits=("sx", "sy"), results=(0, 1), computations=computations)


DEPENDENT = over_one(*GROWING)
FROM_PARAMETER = run(X, inits=("x",), results=(0,), computations=loop(*GROWING, arrays=1))
READ_ONLY = run(
    X,
    Y,
    SIN_X,
    inits=("sx", "y"),
    results=(0,),
    computations=loop(f"sum = {DATA} add(a0, a1)", "sum, a1", arrays=2),
)
REVERSED = over_one(f"turned = {DATA} reverse(a0), dimensions={{0}}", "turned")
SWAPPED = over_two("a1, a0")
SWAPPED_WITH_AN_OPERATION = over_two(f"turned = {DATA} negate(a0)", "a1, turned")
SAME_TWICE = over_two(f"sine = {DATA} sine(a0)", f"sum = {DATA} add(a1, sine)", "sum, sum")
NEW_ROW = (
    "naught = f32[] constant(0)",
    f"row = {ROW} broadcast(naught), dimensions={{}}",
    f"new = {DATA} dynamic-update-slice(a0, row, i, zero)",
)
ROW_PER_ITERATION = loop(*NEW_ROW, "new", arrays=1)
ROWS = over_one(*NEW_ROW, "new")
ROWS_AND_THE_OLD = over_two(*NEW_ROW, "new, a0")


def interfering() -> Hlo:
    """The loop's start is used after the loop as well."""
    state = f"(s32[], {DATA})"
    return entry(
        X,
        *PRODUCT,
        "begin = s32[] constant(0)",
        f"start = {state} tuple(begin, sx)",
        f"loop = {state} while(start), condition=go, body=body",
        f"after = {DATA} get-tuple-element(loop), index=1",
        f"ROOT all = ({DATA}, {DATA}) tuple(after, sx)",
        computations=ROW_PER_ITERATION,
    )


def two_loops() -> Hlo:
    """Two loops update the same parameter, each for itself."""
    state = f"(s32[], {DATA})"
    return entry(
        X,
        "begin = s32[] constant(0)",
        f"start = {state} tuple(begin, x)",
        f"first = {state} while(start), condition=go, body=body",
        f"second = {state} while(start), condition=go2, body=body2",
        f"r1 = {DATA} get-tuple-element(first), index=1",
        f"r2 = {DATA} get-tuple-element(second), index=1",
        f"ROOT all = ({DATA}, {DATA}) tuple(r1, r2)",
        computations=ROW_PER_ITERATION
        + loop(
            "naught = f32[] constant(7)",
            f"row = {ROW} broadcast(naught), dimensions={{}}",
            f"new = {DATA} dynamic-update-slice(a0, row, i, zero)",
            "new",
            arrays=1,
            name="2",
        ),
    )


FILE = "copy_insertion_test.cc::CopyInsertionTest."
WHILE = "copy_insertion_test.cc::WhileCopyInsertionTest."

CASES = (
    Case(
        name="dependent",
        after=WHILE + "DependentTupleElements",
        asserts="an element that is added to in each iteration is not copied in the body",
        program=DEPENDENT,
        expect={EVERYWHERE: (LoopCopies(0), Trips((TRIPS,)))},
        control=Control(program=SWAPPED, breaks=(LoopCopies(0),)),
    ),
    Case(
        name="from-a-parameter",
        after=WHILE + "InitPointsToParameter",
        asserts="a loop that starts with a parameter copies it before, and nothing in the body",
        program=FROM_PARAMETER,
        expect={EVERYWHERE: (LoopCopies(0), CopiesOutside(NBYTES))},
        control=Control(program=SWAPPED),
    ),
    Case(
        name="read-only",
        after=WHILE + "DependentTupleElements_OneReadOnly",
        asserts="an element that the body only reads is not copied, neither is the other one",
        program=READ_ONLY,
        expect={EVERYWHERE: (LoopCopies(0),)},
        control=Control(program=SAME_TWICE),
    ),
    Case(
        name="reversed",
        after=WHILE + "NestedTupleElements",
        asserts="a reverse cannot be in place: one copy in the body",
        program=REVERSED,
        expect={EVERYWHERE: (SomeLoopCopies(NBYTES),)},
        control=Control(program=DEPENDENT),
    ),
    Case(
        name="same-twice",
        after=WHILE + "InitPointsToNonDistinct",
        asserts="one sum that is handed on as two elements is copied once in the body",
        program=SAME_TWICE,
        expect={EVERYWHERE: (SomeLoopCopies(NBYTES),)},
        control=Control(program=READ_ONLY),
    ),
    Case(
        name="interfering",
        after=WHILE + "InitPointsToInterfering",
        asserts="a start that is used after the loop is copied before it, not in the body",
        program=interfering(),
        expect={EVERYWHERE: (LoopCopies(0), CopiesOutside(NBYTES, NBYTES))},
        control=Control(program=ROWS, breaks=(CopiesOutside(NBYTES, NBYTES),)),
    ),
    Case(
        name="two-loops",
        after=WHILE + "DependentTupleElements_OneReadOnly_TwoLoops_EntryParams",
        asserts="two loops that start with one parameter copy it once each, none in the bodies",
        program=two_loops(),
        expect={EVERYWHERE: (LoopCopies(0), CopiesOutside(2 * NBYTES, NBYTES))},
        control=Control(program=ROWS, breaks=(CopiesOutside(2 * NBYTES, NBYTES),)),
    ),
    Case(
        name="swapped",
        after=FILE + "SwizzlingWhile",
        asserts="a body that swaps its elements copies them",
        program=SWAPPED,
        expect={EVERYWHERE: (SomeLoopCopies(2 * NBYTES),)},
        control=Control(program=DEPENDENT),
    ),
    Case(
        name="swapped-with-an-operation",
        after=FILE + "SwizzlingWhileWithOneOp",
        asserts="so it does where one of them is negated on the way, with fewer copies",
        program=SWAPPED_WITH_AN_OPERATION,
        expect={EVERYWHERE: (SomeLoopCopies(NBYTES),)},
        control=Control(program=READ_ONLY),
    ),
    Case(
        name="rows",
        after=FILE + "DynamicUpdateSliceNoCopy (in a loop)",
        asserts="a loop that updates a row of its element copies nothing",
        program=ROWS,
        expect={EVERYWHERE: (LoopCopies(0, ROW_BYTES), Trips((TRIPS,)))},
        control=Control(program=ROWS_AND_THE_OLD, breaks=(LoopCopies(0, ROW_BYTES),)),
    ),
    Case(
        name="rows-and-the-old",
        after=FILE + "DynamicUpdateSliceCopy (in a loop)",
        asserts="a loop that hands on the old element beside the updated one copies it",
        program=ROWS_AND_THE_OLD,
        expect={EVERYWHERE: (SomeLoopCopies(NBYTES),)},
        control=Control(program=ROWS),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
