"""Families of HLO opcodes that several analyses share."""

from typing import Final


def opcodes(names: str) -> frozenset[str]:
    """The opcodes of a text that names them with spaces between."""
    return frozenset(names.split())


COLLECTIVES: Final = opcodes(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all "
    "recv reduce-scatter send"
)
"""Communicate with other devices."""

STARTS: Final = opcodes(
    "all-gather-start all-reduce-start async-start collective-permute-start copy-start recv send"
)
"""Begin an operation and do not wait for it."""

DONES: Final = opcodes(
    "all-gather-done all-reduce-done async-done collective-permute-done copy-done recv-done "
    "send-done"
)
"""Wait for what a start began."""

HOST_LINKS: Final = opcodes("infeed outfeed recv send")
"""May move bytes to or from the host without naming host memory."""

RUNS: Final = opcodes("call conditional while")
"""Do the work of the computations that they run."""

PASSES_ON: Final = opcodes(
    "add-dependency after-all bitcast constant domain get-tuple-element opt-barrier parameter tuple"
)
"""Name or pack values."""

MOVES_NOTHING: Final = PASSES_ON | DONES | RUNS | opcodes("async-update partition-id replica-id")
"""Move no bytes themselves: pass values on, or stand for what another instruction moves."""

FREE: Final = (MOVES_NOTHING | STARTS) - RUNS
"""Cost nothing: pass values on, or start or await an asynchronous operation."""

SLICES: Final = opcodes("dynamic-slice gather slice")
"""Read a part of their first operand."""

UPDATES: Final = opcodes("dynamic-update-slice scatter")
"""Write a part of their first operands, where they can do it in place."""

ELEMENTWISE: Final = opcodes(
    "abs add and atan2 cbrt ceil clamp compare convert cosine count-leading-zeros divide erf "
    "exponential exponential-minus-one floor is-finite log log-plus-one logistic maximum minimum "
    "multiply negate not or popcnt power reduce-precision remainder round-nearest-afz "
    "round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign "
    "sine sqrt stochastic-convert subtract tan tanh xor"
)
"""Compute each element of the result from one element of each operand."""

COMMUTATIVE: Final = opcodes("add and maximum minimum multiply or xor")
"""Have the same result with their operands in the other order."""

EFFECTS: Final = opcodes(
    "infeed outfeed recv recv-done rng rng-get-and-update-state send send-done"
)
"""Have side effects: not dead code even if no instruction uses their results."""
