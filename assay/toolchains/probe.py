"""Measure one program on the toolchain of the interpreter that runs this file.

``python probe.py REQUEST.json``. It imports the standard library, jax and the user's file, never
Assay, so that it runs on every jax since 0.4.30. What it finds goes to files in the folder of the
request: ``result.json``, ``module.hlo.pb`` and ``outputs.npz``. Standard output and error belong to
the program.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import sys
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_STATS = ("temp", "argument", "output", "alias", "host_temp")
_HOST_STATS = ("host_argument", "host_output", "host_alias")
_COMPILED = "/jax/core/compile/backend_compile_duration"
_DUMPED = "*after_optimizations.hlo.pb"
_LONGEST_SAMPLES = 2.0


class Failed(Exception):
    """A stage failed; ``unsupported`` if the toolchain lacks something, not the program."""

    def __init__(self, stage: str, error: BaseException, *, unsupported: bool) -> None:
        super().__init__(str(error))
        self.report = {
            "stage": stage,
            "type": type(error).__name__,
            "message": str(error).strip() or type(error).__name__,
            "unsupported": unsupported,
        }


@contextlib.contextmanager
def stage(name: str, unsupported: Any = ()) -> Any:
    """Name the stage that an exception ends; ``unsupported`` are the types no program causes."""
    try:
        yield
    except Failed:
        raise
    except BaseException as error:
        # A release that lacks a module or a function of jax cannot run the program.
        lacks = isinstance(error, ImportError) or "module 'jax" in str(error)
        raise Failed(name, error, unsupported=lacks or isinstance(error, unsupported)) from error


def devices_of(request: dict[str, Any]) -> list[Any]:
    """The devices to compile for: this machine's, or those of a topology."""
    import jax

    here = jax.devices()
    if not request["topology"]:
        return list(here)
    from jax.experimental import topologies

    try:
        described = topologies.get_topology_desc(**request["topology"])
    except Exception:  # noqa: BLE001 -- a plugin may raise any exception; it is tried once more
        # Before jax 0.6, a plugin for another platform is registered on request only.
        for name in ("xla_cuda13", "xla_cuda12"):
            with contextlib.suppress(ImportError):
                importlib.import_module("jax_plugins." + name).initialize()
        described = topologies.get_topology_desc(**request["topology"])
    return list(described.devices)


def present_as(devices: list[Any]) -> None:
    """Make ``jax.devices()`` and its relatives give these devices."""
    import jax

    def given(*_: Any, **__: Any) -> list[Any]:
        return devices

    jax.devices = jax.local_devices = given
    jax.device_count = jax.local_device_count = lambda *_, **__: len(devices)
    if hasattr(jax, "make_mesh"):
        make = jax.make_mesh
        jax.make_mesh = lambda *args, **named: make(*args, **{"devices": devices, **named})


def program_of(request: dict[str, Any], devices: list[Any]) -> tuple[Any, tuple[Any, ...], Any]:
    """The function, its arguments, and the options that ``jax.jit`` is given for it."""
    if request["workload"]:
        module, workload, variant = request["workload"]
        values = vars(importlib.import_module(module)).values()
        flat = [each for value in values for each in (value if type(value) is tuple else (value,))]
        named = [each for each in flat if getattr(each, "name", "") == workload]
        program = next(each for each in named if hasattr(each, "variants")).variant(variant)
        program = program.program(devices)
        names = ("in_shardings", "out_shardings", "donate_argnums", "static_argnums")
        options = {name: value for name in names if (value := getattr(program, name))}
        return program.function, program.arguments, options
    path = Path(request["file"])
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function = getattr(module, request["function"])
    if not hasattr(module, "example_args"):
        return function, (), {}
    arguments = module.example_args()
    if not hasattr(module, "example_shardings"):
        return function, tuple(arguments), {}
    return function, tuple(arguments), {"in_shardings": module.example_shardings(devices)}


def compiled(function: Any, arguments: Any, options: Any, devices: Any, request: Any) -> Any:
    """The program, traced, lowered and compiled for the devices, and its seconds."""
    import jax

    one = jax.sharding.SingleDeviceSharding(devices[0])
    if hasattr(function, "lower"):  # jitted by the user, with its own options
        sharding = options.get("in_shardings", one)
        jitted, arguments = function, placed(arguments, sharding)
    else:
        jitted = jax.jit(function, **{"in_shardings": one, **options})
        arguments = jax.tree_util.tree_map(shape_of, arguments)
    with stage("lowering"):
        if hasattr(jitted, "trace"):
            lowered = jitted.trace(*arguments).lower(lowering_platforms=(request["platform"],))
        else:
            lowered = jitted.lower(*arguments)
    start = time.perf_counter()
    with stage("compile"):
        result = with_options(lowered, request)
    return result, time.perf_counter() - start


def with_options(lowered: Any, request: dict[str, Any]) -> Any:
    """Compile with the dump's options; without those that this release does not know."""
    options = {**request["options"], "xla_dump_to": str(Path(request["folder"]) / "dump")}
    dump = {"xla_dump_hlo_as_proto": True, "xla_dump_hlo_as_text": False}
    for tried in ({**options, **dump}, request["options"], None):
        try:
            return lowered.compile(compiler_options=tried) if tried else lowered.compile()
        except Exception as error:
            refused = "No such compile option" in str(error) or "xla_dump" in str(error)
            if not tried or not refused:
                raise
    raise AssertionError


