"""How often a step recompiles by chance: ``python -m suites.fsdp_accumulation.flaky_recompile``.

Does one training step of PyTorch/XLA in several ways and counts the steps that ran another graph
than the step's own. All ways take turns in one process, in random order, so that a busy machine
weighs on each alike; a graph is compiled once, so that thousands of steps take seconds. Then fresh
processes count what a user counts: runs of a few steps that compiled more than one graph.

Steps of one process come in bursts, so that their intervals are narrower than they should be;
processes are independent of each other.
"""

import argparse
import importlib.util
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final, TypeVar

from suites.fsdp_accumulation.rates import Rate, fisher_p

ONLY_PLAIN_IS_ODD: Final = 0
REMEDY_IS_ODD: Final = 1
NOT_REPRODUCED: Final = 2
CANNOT_RUN: Final = 3

T = TypeVar("T")

_STEPS_OF_A_RUN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How often a condition was odd, and the median time of a step, or of a whole run."""

    name: str
    odd: Rate
    median_seconds: float


def main() -> int:
    """Prints both tables; 0 if the plain step is odd at times and the remedy never is.

    1 if the remedy is, 2 if no plain step was, 3 if torch_xla is missing or a process died.
    """
    arguments = _parser().parse_args()
    if importlib.util.find_spec("torch_xla") is None:
        sys.stdout.write("cannot run: pip install torch==2.9.0 torch_xla==2.9.0\n")
        return CANNOT_RUN
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    try:
        return _measure(arguments.steps, arguments.runs, arguments.seed)
    except ChildProcessError as died:
        sys.stdout.write(f"cannot run: {died}\n")
        return CANNOT_RUN


def _measure(steps: int, runs: int, seed: int) -> int:
    from suites.fsdp_accumulation import racing_steps  # forks share it; it looks for no device

    names = [each.name for each in racing_steps.conditions()]
    of_steps = _rows(names, _forked(partial(_steps, steps, seed)))
    sys.stdout.write(_table("steps that ran another graph", of_steps))
    fresh = [partial(_run, which) for which in range(2)]
    of_runs = _rows(names, [list(map(_forked, fresh)) for _ in range(runs)])
    sys.stdout.write(_table(f"processes of {_STEPS_OF_A_RUN} steps that compiled twice", of_runs))
    code, sentence = _verdict(of_steps, of_runs)
    sys.stdout.write(f"\n{sentence}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--steps", type=_positive, default=1000, help="of each condition, in one process"
    )
    parser.add_argument(
        "--runs", type=_positive, default=40, help="fresh processes of plain and remedy"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of the conditions")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, wanted at least 1")
    return number


Sample = tuple[bool, float]
"""Whether it was odd, and its seconds."""


def _steps(rounds: int, seed: int) -> list[list[Sample]]:
    """One step of every condition a round, in an order of its own."""
    from suites.fsdp_accumulation import racing_steps

    model, order = racing_steps.Model(), random.Random(seed)  # noqa: S311  # no secret
    every = racing_steps.conditions()
    found = []
    for _ in range(rounds):
        samples: dict[str, Sample] = {}
        for each in order.sample(every, len(every)):
            step = racing_steps.run(model, each)
            samples[each.name] = step.outputs != racing_steps.OUTPUTS, step.seconds
        found.append([samples[each.name] for each in every])
    return found


def _run(which: int) -> Sample:
    """Some steps of one condition, in a process that does nothing else."""
    from suites.fsdp_accumulation import racing_steps

    model, condition = racing_steps.Model(), racing_steps.conditions()[which]
    steps = [racing_steps.run(model, condition) for _ in range(_STEPS_OF_A_RUN)]
    return sum(each.compiled for each in steps) > 1, sum(each.seconds for each in steps)


def _forked(work: Callable[[], T]) -> T:
    """What some work returns in a process of its own.

    Raises:
        ChildProcessError: the process ended without an answer.
    """
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, writer))
    process.start()
    writer.close()
    try:
        answer: T = reader.recv()
    except EOFError:
        process.join()
        raise ChildProcessError(f"a process of steps ended with {process.exitcode}") from None
    process.join()
    return answer


def _send(work: Callable[[], Any], writer: Connection) -> None:
    writer.send(work())


def _rows(names: Sequence[str], rounds: Sequence[Sequence[Sample]]) -> list[Row]:
    """One row a condition, from rounds of one sample of each."""
    return [
        Row(
            name=name,
            odd=Rate(seen=sum(odd for odd, _ in samples), tried=len(samples)),
            median_seconds=median(seconds for _, seconds in samples),
        )
        for name, samples in zip(names, zip(*rounds, strict=True), strict=False)
    ]


def _table(title: str, rows: Sequence[Row]) -> str:
    """Each row's rate, its 95 % interval, Fisher's p against the first row, and its time."""
    head = f"\n{title:42}{'odd':>12}{'95 % interval':>19}{'p':>11}{'median':>14}\n"
    return head + "".join(map(partial(_line, rows[0]), rows))


def _line(plain: Row, row: Row) -> str:
    low, high = row.odd.interval
    interval = f"{100 * low:.2f} to {100 * high:.2f} %"
    p = "" if row is plain else _probability(fisher_p(plain.odd, row.odd))
    microseconds = f"{row.median_seconds * 1e6:,.0f} µs"
    count = f"{row.odd.seen} / {row.odd.tried}"
    return f"{row.name:42}{count:>12}{interval:>19}{p:>11}{microseconds:>14}\n"


def _probability(p: float) -> str:
    return f"{p:.1e}" if p > sys.float_info.min else f"< {sys.float_info.min:.0e}"


def _verdict(steps: Sequence[Row], runs: Sequence[Row]) -> tuple[int, str]:
    """The exit code and its words; the plain condition comes first, the remedy second."""
    plain, remedy = ([table[which].odd.seen for table in (steps, runs)] for which in range(2))
    if any(remedy):
        return REMEDY_IS_ODD, "The remedy fails: a step with it ran or compiled another graph."
    if not plain[0]:
        return NOT_REPRODUCED, "Not reproduced: no plain step was odd; the remedy shows nothing."
    return ONLY_PLAIN_IS_ODD, "Reproduced: the plain step is odd at times, the remedy never was."


if __name__ == "__main__":
    sys.exit(main())
