"""After XLA's copy_insertion_test.cc: which buffers must be copied, and which must not.

Upstream runs one pass and counts copies; here the whole of each compiler runs, which may find a
better way, and Assay counts the bytes that are still copied.
"""

from __future__ import annotations

import pytest

from .cases import (
    CPU,
    EVERYWHERE,
    GPU,
    Case,
    Control,
    Disagreement,
    Right,
    checks_of,
)
from .expectations import (
    Compiles,
    CopiesOutside,
    Honoured,
    Reused,
    TakenOver,
)
from .observed import Hlo, entry

pytestmark = pytest.mark.exhaustive

# Larger than the memory on a TPU's chip, through which it would move the arrays otherwise.

# Larger than the memory on a TPU's chip, through which it would move the arrays otherwise.
DATA = "f32[524288,128]"
NBYTES = 524288 * 128 * 4
ROW = "f32[1,128]"

BY_COLUMNS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
X, Y = f"x = {DATA} parameter(0)", f"y = {DATA} parameter(1)"
# A product is computed once, where a sine may be computed again for each use.
PRODUCT = ("w = f32[128,128] parameter(1)", f"sx = {DATA} dot(x, w), {BY_COLUMNS}")
ROW_OF_ZEROS = (
    "naught = f32[] constant(0)",
    f"row = {ROW} broadcast(naught), dimensions={{}}",
    "at = s32[] constant(3)",
    "none = s32[] constant(0)",
)
UPDATE = f"updated = {DATA} dynamic-update-slice({{0}}, row, at, none)"

PARAMETER = entry(X, f"ROOT out = ({DATA}) tuple(x)")
PARAMETERS = entry(
    X,
    Y,
    f"sum = {DATA} add(x, y)",
    f"ROOT out = ({DATA}, {DATA}) tuple(x, sum)",
)
RESHAPED = entry(X, "ROOT out = f32[67108864] reshape(x)")

BOTH_ALIASED = "{0}: (0, {}, may-alias), {1}: (1, {}, may-alias)"
PAIR = f"ROOT out = ({DATA}, {DATA}) tuple"
CROSSED = entry(X, Y, f"{PAIR}(y, x)", alias=BOTH_ALIASED)
STRAIGHT = entry(X, Y, f"{PAIR}(x, y)", alias=BOTH_ALIASED)
NOT_ALIASED = entry(X, Y, f"{PAIR}(x, y)")
WITH_OPERATIONS = entry(
    X, Y, f"nx = {DATA} negate(x)", f"ny = {DATA} negate(y)", f"{PAIR}(nx, ny)", alias=BOTH_ALIASED
)
WITH_OPERATIONS_NOT_ALIASED = entry(
    X, Y, f"nx = {DATA} negate(x)", f"ny = {DATA} negate(y)", f"{PAIR}(nx, ny)"
)
OF_A_VALUE = entry(X, f"nx = {DATA} negate(x)", *ROW_OF_ZEROS, "ROOT " + UPDATE.format("nx"))
OF_A_VALUE_USED_AGAIN = entry(
    X,
    *PRODUCT,
    *ROW_OF_ZEROS,
    UPDATE.format("sx"),
    f"{PAIR}(sx, updated)",
)
OF_A_PARAMETER = entry(X, *ROW_OF_ZEROS, "ROOT " + UPDATE.format("x"))
OF_A_DONATED_PARAMETER = entry(
    X, *ROW_OF_ZEROS, "ROOT " + UPDATE.format("x"), alias="{}: (0, {}, may-alias)"
)
CHAINED = entry(
    X,
    *ROW_OF_ZEROS,
    UPDATE.format("x"),
    "there = s32[] constant(9)",
    f"ROOT again = {DATA} dynamic-update-slice(updated, row, there, none)",
)
BRANCHES = f"""
keep {{ ROOT it = {DATA} parameter(0) }}
change {{
  it = {DATA} parameter(0)
  naught = f32[] constant(0)
  row = {ROW} broadcast(naught), dimensions={{}}
  at = s32[] constant(3)
  none = s32[] constant(0)
  ROOT updated = {DATA} dynamic-update-slice(it, row, at, none)
}}"""


def branching(*, again: bool) -> Hlo:
    """One branch updates a value, the other keeps it; ``again`` uses the value afterwards."""
    chosen = f"chosen = {DATA} conditional(which, sx, sx), true_computation=change, "
    chosen += "false_computation=keep"
    last = f"{PAIR}(chosen, sx)" if again else f"ROOT out = {DATA} negate(chosen)"
    return entry(X, *PRODUCT, "which = pred[] parameter(2)", chosen, last, computations=BRANCHES)


FILE = "copy_insertion_test.cc::CopyInsertionTest."

