"""Whether memsafe is right on random programs: ``python -m benchmarks.memsafe_programs``.

Each number from ``--seed`` on is a program (`tests.memsafe.random_programs.numbered`): random
operations that memsafe knows, differentiated or not, on 1 to 4 devices, with a random budget. Its
double-precision results must equal plain jit's to 1e-9 of the largest entry; integers and truth
values must be equal exactly. What memsafe compiles must keep the budget, unless memsafe refuses it
or the program is the gradient of a memsafe function. If plain jit itself is wrong (it makes a value
twice, with two roundings, so that none equals the maximum), memsafe is compared with the operations
run one by one, and the program is counted. Ill-conditioned programs are also counted: plain jit's
results differ by as much if the arguments differ in their last bits.

Programs run in other processes. If a process ends, and the program as written ends one too, the
fault is XLA's and is counted apart. Programs that XLA does not compile as written are counted apart
too. Exits with 1 if a program is wrong, over its budget or breaks memsafe, if less than a tenth
were split, or if Ctrl-C ended the run early. Every hundred programs it prints the counts so far.
After Ctrl-C, ``--seed`` continues from there.

XLA for CPUs may round one number in two ways: a product that is added to something is a fused
multiply-add in one fusion and not in another. Then no element equals a maximum made of it, and a
derivative is lost (jax-ml/jax#40564). memsafe's programs store what they compare with its own
maximum. A wrong program is tried again without these instructions. If it is right then, it is
counted apart, to say where to look. It still fails the run, because a user would get it.

XLA takes three quarters of the time. ``--quick`` makes XLA compile without most optimisations, if
it has the options: 1.9 s of a processor for each of eight programs in place of 5.2. A fault found
then is tried again with XLA's own options, and counts only if it is found there too.
"""

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final

import jax  # noqa: TID251 — its devices are set here.
from rich.console import Console  # noqa: TID251 — a benchmark is a door of its own.

from tests.memsafe.random_programs import Program, compiled_as_written, numbered, outcome_of

_SPLIT_AT_LEAST: Final = 0.1
_DEVICES: Final = 4
_PROGRAMS_OF_A_PROCESS: Final = 50  # A process keeps its compiled programs.
_PROGRAMS_OF_A_LINE: Final = 100  # So that a killed run has printed most counts.
_QUICK: Final = ("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false")
"""Options of XLA in jax 0.10.2. XLA ends a process for an option that it does not have."""
_UNFUSED: Final = "--xla_cpu_max_isa=AVX"
"""Compile for processors of this kind, which have no fused multiply-adds."""
_ROUNDED: Final = "right without fused multiply-adds"
_KINDS: Final = (
    "programs",
    "split",
    "budget errors",
    "plain jit wrong",
    "ill-conditioned",
    _ROUNDED,
    "wrong values",
    "over budget",
    "crashes",
    "XLA ends the process as written",
    "XLA refuses it as written",
    "tried again",
)

Found = tuple[list[str], list[str]]
"""The outcome of a program: lines that describe faults, and kinds to count."""


def main() -> int:
    """Prints each fault when found, then the counts of outcomes; 1 unless the whole run passes."""
    arguments = _parser().parse_args()
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False)
    begun, counts = time.perf_counter(), Counter[str]()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    options = tuple(filter(is_known, _QUICK)) if arguments.quick else ()
    with contextlib.suppress(KeyboardInterrupt):
        for lines, kinds in outcomes(seeds, found_of, _written, options):
            for line in lines:
                console.print(line)
            counts.update(kinds)
            if counts["programs"] % _PROGRAMS_OF_A_LINE == 0:
                console.print(", ".join(f"{kind}: {count}" for kind, count in counts.items()))
    for kind in _KINDS:
        console.print(f"{kind}: {counts[kind]}")
    console.print(f"seconds: {time.perf_counter() - begun:.0f}")
    faults = sum(counts[kind] for kind in ("wrong values", _ROUNDED, "over budget", "crashes"))
    good = not faults and counts["split"] >= _SPLIT_AT_LEAST * counts["programs"]
    whole = counts["programs"] == arguments.count
    console.print("FAIL" if not good else "PASS" if whole else "PASS so far, ended early")
    return 0 if good and whole else 1


