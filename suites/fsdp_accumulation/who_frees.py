"""Which thread frees a step's gradients: ``python -m suites.fsdp_accumulation.who_frees``.

Does the plain step and sets beside each other whether it ran another graph than its own, and which
threads ran the finalizers of its gradients: the calling one, which deletes them before the sync, or
one that still held them then.
"""

import argparse
import os
import sys
import threading
import weakref
from collections import Counter
from typing import Any, Final

_CALLING: Final = "the calling thread"
_BOTH: Final = "both threads"

Freed = tuple[bool, str]
"""Whether the step ran another graph, and who freed its gradients."""


def main() -> int:
    """Prints the counts; 0 if the calling thread freed no gradient of an odd step, 1 if it did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=2000)
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    counts = _watched(parser.parse_args().steps)
    for (odd, who), count in sorted(counts.items()):
        graph = "another graph" if odd else "its own graph"
        sys.stdout.write(f"{count:6} steps ran {graph}; their gradients were freed by {who}\n")
    if not any(odd for odd, _ in counts):
        sys.stdout.write("Not reproduced: every step ran its own graph.\n")
        return 2
    return int(any(odd and who in {_CALLING, _BOTH} for odd, who in counts))


def _watched(steps: int) -> Counter[Freed]:
    from suites.fsdp_accumulation.racing_steps import OUTPUTS, Condition, Model, run

    freed_by: list[int] = []
    watches: list[Any] = []

    def freed(_: Any) -> None:
        freed_by.append(threading.get_ident())

    def watching(model: Model, loss: Any) -> None:
        gradients = model.gradients(loss)
        watches.extend(weakref.ref(each, freed) for each in gradients)
        model.update(gradients)

    model, counts = Model(), Counter[Freed]()
    for _ in range(steps):
        odd = run(model, Condition(name="watched", backward=watching)).outputs != OUTPUTS
        counts[odd, _who(freed_by)] += 1
        freed_by.clear()
        watches.clear()
    return counts


def _who(threads: list[int]) -> str:
    """In words, whose finalizers ran."""
    mine = threads.count(threading.get_ident())
    if not threads:
        return "no thread while it ran"
    if mine == len(threads):
        return _CALLING
    return _BOTH if mine else "another thread"


if __name__ == "__main__":
    sys.exit(main())
