"""``python -m assay.toolchains --against 0.10.2 MODULE:WORKLOAD/VARIANT``: rerun one variant.

Ends with 0 if it is no slower, 1 if it is slower or failed, 2 for misuse and what cannot run, 3 if
Assay failed. Too noisy to say is 2, as is Ctrl-C: nothing was decided.
"""

import argparse
import importlib
import math
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec

from assay.isolate import NotPortable
from assay.model.rerun import Rerun, Side
from assay.model.target import TargetError
from assay.model.timing import Change
from assay.model.verdict import ExitCode
from assay.model.workload import Variant, Workload
from assay.toolchains.pairs import page
from assay.toolchains.process import RerunError
from assay.toolchains.recipe import UnreadableToolchain
from assay.toolchains.side_by_side import Against, rerun


class _Misuse(ValueError):
    """The command line names nothing that could be rerun."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m assay.toolchains", description=__doc__)
    parser.add_argument("program", metavar="MODULE:WORKLOAD/VARIANT")
    parser.add_argument("--against", required=True, metavar="VERSION")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--python", default="", metavar="VERSION")
    parser.add_argument("--with", dest="also", action="append", default=[], metavar="REQUIREMENT")
    parser.add_argument("--seconds", type=_seconds, default=300.0)
    parser.add_argument("--json", type=_file, metavar="FILE", help="write all samples there")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"got {text}, wanted a positive number of seconds; try 300"
        )
    return seconds


def _file(text: str) -> Path:
    """A writable file path, checked before any measurement so that no result is lost."""
    path = Path(text)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(
            f"got {text}, wanted a file in a folder that can be written to; name another"
        )
    return path


def _named(text: str) -> tuple[Workload, Variant]:
    module, _, rest = text.partition(":")
    name, _, variant = rest.rpartition("/")
    try:
        found = {each.name: each for each in _workloads(importlib.import_module(module))}
        return found[name], found[name].variant(variant)
    except (ImportError, ValueError) as error:
        raise _Misuse(f"got {text!r} ({error}), wanted MODULE:WORKLOAD/VARIANT") from None
    except KeyError:
        there = ", ".join(sorted(found)) or "none"
        raise _Misuse(f"got workload {name!r}, wanted one of {module}'s: {there}") from None
    except LookupError as error:
        raise _Misuse(str(error)) from None


def _workloads(module: ModuleType) -> Iterator[Workload]:
    """A module's workloads, by themselves and in tuples."""
    for value in vars(module).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Workload):
                yield each


def _exit_code(result: Rerun) -> ExitCode:
    if result.failure is not None:
        return ExitCode.FAILED if result.side is Side.NEW else ExitCode.MISUSE
    if result.ratio is None or result.ratio.change is Change.TOO_NOISY:
        return ExitCode.MISUSE
    return ExitCode.FAILED if result.ratio.change is Change.SLOWER else ExitCode.PASSED


def main() -> ExitCode:
    """Run the command."""
    options = _parser().parse_args()
    try:
        workload, variant = _named(options.program)
        against = Against(
            baseline=options.against,
            python=options.python,
            also=tuple(options.also),
            most_seconds=options.seconds,
        )
        result = rerun(workload, variant, options.target, against)
    except (_Misuse, UnreadableToolchain, NotPortable, TargetError) as error:
        sys.stderr.write(f"assay: {error}\n")
        return ExitCode.MISUSE
    except RerunError as error:
        sys.stderr.write(f"assay: {error}\n")
        return ExitCode.CRASHED
    except KeyboardInterrupt:
        sys.stderr.write("assay: interrupted\n")
        return ExitCode.MISUSE
    sys.stdout.write(page(result) + "\n")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    return _exit_code(result)


if __name__ == "__main__":
    try:
        code = main()
    # Any other exception is a fault of Assay and ends with exit code 3.
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        code = ExitCode.CRASHED
    sys.exit(code.value)
