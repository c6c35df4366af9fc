"""Inspecting one program: a user's function, or a file that holds a module, on some targets."""

import ast
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from assay.frameworks.hlo import (
    Form,
    HloFile,
    NoModule,
    program_of,
    recognise,
    why_not_compiled_again,
)
from assay.hlo.assignment import memory_stats
from assay.hlo.schema import MalformedModule
from assay.hlo.summary import read
from assay.isolate import Observer
from assay.model.evidence import Evidence, Toolchain
from assay.model.inspection import Inspection, Means
from assay.model.workload import Program, Role, Variant, Workload
from assay.targets import Target, resolve

_SUFFIX = ".py"


class InspectionError(ValueError):
    """An inspection is asked for that cannot be meant. Says what to do instead."""


class Treatment(Enum):
    """What is done with the module of a file before it is read."""

    AS_NEEDED = "compile it unless a compiler is done with it"
    COMPILE = "compile it"
    AS_IT_STANDS = "read it as it stands"


def inspect(
    subject: str,
    targets: Sequence[str],
    treatment: Treatment = Treatment.AS_NEEDED,
    timeout_seconds: float = 600.0,
) -> Iterator[Inspection]:
    """One inspection per target of ``FILE.py:FUNCTION`` (default: cpu), or of a file of HLO.

    A file that a compiler is done with is read as it stands, and needs no target; the target then
    says which device to hold it against. Programs are compiled in a process of their own.

    Raises:
        InspectionError: there is no such function or file, or it holds no module.
        TargetError: no target has that name.
        ObservationError: Assay itself failed.
    """
    resolved = [resolve(name) for name in targets]
    path, function = _parts(subject)
    if function or path.suffix == _SUFFIX:
        _check_function(path, function)
        variant = Variant(
            name=function,
            role=Role.CONTROL,
            program=partial(_function_program, str(path), function),
        )
        workload = Workload(suite="inspect", name=path.name, variants=(variant,))
        on = resolved or [resolve("cpu")]
        yield from _compiled(subject, workload, on, (), timeout_seconds)
        return
    file = _read(path)
    if treatment is Treatment.AS_NEEDED:
        treatment = Treatment.AS_IT_STANDS if file.scheduled else Treatment.COMPILE
    if treatment is Treatment.AS_IT_STANDS:
        yield from _as_it_stands(path, file, resolved)
        return
    if not resolved:
        raise InspectionError(
            f"got {path}, {file.form.value} that no compiler is done with, wanted a target to "
            "compile it for; name one, such as --target gpu-h100, or read it with --as-is"
        )
    for target in resolved:
        if why := why_not_compiled_again(file, target.platform):
            raise InspectionError(f"got {path}, which cannot be compiled for {target.name}: {why}")
    variant = Variant(name=path.name, role=Role.CONTROL, program=partial(program_of, file))
    workload = Workload(suite="inspect", name=path.name, variants=(variant,), framework="hlo")
    yield from _compiled(subject, workload, resolved, _notes(file), timeout_seconds)


def _parts(subject: str) -> tuple[Path, str]:
    """The file and the function in it, "" for a file alone."""
    file, colon, function = subject.rpartition(":")
    if colon and file.endswith(_SUFFIX) and not Path(subject).exists():
        return Path(file), function
    return Path(subject), ""


def _check_function(path: Path, function: str) -> None:
    """Raise InspectionError unless the file seems to define the function and ``example_args``."""
    if not path.is_file():
        raise InspectionError(f"got no file {path}, wanted FILE.py:FUNCTION; check the path")
    try:
        names = _defined(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError) as error:
        raise InspectionError(f"got {path} that Python cannot read ({error}); fix it") from error
    if not function:
        own = sorted(name for name in names if not name.startswith(("_", "example_")))
        raise InspectionError(
            f"got {path} without a function, wanted {path}:FUNCTION; it defines "
            f"{', '.join(own) or 'none'}"
        )
    for name, purpose in ((function, "to compile"), ("example_args", "that returns its arguments")):
        if name not in names and "*" not in names:
            raise InspectionError(
                f"got {path} without {name!r}, wanted a function of that name {purpose}; it "
                f"defines {', '.join(sorted(names)) or 'nothing'}"
            )


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module may have once it is imported; "*" if it takes all of another's."""
    names: set[str] = set()
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            continue  # what it holds is its own
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes.extend(ast.iter_child_nodes(node))
    return names


def _read(path: Path) -> HloFile:
    try:
        return recognise(path.read_bytes(), str(path))
    except OSError as error:
        raise InspectionError(
            f"got {path}, which cannot be read ({error.strerror}), wanted a file of HLO or "
            "FILE.py:FUNCTION; check the path"
        ) from error
    except NoModule as error:
        raise InspectionError(str(error)) from error


# Called in the observer's process: this one never imports jax.
def _function_program(path: str, function: str, devices: Sequence[Any]) -> Program:
    from assay.frameworks.jax_placement import program_of_file

    return program_of_file(path, function, devices)


def _notes(file: HloFile) -> tuple[str, ...]:
    if file.form is not Form.HLO_PROTO:
        return ()
    return ("a proto does not record the number of devices: compiled for one",)


def _compiled(
    subject: str,
    workload: Workload,
    targets: Sequence[Target],
    notes: tuple[str, ...],
    timeout_seconds: float,
) -> Iterator[Inspection]:
    (variant,) = workload.variants
    with Observer([target.name for target in targets], timeout_seconds) as observer:
        for target in targets:
            yield Inspection(
                subject=subject,
                means=Means.COMPILED,
                evidence=observer.observe(workload, variant, str(target.name)),
                device=target.model,
                notes=notes,
            )


def _as_it_stands(path: Path, file: HloFile, targets: Sequence[Target]) -> Iterator[Inspection]:
    if file.form is Form.STABLEHLO:
        raise InspectionError(
            f"got {path}, {file.form.value}, wanted HLO to read as it stands; "
            "name a --target to compile it for, and leave --as-is out"
        )
    try:
        summary = read(file.module, file.buffer_assignment)
        memory = memory_stats(file.buffer_assignment) if file.buffer_assignment else None
    except MalformedModule as error:
        raise InspectionError(f"{path}: {error}") from error
    notes = (
        ()
        if file.scheduled
        else ("not scheduled: no compiler is done with it, and most numbers will change",)
    )
    named: Sequence[Target | None] = targets or [None]
    for target in named:
        model = target.model if target else None
        yield Inspection(
            subject=str(path),
            means=Means.AS_IT_STANDS,
            evidence=Evidence(
                workload=path.name,
                variant=path.name,
                target=str(target.name) if target else "",
                # Who compiled it, the file does not say.
                toolchain=Toolchain(versions={}),
                separate_host_memory=target is None or target.platform != "cpu",
                device_memory_bytes=model.memory_bytes if model else None,
                memory=memory,
                module=summary,
            ),
            device=model,
            notes=notes,
        )