def outcomes(
    seeds: range,
    found: Callable[[int], Found],
    written: Callable[[int], object],
    options: Sequence[str] = (),
) -> Iterator[Found]:
    """The outcome of each program, which ``found`` gives in a process that the program may end.

    If a process ends, ``written`` runs in another: if that ends too, the fault is XLA's. With
    ``options`` of XLA, a program with a line to tell is tried again without them.
    """
    while seeds:
        some, seeds = seeds[:_PROGRAMS_OF_A_PROCESS], seeds[_PROGRAMS_OF_A_PROCESS:]
        done = 0
        with _process(options) as process, contextlib.suppress(BrokenProcessPool):
            for seed in some:  # One at a time, so that Ctrl-C waits for no other program.
                told = process.submit(found, seed).result()
                yield (
                    _again(seed, found, written)
                    if options and told[0]
                    else _blamed(seed, found, told)
                )
                done += 1
        if done < len(some):
            ended = some[done]
            yield _again(ended, found, written) if options else _ended(ended, written)
            seeds = range(ended + 1, seeds.stop)


def _again(seed: int, found: Callable[[int], Found], written: Callable[[int], object]) -> Found:
    """The outcome of a program with XLA's own options."""
    ((lines, kinds),) = outcomes(range(seed, seed + 1), found, written)
    return lines, [*kinds, "tried again"]


def _blamed(seed: int, found: Callable[[int], Found], told: Found) -> Found:
    """The outcome of a program; wrong values that fused multiply-adds cause are counted apart."""
    lines, kinds = told
    if "wrong values" not in kinds or not is_known(_UNFUSED):
        return told
    with _process([_UNFUSED]) as process:
        _, unfused = process.submit(found, seed).result()
    if not {"wrong values", "crashes", "budget errors"}.isdisjoint(unfused):
        return told
    kinds = [_ROUNDED if kind == "wrong values" else kind for kind in kinds]
    return [f"{_ROUNDED}: {line}" for line in lines], kinds


def _process(options: Sequence[str] = ()) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=_begun, initargs=(tuple(options),))


def _begun(options: Sequence[str]) -> None:
    jax.config.update("jax_num_cpu_devices", _DEVICES)
    os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *options))


def is_known(option: str) -> bool:
    """Whether XLA has an option."""
    with _process([option]) as process:
        try:
            process.submit(jax.device_count).result()
        except BrokenProcessPool:
            return False
    return True


def _ended(seed: int, written: Callable[[int], object]) -> Found:
    """The outcome of a program that ended its process: XLA's fault if it also does as written."""
    told = f"the process ended\n  {numbered(seed)}"
    with _process() as process:
        try:
            process.submit(written, seed).result()
        except BrokenProcessPool:
            return [f"as written, {told}"], ["programs", "XLA ends the process as written"]
    return [told], ["programs", "crashes"]


def _written(seed: int) -> None:
    compiled_as_written(numbered(seed))


def found_of(seed: int) -> Found:
    """The outcome of a program, run in this process."""
    program = numbered(seed)
    try:
        outcome = outcome_of(program)
    except Exception as error:  # noqa: BLE001 — a crash is what is looked for.
        told = f"{type(error).__name__}: {error}\n  {program}"
        if _is_refused_as_written(program):
            return [f"as written, {told}"], ["programs", "XLA refuses it as written"]
        return [told], ["programs", "crashes"]
    lines = [f"{fault}\n  {program}" for fault in outcome.faults]
    if outcome.plain_is_wrong:
        lines.append(f"plain jit is wrong, memsafe is not\n  {program}")
    if outcome.ill_conditioned:
        lines.append(f"ill-conditioned\n  {program}")
    wrong = any(not fault.startswith("over budget") for fault in outcome.faults)
    over = any(fault.startswith("over budget") for fault in outcome.faults)
    flags = {
        "programs": True,
        "split": outcome.split,
        "budget errors": outcome.refused,
        "plain jit wrong": outcome.plain_is_wrong,
        "ill-conditioned": outcome.ill_conditioned,
        "wrong values": wrong,
        "over budget": over,
    }
    return lines, [kind for kind, holds in flags.items() if holds]


def _is_refused_as_written(program: Program) -> bool:
    try:
        compiled_as_written(program)
    except jax.errors.JaxRuntimeError:
        return True
    return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first")
    parser.add_argument("--quick", action="store_true", help="without most of XLA's optimisations")
    return parser


if __name__ == "__main__":
    sys.exit(main())
