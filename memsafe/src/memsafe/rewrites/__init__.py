"""Passes over a flattened program that prepare it for splitting.

Each pass takes a program and returns `Rewritten`: the new program and one line for each change. Run
`redundant` first: it merges equal values, so that the other passes see them as one.
`euclidean_distances` changes rounding beyond the order of additions, so it runs only on request.
"""

from memsafe.rewrites.blocks import computed_in_blocks
from memsafe.rewrites.bystanders import bystanders_apart, sums_apart
from memsafe.rewrites.chains import matrix_chains
from memsafe.rewrites.checkpoints import checkpointed_loops, has_loops_to_cut, segmented_loops
from memsafe.rewrites.convolutions import ordered_convolutions
from memsafe.rewrites.directions import one_direction_each
from memsafe.rewrites.distances import euclidean_distances
from memsafe.rewrites.draws import counted_draws
from memsafe.rewrites.invariants import loop_invariants
from memsafe.rewrites.offloaded import offloaded
from memsafe.rewrites.online import online_sums
from memsafe.rewrites.recomputed import recomputed
from memsafe.rewrites.reductions import short_reductions
from memsafe.rewrites.redundant import redundant
from memsafe.rewrites.reshapes import reshape_sinking
from memsafe.rewrites.rewritten import Rewritten
from memsafe.rewrites.rolls import rolls
from memsafe.rewrites.rows import rows_in_place
from memsafe.rewrites.selection import selected

__all__ = [
    "Rewritten",
    "bystanders_apart",
    "checkpointed_loops",
    "computed_in_blocks",
    "counted_draws",
    "euclidean_distances",
    "has_loops_to_cut",
    "loop_invariants",
    "matrix_chains",
    "offloaded",
    "one_direction_each",
    "online_sums",
    "ordered_convolutions",
    "recomputed",
    "redundant",
    "reshape_sinking",
    "rolls",
    "rows_in_place",
    "segmented_loops",
    "selected",
    "short_reductions",
    "sums_apart",
]