def shape_of(leaf: Any) -> Any:
    """The shape of an array; any other value as it is."""
    import jax

    if not hasattr(leaf, "shape") or isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def placed(arguments: Any, shardings: Any) -> Any:
    """The arguments' shapes under the shardings."""
    import jax

    def place(sharding: Any, below: Any) -> Any:
        def on(leaf: Any) -> Any:
            shape = shape_of(leaf)
            if not isinstance(shape, jax.ShapeDtypeStruct):
                return leaf
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

        return jax.tree_util.tree_map(on, below)

    if isinstance(shardings, jax.sharding.Sharding):
        return place(shardings, tuple(arguments))
    return jax.tree_util.tree_map(place, tuple(shardings), tuple(arguments))


def read(result: Any, folder: Path) -> dict[str, Any]:
    """The memory analysis, and the module in a file: dumped with its buffers, or without them."""
    found: dict[str, Any] = {"memory": None, "module": "", "has_buffers": False}
    with contextlib.suppress(Exception):
        stats = result.memory_analysis()
        found["memory"] = {name: getattr(stats, name + "_size_in_bytes") for name in _STATS}
        found["memory"].update(
            {name: getattr(stats, name + "_size_in_bytes", 0) for name in _HOST_STATS}
        )
    files = [file.read_bytes() for file in (folder / "dump").glob(_DUMPED)]
    dumped = max(files, key=len, default=b"")
    if not dumped:
        with contextlib.suppress(Exception):
            (module,) = result.runtime_executable().hlo_modules()
            dumped = bytes(module.as_serialized_hlo_module_proto())
    else:
        found["has_buffers"] = True
    if dumped:
        (folder / "module.hlo.pb").write_bytes(dumped)
        found["module"] = "module.hlo.pb"
    return found


def concrete(arguments: Any) -> Any:
    """Arguments to run on: shapes become numbers drawn from a fixed seed."""
    import jax
    import numpy as np

    draw = np.random.default_rng(0)

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if np.dtype(leaf.dtype).kind in "fcV":
            return draw.standard_normal(leaf.shape).astype(leaf.dtype)
        return np.ones(leaf.shape, leaf.dtype)

    return jax.tree_util.tree_map(value, arguments)


def executed(function: Any, arguments: Any, options: Any, folder: Path) -> dict[str, Any]:
    """Run twice: how many programs were compiled, and what was returned."""
    import jax
    import numpy as np

    counted: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: counted.append(event) if event == _COMPILED else None
    )
    run = function if hasattr(function, "lower") or not arguments else jax.jit(function, **options)
    with stage("run"):
        jax.block_until_ready(run(*concrete(arguments)))
        returned = jax.device_get(jax.block_until_ready(run(*concrete(arguments))))
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(returned)]
    wide = [leaf.astype("complex128" if leaf.dtype.kind == "c" else "float64") for leaf in leaves]
    np.savez_compressed(folder / "outputs.npz", *wide)
    return {"compiles": len(counted)}


def serve_samples(function: Any, arguments: Any, options: Any, answer: Any) -> None:
    """Answer each line ``RUNS`` on standard input with the seconds of one run, until it closes."""
    import jax

    run, given = jax.jit(function, **options), concrete(arguments)
    if hasattr(function, "lower"):
        run = function

    def seconds(runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            jax.block_until_ready(run(*given))
        return (time.perf_counter() - start) / runs

    with stage("run"):
        seconds(1)
        first = seconds(1)
        answer({"first": first})
        for line in sys.stdin:
            answer({"seconds": seconds(int(line))})


def local_files(request: dict[str, Any]) -> list[list[str]]:
    """The user's files that were imported, each with the hash of its content."""
    roots = tuple(request["roots"])
    files = {str(getattr(each, "__file__", None) or "") for each in tuple(sys.modules.values())}
    mine = sorted(each for each in files if each.startswith(roots) and Path(each).is_file())
    return [[each, hashlib.sha256(Path(each).read_bytes()).hexdigest()] for each in mine]


def measure(request: dict[str, Any], answer: Any) -> dict[str, Any]:
    """Everything that the request asks for and this toolchain gives."""
    folder, wanted = Path(request["folder"]), request["wanted"]
    if wanted == "call":
        with stage("build"):
            function, arguments, _ = program_of(request, [])
        with stage("run"):
            return {"returned": float(function(*arguments))}
    with stage("start", Exception):
        devices = devices_of(request)
        if request["topology"]:
            present_as(devices)
    with stage("build"):
        function, arguments, options = program_of(request, devices)
    if wanted == "time":
        serve_samples(function, arguments, options, answer)
        return {}
    if wanted == "run":
        return executed(function, arguments, options, folder)
    result, seconds = compiled(function, arguments, options, devices, request)
    return {"compile_seconds": seconds, **read(result, folder)}


def main() -> None:
    """Measure, and write down what was found or how it ended."""
    request = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(request["folder"])
    # The program may print what it likes: answers have a stream of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(said: dict[str, Any]) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    found: dict[str, Any] = {"python": platform.python_version(), "failure": None}
    try:
        found.update(measure(request, answer))
    except Failed as failed:
        found["failure"] = failed.report
        answer(found)
    named = {each.metadata["Name"]: each.version for each in distributions()}
    found["versions"] = {name: named[name] for name in sorted(named) if name in request["packages"]}
    found["files"] = local_files(request)
    part = folder / "result.json.part"
    part.write_text(json.dumps(found))
    part.replace(folder / "result.json")


if __name__ == "__main__":
    main()
