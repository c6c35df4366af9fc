"""A bundle for an upstream report: a program without Assay, pinned packages, what both print."""

import subprocess
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from assay.toolchains.probes import Probed, Prober, Wanted
from assay.toolchains.releases import Release

_NAMED_COPIES: Final = 8
_HEADER: Final = '''"""{sentence}

Run it with the packages of requirements-good.txt, then with those of requirements-bad.txt.
"""

'''
_MAIN: Final = """

def _repro():
    import jax

    topology = {topology!r}
    if topology:
        from jax.experimental import topologies

        jax.devices()
        try:
            devices = topologies.get_topology_desc(**topology).devices
        except Exception:
            from jax_plugins import xla_cuda12

            xla_cuda12.initialize()
            devices = topologies.get_topology_desc(**topology).devices
    else:
        devices = jax.devices()
    place = jax.sharding.SingleDeviceSharding(devices[0])

    def shape(leaf, sharding=place):
        if not hasattr(leaf, "shape"):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    arguments = tuple(example_args())
    if "example_shardings" in globals():
        shardings = example_shardings(devices)
        arguments = jax.tree_util.tree_map(lambda s, a: shape(a, s), tuple(shardings), arguments)
    else:
        arguments = jax.tree_util.tree_map(shape, arguments)
    function = {function} if hasattr({function}, "lower") else jax.jit({function})
    if hasattr(function, "trace"):
        lowered = function.trace(*arguments).lower(lowering_platforms=({platform!r},))
    else:
        lowered = function.lower(*arguments)
    compiled = lowered.compile(compiler_options={options!r} or None)
    print("jax", jax.__version__)
    print(compiled.memory_analysis())
    text = compiled.as_text() or ""
    for opcode, shape_text in {copies!r}:
        lines = [line for line in text.splitlines() if f" {{opcode}}(" in line]
        found = [line for line in lines if line.split(" = ")[-1].startswith(shape_text)]
        print(opcode, shape_text, "in the optimized HLO:", len(found))


_repro()
"""
_RUN: Final = """

def _repro():
    import jax
    import numpy as np

    draw = np.random.default_rng(0)

    def value(leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if np.dtype(leaf.dtype).kind in "fcV":
            return draw.standard_normal(leaf.shape).astype(leaf.dtype)
        return np.ones(leaf.shape, leaf.dtype)

    arguments = jax.tree_util.tree_map(value, tuple(example_args()))
    print("jax", jax.__version__)
    for leaf in jax.tree_util.tree_leaves({function}(*arguments)):
        array = np.asarray(leaf).astype("float64")
        print(array.shape, "sum", array.sum(), "first", array.ravel()[:4])


_repro()
"""


def write(
    folder: Path,
    sides: Mapping[str, Probed],
    prober: Prober,
    sentence: str,
    issue: Callable[[Mapping[str, str]], str],
) -> tuple[Path, ...]:
    """Write the bundle of the largest step, and run its program on both sides.

    ``sides`` are the probed releases by ``good`` and ``bad``; ``issue`` words the report from what
    the program printed. A workload's program cannot be written without Assay: then there is no
    ``repro.py``. Returns the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, str] = {}
    outputs: dict[str, str] = {}
    for side, probed in sides.items():
        versions = probed.evidence.toolchain.versions
        contents[f"requirements-{side}.txt"] = "".join(
            f"{name}=={version}\n" for name, version in sorted(versions.items())
        )
        if (module := probed.module) is not None:
            (folder / f"{side}.hlo.pb").write_bytes(module)
    if prober.subject.file is not None:
        repro = folder / "repro.py"
        repro.write_text(_program(prober, sides["bad"], sentence))
        for side, probed in sides.items():
            said = _ran(prober, probed.release, repro)
            outputs[probed.release.version] = contents[f"{side}.txt"] = said
    contents["issue.md"] = issue(outputs)
    for name, text in contents.items():
        (folder / name).write_text(text)
    return tuple(sorted(folder.iterdir()))


def _program(prober: Prober, bad: Probed, sentence: str) -> str:
    subject, target = prober.subject, prober.target
    assert subject.file is not None
    source = subject.file.read_text()
    header = _HEADER.format(sentence=textwrap.fill(sentence, 95))
    if prober.wanted is Wanted.CALL:
        return f"{header}{source}\n\nprint({subject.function}())\n"
    if prober.wanted is Wanted.RUN:
        return header + source + _RUN.format(function=subject.function)
    request = prober.request(Path())
    return (
        header
        + source
        + _MAIN.format(
            function=subject.function,
            platform=target.platform,
            topology=dict(request["topology"] or {}),
            options=request["options"],
            copies=_copies(bad),
        )
    )


def _copies(probed: Probed) -> Sequence[tuple[str, str]]:
    """Opcode and shape of the largest full-buffer writes, each once."""
    module = probed.evidence.module
    writes = module.full_buffer_writes if module else ()
    largest = sorted((each for each in writes if each.loop), key=lambda each: -each.shape.nbytes)
    named = dict.fromkeys((each.opcode, str(each.shape)) for each in largest)
    return list(named)[:_NAMED_COPIES]


def _ran(prober: Prober, release: Release, repro: Path) -> str:
    """What the program prints on a release, or how it ended."""
    made = release.environment(prober.python)
    try:
        ended = subprocess.run(
            [str(made.interpreter), "-P", str(repro)],
            capture_output=True,
            text=True,
            timeout=prober.timeout_seconds,
            check=False,
            env=prober.environment(repro.parent),
        )
    except subprocess.TimeoutExpired:
        return f"no output within {prober.timeout_seconds:g} s\n"
    if ended.returncode:
        return f"{ended.stdout}{ended.stderr[-2000:]}\nexit code {ended.returncode}\n"
    return ended.stdout
