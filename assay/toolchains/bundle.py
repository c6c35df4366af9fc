"""A bundle for an upstream report: a program without Assay, pinned packages, what both print."""

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from assay.model.bisection import Reproduction
from assay.toolchains import probe
from assay.toolchains.extraction import NotExtractable, extracted
from assay.toolchains.probes import Probed, Prober, Subject, Wanted
from assay.toolchains.releases import Release

_NAMED_COPIES: Final = 8
_REPRO: Final = "repro.py"
_BUILDER: Final = "program_for"
_SYSTEM: Final = "import jax; jax.print_environment_info()"
_HOW: Final = "Run it with requirements-good.txt, then with requirements-bad.txt."
_HEAD: Final = """

def _repro(function):
    import contextlib
    import importlib
    from typing import Any

    import jax
    import numpy as np

"""
_OF_FILE: Final = """
    arguments = tuple(example_args()) if "example_args" in globals() else ()
    context, options, shardings = contextlib.nullcontext(), {}, None
    if "example_shardings" in globals():
        shardings = example_shardings(devices)
"""
_OF_VARIANT: Final = """
    program = function(devices)
    function, arguments = program.function, program.arguments
    context = (getattr(program, "context", None) or contextlib.nullcontext)()
    names = ("in_shardings", "out_shardings", "donate_argnums", "static_argnums")
    options = {name: value for name in names if (value := getattr(program, name, None))}
    shardings = options.get("in_shardings") if hasattr(function, "lower") else None
"""
_COMPILE: Final = """
    topology = {topology!r}
    devices = devices_of({{"topology": topology}})
    if topology:
        present_as(devices)
{program}
    arguments = placed(arguments, shardings)
    jitted = function if hasattr(function, "lower") else jax.jit(function, **options)
    with context, jax.default_device(devices[0]):
        if hasattr(jitted, "trace"):
            lowered = jitted.trace(*arguments).lower(lowering_platforms=({platform!r},))
        else:
            lowered = jitted.lower(*arguments)
    compiled = lowered.compile(compiler_options={options!r} or None)
    print("jax", jax.__version__)
    print(compiled.memory_analysis())
    text = compiled.as_text() or ""
    for opcode, shape_text in {copies!r}:
        lines = [line for line in text.splitlines() if f" {{opcode}}(" in line]
        found = [line for line in lines if line.split(" = ")[-1].startswith(shape_text)]
        print(opcode, shape_text, "in the optimized HLO:", len(found))
"""
_RUN: Final = """
    devices = jax.devices()
{program}
    print("jax", jax.__version__)
    as_it_is = hasattr(function, "lower") or not arguments
    run = function if as_it_is else jax.jit(function, **options)
    with context:
        returned = run(*concrete(arguments))
    for leaf in jax.tree_util.tree_leaves(returned):
        array = np.asarray(leaf).astype("float64")
        print(array.shape, "sum", array.sum(), "first", array.ravel()[:4])
"""


