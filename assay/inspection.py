"""Inspecting one program on some targets: a user's function, or a file that holds a module."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import decode_source
from pathlib import Path
from symtable import symtable
from typing import Any

from assay.frameworks.hlo import Form, program_of
from assay.isolate import Observer, Reading, read_hlo_file
from assay.model.blame import WrongValue
from assay.model.evidence import Evidence, Toolchain
from assay.model.inspection import Inspection, Means
from assay.model.suggestion import suggestion
from assay.model.workload import Program, Role, Variant, Workload
from assay.store.files import read_file
from assay.targets import Target, resolve

_SUFFIX = ".py"
_ONE_DEVICE = "a proto does not record the number of devices: compiled for one"
_NOT_SCHEDULED = "not scheduled: no compiler has finished it, and most numbers will change"


def inspect(
    subject: str,
    targets: Sequence[str],
    *,
    compile_it: bool = False,
    as_is: bool = False,
    donate: Sequence[int] = (),
    timeout_seconds: float = 600.0,
) -> Iterator[Inspection]:
    """One inspection per target of ``FILE.py:FUNCTION`` (default: cpu), or of a file of HLO.

    A scheduled module of a file is read without compiling it, and needs no target; a target then
    gives the device. ``compile_it`` and ``as_is`` force one of the two. Programs are compiled in a
    child process. ``donate`` are the numbers of a function's arguments that it donates.

    Raises:
        WrongValue: there is no such function or file, or it holds no module, or nothing to donate,
            or its module cannot be compiled for the targets.
        TargetError: no target has that name.
        ObservationError: Assay itself failed.
    """
    resolved = [resolve(name) for name in targets]
    path, function = Path(subject), ""
    if not path.exists() and f"{_SUFFIX}:" in subject:
        file_name, _, function = subject.rpartition(":")
        path = Path(file_name)
    notes: tuple[str, ...] = ()
    if function or path.suffix == _SUFFIX:
        _check_function(path, function)
        name, framework = function, "jax"
        program = partial(_function_program, str(path), function, tuple(donate))
        resolved = resolved or [resolve("cpu")]
    elif donate:
        raise WrongValue(f"got --donate for {path}, whose donations are fixed, wanted a function")
    else:
        platforms = list(dict.fromkeys(target.platform for target in resolved)) or [""]
        reading = read_hlo_file(
            path, platforms, as_is=as_is, compile_it=compile_it, seconds=timeout_seconds
        )
        if reading.summaries:
            yield from _as_it_stands(path, reading, resolved)
            return
        _check_compilable(path, reading, resolved)
        name, framework, program = path.name, "hlo", partial(program_of, reading.file)
        notes = (_ONE_DEVICE,) if reading.file.form is Form.HLO_PROTO else ()
    variant = Variant(name=name, role=Role.CONTROL, program=program)
    workload = Workload(suite="inspect", name=path.name, variants=(variant,), framework=framework)
    with Observer([target.name for target in resolved], timeout_seconds) as observer:
        for target in resolved:
            yield Inspection(
                subject=subject,
                means=Means.COMPILED,
                evidence=observer.observe(workload, variant, str(target.name)),
                device=target.model,
                notes=notes,
            )


def _check_function(path: Path, function: str) -> None:
    """Raise WrongValue unless the file seems to define the function and ``example_args``."""
    if not path.is_file():
        raise WrongValue(f"got no file {path}, wanted FILE.py:FUNCTION; check the path")
    try:
        source = decode_source(read_file(path))
        symbols = symtable(source, str(path), "exec").get_symbols()
    except (OSError, RecursionError, SyntaxError, ValueError) as error:
        raise WrongValue(f"got {path} that Python cannot read ({error}); fix it") from error
    names = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    own = sorted(each.get_name() for each in symbols if not each.is_imported())
    own = [name for name in own if name in names and not name.startswith(("_", "example_"))]
    if not function:
        raise WrongValue(
            f"got {path} without a function, wanted {path}:FUNCTION; it defines "
            f"{', '.join(own) or 'none'}"
        )
    for name, purpose in ((function, "to compile"), ("example_args", "that returns its arguments")):
        if name not in names and "import *" not in source:
            raise WrongValue(
                f"got {path} without {name!r}, wanted a function of that name {purpose}; it "
                f"defines {', '.join(own) or 'nothing'}{suggestion(name, names)}"
            )


def _check_compilable(path: Path, reading: Reading, targets: Sequence[Target]) -> None:
    if not targets:
        raise WrongValue(
            f"got {path}, {reading.file.form.value} that no compiler has finished, wanted a target "
            "to compile it for; name one, such as --target gpu-h100, or read it with --as-is"
        )
    for target in targets:
        if why := reading.obstacles[target.platform]:
            raise WrongValue(f"got {path}, which cannot be compiled for {target.name}: {why}")


# Called in the observer's process: this one never imports jax.
def _function_program(
    path: str, function: str, donate: tuple[int, ...], devices: Sequence[Any]
) -> Program:
    from assay.frameworks.jax_placement import program_of_file

    return replace(program_of_file(path, function, devices), donate_argnums=donate)


def _as_it_stands(path: Path, reading: Reading, targets: Sequence[Target]) -> Iterator[Inspection]:
    for target in targets or (None,):
        model = target.model if target else None
        module = reading.summaries[target.platform if target else ""]
        yield Inspection(
            subject=str(path),
            means=Means.AS_IT_STANDS,
            evidence=Evidence(
                workload=path.name,
                variant=path.name,
                target=str(target.name) if target else "",
                # The file does not say which compiler wrote it.
                toolchain=Toolchain(versions={}),
                separate_host_memory=target is None or target.platform != "cpu",
                device_memory_bytes=model.memory_bytes if model else None,
                memory=reading.memory.of_module(module) if reading.memory else None,
                module=module,
            ),
            device=model,
            notes=() if reading.scheduled else (_NOT_SCHEDULED,),
        )
