"""Rerunning: one variant on a baseline toolchain and on the present one, side by side."""

import os
import site
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from assay.isolate.memory import MemoryLimit, usual_limit
from assay.isolate.messages import pickled
from assay.model.evidence import Failure
from assay.model.rerun import KeepRerun, Pair, Rerun, Side
from assay.model.target import Unavailable
from assay.model.timing import Change, Ending, Ratio, Sensitivity
from assay.model.workload import Variant, Workload
from assay.stats.processes import ratio_of_processes
from assay.stats.ratios import DEFAULT
from assay.targets import environment as process_environment
from assay.targets import resolve
from assay.toolchains.environments import (
    CannotMake,
    Environment,
    WrongVersions,
    check_pins,
    environment,
)
from assay.toolchains.pairs import (
    Halted,
    Launch,
    Prepared,
    RerunError,
    is_judged,
    link_assay,
    take_pair,
    take_pairs,
    turns,
)
from assay.toolchains.recipe import Recipe, recipe

_BY_VALUE: Final = b"cloudpickle.cloudpickle"
# What would lead a Python to another one's packages.
_MISLEADING: Final = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
# Two processes hold one accelerator: neither may take all of its memory at once.
_SHARING: Final = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What a program is rerun on, and for how long.

    ``baseline`` is a baseline's toolchain, or a version as the user writes it
    (``--assay-against 0.10.2``). ``most_seconds`` limits one comparison, ``timeout_seconds`` the
    preparation of one process and each of its samples, ``memory_limit`` its memory.
    ``environments`` gives the environment of a
    recipe, and makes it first if necessary.
    """

    baseline: Mapping[str, str] | str
    most_seconds: float = 300.0
    timeout_seconds: float = 900.0
    memory_limit: MemoryLimit | None = field(default_factory=usual_limit)
    environments: Callable[[Recipe], Environment] = environment


def rerun(
    workload: Workload,
    variant: Variant,
    target: str,
    against: Against,
    *,
    sensitivity: Sensitivity = DEFAULT,
    keep: KeepRerun = lambda _: None,
    negative_control: bool = False,
) -> Rerun:
    """The variant's steady time on the present toolchain over that on the baseline, judged.

    ``keep`` gets the result so far after every pair of processes. The seconds do not include the
    time to make an environment. A ``negative_control`` runs on the baseline toolchain on both
    sides, and does each sample twice on the new one: it must be slower.

    The result names what a toolchain, a program or this machine cannot do as ``unavailable``, and
    a failed program as ``failure``, both with their side; None if neither side can run it. A
    failure on the old side is no fault of the present toolchain.

    Raises:
        UnreadableToolchain: ``against`` names no toolchain.
        TargetError: no target has that name.
        NotPortable: the workload cannot be sent to another process.
        RerunError: Assay itself failed, or an environment holds other versions than it should.
    """
    blank = Rerun(
        suite=workload.suite,
        workload=workload.name,
        variant=variant.name,
        target=target,
        negative_control=negative_control,
    )
    place = resolve(target)
    wanted = recipe(against.baseline, platform=place.platform)
    if not place.executes:
        reason = "a compile-only target runs nothing, on no toolchain"
        return _cannot(blank, reason, "rerun it on a live target, such as cpu")
    program = pickled(workload, variant, target)
    try:
        made = against.environments(wanted)
    except CannotMake as refused:
        return replace(_cannot(blank, refused.reason, refused.remedy), side=Side.OLD)
    except WrongVersions as wrong:
        raise RerunError(str(wrong)) from None
    if _is_other_python(made) and _BY_VALUE in program:
        reason = f"a function of it has no name in a module, which {made.folder.name} needs"
        return _cannot(blank, reason, "name it in a module, or rerun on this Python")
    with tempfile.TemporaryDirectory(prefix="assay-rerun-") as folder:
        launches = _launches(target, made, wanted, program, against, Path(folder))
        if negative_control:
            launches[Side.NEW] = replace(launches[Side.OLD], side=Side.NEW, repeats=2)
        return _compared(blank, launches, wanted, sensitivity, against.most_seconds, keep)


def _launches(
    target: str,
    made: Environment,
    wanted: Recipe,
    program: bytes,
    against: Against,
    folder: Path,
) -> dict[Side, Launch]:
    """How each side's processes start: the same search path, each with its own packages."""
    base = _environment(target, link_assay(folder))
    old = Launch(
        side=Side.OLD,
        command=_command(made.interpreter, target),
        environment=base if wanted.flags is None else _with_flags(base, wanted.flags),
        program=program,
        timeout_seconds=against.timeout_seconds,
        memory_limit=against.memory_limit,
    )
    present = _command(Path(sys.executable), target)
    return {
        Side.OLD: old,
        Side.NEW: replace(old, side=Side.NEW, command=present, environment=base),
    }


