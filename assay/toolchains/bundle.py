"""A bundle for an upstream report: a program without Assay, pinned packages, what both print."""

import inspect
import subprocess
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from assay.model.bisection import Reproduction
from assay.toolchains import probe
from assay.toolchains.probes import Probed, Prober, Wanted
from assay.toolchains.releases import Release

_NAMED_COPIES: Final = 8
_REPRO: Final = "repro.py"
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
_COMPILE: Final = """
    devices = devices_of({{"topology": {topology!r}}})
    shardings = None
    if "example_shardings" in globals():
        shardings = example_shardings(devices)
    arguments = placed(example_args(), shardings)
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    with jax.default_device(devices[0]):
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
    print("jax", jax.__version__)
    for leaf in jax.tree_util.tree_leaves(function(*concrete(tuple(example_args())))):
        array = np.asarray(leaf).astype("float64")
        print(array.shape, "sum", array.sum(), "first", array.ravel()[:4])
"""


def write(
    folder: Path,
    sides: Mapping[str, Probed],
    prober: Prober,
    sentence: str,
    issue: Callable[[Reproduction], str],
) -> tuple[Path, ...]:
    """Write the bundle of the largest step, and run its program on both sides.

    ``sides`` are the probed releases by ``good`` and ``bad``; ``issue`` words the report from what
    the program printed. A workload's program is built from Assay's own types: then there is no
    ``repro.py``. Returns the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, str] = {}
    outputs: dict[str, str] = {}
    systems: dict[str, str] = {}
    program = ""
    for side, probed in sides.items():
        versions = probed.evidence.toolchain.versions
        pins = [f"{name}=={version}" for name, version in sorted(versions.items())]
        contents[f"requirements-{side}.txt"] = "\n".join([*pins, *probed.release.also, ""])
        systems[probed.release.version] = "\n".join(pins)
        if "jax" in versions:
            systems[probed.release.version] = _ran(prober, probed.release, folder, "-c", _SYSTEM)
        if (module := probed.module) is not None:
            (folder / f"{side}.hlo.pb").write_bytes(module)
    if prober.subject.file is not None:
        program = _program(prober, sides["bad"], sentence)
        (folder / _REPRO).write_text(program)
        for side, probed in sides.items():
            said = _ran(prober, probed.release, folder, "-P", str(folder / _REPRO))
            outputs[probed.release.version] = contents[f"{side}.txt"] = said
    shown = Reproduction(program=program, outputs=outputs, systems=systems)
    contents["issue.md"] = issue(shown)
    for name, text in contents.items():
        (folder / name).write_text(text)
    return tuple(sorted(folder.iterdir()))


def _program(prober: Prober, bad: Probed, sentence: str) -> str:
    subject, target = prober.subject, prober.target
    assert subject.file is not None
    source = subject.file.read_text()
    # Comments: a second docstring would forbid the user's imports from __future__.
    header = textwrap.indent(f"{textwrap.fill(sentence, 95)}\n{_HOW}\n\n", "# ")
    if prober.wanted is Wanted.CALL:
        return f"{header}{source}\n\nprint({subject.function}())\n"
    request = prober.request(Path())
    steps = _RUN
    parts: tuple[Callable[..., Any], ...] = (probe.concrete,)
    if prober.wanted is Wanted.COMPILE:
        parts = (probe.devices_of, probe.shape_of, probe.placed)
        steps = _COMPILE.format(
            topology=request["topology"],
            platform=target.platform,
            options=request["options"],
            copies=_copies(bad),
        )
    # Nested, so that their names hide none of the user's.
    nested = textwrap.indent("\n".join(map(inspect.getsource, parts)), "    ")
    return f"{header}{source}{_HEAD}{nested}{steps}\n\n_repro({subject.function})\n"


def _copies(probed: Probed) -> Sequence[tuple[str, str]]:
    """Opcode and shape of the largest full-buffer writes, each once."""
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