CASES = (
    Case(
        name="parameter",
        after=FILE + "SingleParameter",
        asserts="a parameter that is a result is copied once",
        program=PARAMETER,
        expect={EVERYWHERE: (CopiesOutside(NBYTES),)},
        control=Control(program=OF_A_VALUE),
    ),
    Case(
        name="parameters",
        after=FILE + "MultipleConstantsAndParameters",
        asserts="only the parameter that is a result itself is copied",
        program=PARAMETERS,
        expect={EVERYWHERE: (CopiesOutside(NBYTES),)},
        control=Control(program=NOT_ALIASED),
    ),
    Case(
        name="reshaped",
        after=FILE + "BitcastParameter",
        asserts="a parameter under another shape is copied once",
        program=RESHAPED,
        expect={EVERYWHERE: (CopiesOutside(NBYTES),)},
        control=Control(program=OF_A_VALUE),
    ),
    Case(
        name="crossed",
        after=FILE + "CrossingParameters",
        asserts="two parameters that take each other's place in aliased results are copied",
        program=CROSSED,
        expect={EVERYWHERE: (TakenOver((0, 1)), Honoured(()))},
        control=Control(program=STRAIGHT, breaks=(Honoured(()),)),
    ),
    Case(
        name="straight",
        after=FILE + "ParametersAliasing",
        asserts="two parameters that are the results aliased with them are not copied",
        program=STRAIGHT,
        expect={
            EVERYWHERE: (
                TakenOver((0, 1)),
                Honoured((0, 1)),
                Reused(2 * NBYTES),
                CopiesOutside(0),
            )
        },
        control=Control(program=CROSSED, breaks=(Honoured((0, 1)), Reused(2 * NBYTES))),
    ),
    Case(
        name="not-aliased",
        after=FILE + "ParameterWithNoAliasing",
        asserts="without an alias both are copied",
        program=NOT_ALIASED,
        expect={EVERYWHERE: (TakenOver(()), CopiesOutside(2 * NBYTES))},
        control=Control(program=STRAIGHT),
    ),
    Case(
        name="with-operations",
        after=FILE + "ParameterWithPartialAliasing / AliasedParametersWithOperations",
        asserts="an operation on each of two aliased parameters writes in place",
        program=WITH_OPERATIONS,
        expect={EVERYWHERE: (Honoured((0, 1)), Reused(2 * NBYTES), CopiesOutside(0))},
        control=Control(
            program=WITH_OPERATIONS_NOT_ALIASED,
            breaks=(Honoured((0, 1)), Reused(2 * NBYTES)),
        ),
    ),
    Case(
        name="of-a-value",
        after=FILE + "DynamicUpdateSliceNoCopy",
        asserts="an update of a value that is of no more use copies nothing",
        program=OF_A_VALUE,
        expect={EVERYWHERE: (CopiesOutside(0, NBYTES),)},
        control=Control(program=OF_A_PARAMETER),
    ),
    Case(
        name="of-a-value-used-again",
        after=FILE + "DynamicUpdateSliceCopy",
        asserts="an update of a value that is used again copies it once",
        program=OF_A_VALUE_USED_AGAIN,
        expect={EVERYWHERE: (CopiesOutside(NBYTES, NBYTES),)},
        control=Control(program=OF_A_VALUE),
    ),
    Case(
        name="of-a-parameter",
        after=FILE + "DynamicUpdateSliceParameterShareCopy",
        asserts="an update of a parameter copies it once",
        program=OF_A_PARAMETER,
        expect={EVERYWHERE: (CopiesOutside(NBYTES, NBYTES),)},
        control=Control(program=OF_A_DONATED_PARAMETER),
    ),
    Case(
        name="of-a-donated-parameter",
        after=FILE + "DynamicUpdateSliceParameterShareCopy (with an alias)",
        asserts="an update of a parameter that is aliased copies nothing",
        program=OF_A_DONATED_PARAMETER,
        expect={EVERYWHERE: (Honoured((0,)), Reused(NBYTES), CopiesOutside(0, NBYTES))},
        control=Control(program=OF_A_PARAMETER),
    ),
    Case(
        name="chained",
        after=FILE + "ChainDynamicUpdateSliceCopy",
        asserts="two updates of a parameter one after the other copy it once",
        program=CHAINED,
        expect={EVERYWHERE: (CopiesOutside(NBYTES, NBYTES),)},
        control=Control(program=OF_A_DONATED_PARAMETER),
    ),
    Case(
        name="branching",
        after=FILE + "ConditionalBranchDoNotCopy1",
        asserts="a branch that updates a value of no more use copies nothing",
        program=branching(again=False),
        expect={EVERYWHERE: (Compiles(), CopiesOutside(0, NBYTES))},
        control=Control(program=branching(again=True), breaks=(CopiesOutside(0, NBYTES),)),
        disagreements=(
            Disagreement(
                of=CopiesOutside(0, NBYTES),
                on=(*GPU, *CPU),
                seen=f"measured {2 * NBYTES}",
                right=Right.UPSTREAM,
                why="these compilers copy the value in both branches before jaxlib 0.11",
                toolchain={"jaxlib": "<0.11"},
            ),
        ),
    ),
    Case(
        name="branching-again",
        after=FILE + "ConditionalBranchMustCopy1",
        asserts="each branch of a value which is used afterwards copies it",
        program=branching(again=True),
        expect={EVERYWHERE: (CopiesOutside(2 * NBYTES, NBYTES),)},
        control=Control(program=OF_A_VALUE),
    ),
)

test_assay_agrees_with_upstream, test_assay_notices_the_control = checks_of(CASES)