def _compared(
    known: Rerun,
    launches: Mapping[Side, Launch],
    wanted: Recipe,
    sensitivity: Sensitivity,
    most_seconds: float,
    keep: KeepRerun,
) -> Rerun:
    """Take pairs until there are enough; ``keep`` gets what is known after each."""
    start = time.perf_counter()

    def note(**found: Any) -> None:
        nonlocal known
        known = replace(known, **found, seconds=time.perf_counter() - start)

    def prepared(old: Prepared, new: Prepared) -> None:
        _check(wanted.pins, old.toolchain.versions)
        note(
            old=old.toolchain,
            new=new.toolchain,
            old_python=old.python,
            new_python=new.python,
            machine=new.machine,
        )

    def taken(pairs: Sequence[Pair]) -> None:
        note(pairs=tuple(pairs), ratio=_judged(pairs, sensitivity))
        keep(known)

    try:
        ended = take_pairs(
            lambda number, end: take_pair(launches, number, end, prepared),
            most_seconds=most_seconds,
            sensitivity=sensitivity,
            taken=taken,
        )
        note(ended=ended)
    except Halted as halted:
        kind = "failure" if isinstance(halted.end, Failure) else "unavailable"
        note(ended=Ending.STOPPED, side=halted.side, **{kind: halted.end})
    return known


def _check(pins: Mapping[str, str], versions: Mapping[str, str]) -> None:
    reported = {name: pin for name, pin in pins.items() if name in versions}
    try:
        check_pins(reported, versions, "the process of the baseline toolchain")
    except WrongVersions as wrong:
        raise RerunError(f"{wrong}: another one comes first on the search path") from None


def _judged(pairs: Sequence[Pair], sensitivity: Sensitivity) -> Ratio | None:
    """The ratio; None with fewer than two pairs of enough turns, unless they are far apart."""
    found = ratio_of_processes([turns(pair) for pair in pairs], sensitivity)
    is_known = found.change is not Change.TOO_NOISY or sum(map(is_judged, pairs)) > 1
    return found if is_known else None


def _cannot(blank: Rerun, reason: str, remedy: str) -> Rerun:
    unavailable = Unavailable(reason=reason, remedy=remedy)
    return replace(blank, ended=Ending.STOPPED, unavailable=unavailable)


def _command(interpreter: Path, target: str) -> tuple[str, ...]:
    # -P: the present folder is on the search path only if it is on this process's.
    return (str(interpreter), "-P", "-m", "assay.toolchains.child", target)


def _environment(target: str, assay: Path) -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    fresh = {
        # With a cached program, the time of loading it would be taken for a compile time.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        # The frames that JAX would remove tell whose fault an exception is.
        "JAX_TRACEBACK_FILTERING": "off",
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": os.pathsep.join([str(assay), *_own_entries(sys.path)]),
    }
    return process_environment([resolve(target).name], _SHARING | bare) | fresh


def _with_flags(base: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    given = {name: value for name, value in flags.items() if value}
    return {name: value for name, value in base.items() if name not in flags} | given


def _own_entries(path: Sequence[str]) -> list[str]:
    """What the user put on the search path: all but this Python's library and its packages."""
    places = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    packages = [*(places[name] for name in names), site.getusersitepackages()]
    theirs = {Path(place).resolve() for place in packages}
    whole = [Path(entry or ".").resolve() for entry in path]
    return [
        str(entry)
        for entry in whole
        if entry.suffix != ".zip" and theirs.isdisjoint((entry, *entry.parents))
    ]


def _is_other_python(made: Environment) -> bool:
    """Whether its Python reads another byte code than this one."""
    config = (made.folder / "pyvenv.cfg").read_text()
    lines = dict(line.split(" = ", 1) for line in config.splitlines() if " = " in line)
    found = lines.get("version_info", lines.get("version", ""))
    return found.split(".")[:2] != list(map(str, sys.version_info[:2]))