def write(
    folder: Path,
    sides: Mapping[str, Probed],
    prober: Prober,
    sentence: str,
    issue: Callable[[Reproduction], str],
) -> tuple[tuple[Path, ...], str]:
    """Write the bundle of the largest step, and run its program on both sides.

    ``sides`` are the probed releases by ``good`` and ``bad``; ``issue`` words the report from what
    the program printed. Returns the files, and why there is no ``repro.py``, or nothing: the
    program of a workload is extracted from its suite, which not every one can be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, str] = {}
    outputs: dict[str, str] = {}
    systems: dict[str, str] = {}
    program, why_none = "", ""
    for side, probed in sides.items():
        versions = probed.evidence.toolchain.versions
        pins = [f"{name}=={version}" for name, version in sorted(versions.items())]
        contents[f"requirements-{side}.txt"] = "\n".join([*pins, *probed.release.also, ""])
        systems[probed.release.version] = "\n".join(pins)
        if "jax" in versions:
            systems[probed.release.version] = _ran(prober, probed.release, folder, "-c", _SYSTEM)
        if (module := probed.module) is not None:
            (folder / f"{side}.hlo.pb").write_bytes(module)
    try:
        program = _program(prober, sides["bad"], sentence)
    except NotExtractable as missing:
        why_none = str(missing)
    else:
        (folder / _REPRO).write_text(program)
        for side, probed in sides.items():
            said = _ran(prober, probed.release, folder, "-P", str(folder / _REPRO))
            outputs[probed.release.version] = contents[f"{side}.txt"] = said
    shown = Reproduction(program=program, outputs=outputs, systems=systems)
    contents["issue.md"] = issue(shown)
    for name, text in contents.items():
        (folder / name).write_text(text)
    return tuple(sorted(folder.iterdir())), why_none


def _program(prober: Prober, bad: Probed, sentence: str) -> str:
    subject, target = prober.subject, prober.target
    # Comments: a second docstring would forbid the user's imports from __future__.
    header = textwrap.indent(f"{textwrap.fill(sentence, 95)}\n{_HOW}\n\n", "# ")
    if subject.file is not None:
        source, function, program = subject.file.read_text(), subject.function, _OF_FILE
    else:
        source, function, program = _extracted(subject), _BUILDER, _OF_VARIANT
    if prober.wanted is Wanted.CALL:
        return f"{header}{source}\n\nprint({function}())\n"
    request = prober.request(Path())
    values: dict[str, Any] = {"program": program.strip("\n")}
    steps, parts = _RUN, list[Callable[..., Any]]([probe.concrete])
    if prober.wanted is Wanted.COMPILE:
        steps, parts = _COMPILE, [probe.devices_of, probe.present_as, probe.shape_of, probe.placed]
        values |= {
            "topology": request["topology"],
            "platform": target.platform,
            "options": request["options"],
            "copies": _copies(bad),
        }
    # Nested, so that their names hide none of the user's.
    nested = textwrap.indent("\n".join(map(inspect.getsource, parts)), "    ")
    source = _with_settings(source, prober)
    return f"{header}{source}{_HEAD}{nested}{steps.format(**values)}\n\n_repro({function})\n"


def _with_settings(source: str, prober: Prober) -> str:
    """The source with the variables that the target needs, before it imports jax."""
    unread = ("PYTHON", "TF_", *(("TPU_", "ALLOW_") * (prober.target.platform != "tpu")))
    kept = {name: each for name, each in prober.settings.items() if not name.startswith(unread)}
    first = 0
    for node in ast.parse(source).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (is_docstring or is_future):
            break
        first = node.end_lineno or 0
    lines = source.splitlines()
    set_all = [f"os.environ[{name!r}] = {each!r}" for name, each in sorted(kept.items())]
    return "\n".join([*lines[:first], "import os", *set_all, *lines[first:], ""])


def _extracted(subject: Subject) -> str:
    """The source of a suite's program. Imports the suite's module into this process."""
    assert subject.workload is not None
    module, workload, variant = subject.workload
    sys.path[:0] = subject.search_path
    try:
        builder = probe.workload_of(module, workload).variant(variant).program
    finally:
        del sys.path[: len(subject.search_path)]
    return extracted(builder, _BUILDER, subject.roots)


def _copies(probed: Probed) -> Sequence[tuple[str, str]]:
    """Opcode and shape of the largest full-buffer writes in loops, each once."""
    module = probed.evidence.module
    writes = module.full_buffer_writes if module else ()
    largest = sorted((each for each in writes if each.loop), key=lambda each: -each.shape.nbytes)
    named = dict.fromkeys((each.opcode, str(each.shape)) for each in largest)
    return list(named)[:_NAMED_COPIES]


def _ran(prober: Prober, release: Release, folder: Path, *arguments: str) -> str:
    """What the release's Python prints with these arguments, or how it ended."""
    made = release.environment(prober.python)
    try:
        ended = subprocess.run(
            [str(made.interpreter), *arguments],
            capture_output=True,
            text=True,
            timeout=prober.timeout_seconds,
            check=False,
            env=prober.environment(folder),
        )
    except subprocess.TimeoutExpired:
        return f"no output within {prober.timeout_seconds:g} s\n"
    if ended.returncode:
        return f"{ended.stdout}{ended.stderr[-2000:]}\nexit code {ended.returncode}\n"
    return ended.stdout
