"""Measure one program on the toolchain of the interpreter that runs this file.

It imports the standard library, jax, numpy and the user's code, never Assay itself, so that it runs
on every jax since 0.4.30. Requests and answers are the frames of ``assay.isolate.child``, in JSON:
the first request describes the program, further ones ask for samples of its time. The HLO module
(``module.hlo.pb``) and the outputs (``outputs.npz``) go to the folder of the request.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import math
import os
import platform
import re
import struct
import sys
import time
import traceback
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_STATS = ("temp", "argument", "output", "alias", "host_temp")
_HOST_STATS = ("host_argument", "host_output", "host_alias")
_COMPILED = "/jax/core/compile/backend_compile_duration"
_NO_MEMORIES = "Could not find memory addressable by device"
_DUMPED = "*after_optimizations.hlo.pb"
_HOST = re.compile(r"pinned_host|Space\.Host|<host>")
_LEAST_SAMPLE_SECONDS = 0.005  # long compared with the wake-up of a process
_LONG_RUN_SECONDS = 0.1
_MOST_RUNS = 10_000


class Failed(Exception):
    """A stage failed; ``answer`` says why, as the fields of a ``Failure`` or ``Unavailable``."""

    def __init__(self, kind: str, error: BaseException, *, unsupported: bool) -> None:
        words = str(error).strip()
        super().__init__(words)
        reason = f"{type(error).__name__}: {words or type(error).__name__}"
        self.answer = {"failure": {"kind": kind, "message": reason}}
        if unsupported:
            missing = words.partition("No module named ")[2].strip("'\" ").split(".")[0]
            remedy = f"add --with {missing}" if missing not in ("", "jax") else ""
            self.answer = {"unavailable": {"reason": reason, "remedy": remedy}}


@contextlib.contextmanager
def stage(kind: str, unsupported: Any = ()) -> Any:
    """Name the failure of a stage; ``unsupported`` are the types that no program causes."""
    try:
        yield
    except BaseException as error:
        # A release that lacks a module, a function of jax or a memory cannot run the program.
        known = ("module 'jax", _NO_MEMORIES)
        lacks = isinstance(error, ImportError) or any(each in str(error) for each in known)
        raise Failed(kind, error, unsupported=lacks or isinstance(error, unsupported)) from error


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


def program_of(request: dict[str, Any], devices: list[Any]) -> tuple[Any, Any, Any, Any]:
    """The function, its arguments, the options of ``jax.jit``, and a context to trace it in."""
    no_context = contextlib.nullcontext()
    sys.dont_write_bytecode = True  # next to the user's files
    if request["workload"]:
        program = workload_of(*request["workload"][:2]).variant(request["workload"][2])
        program = program.program(devices)
        names = ("in_shardings", "out_shardings", "donate_argnums", "static_argnums")
        options = {name: value for name in names if (value := getattr(program, name))}
        context = program.context() if program.context else no_context
        return program.function, program.arguments, options, context
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
        return function, (), {}, no_context
    options = {}
    if hasattr(module, "example_shardings"):
        options = {"in_shardings": module.example_shardings(devices)}
    return function, tuple(module.example_args()), options, no_context


def workload_of(module: str, name: str) -> Any:
    """A workload that is a value of the module, or in a tuple or a check there."""
    values = vars(importlib.import_module(module)).values()
    found = [each for each in values if not isinstance(each, type)]
    found += [each for value in found if type(value) is tuple for each in value]
    found += [each for value in found for each in getattr(value, "workloads", ())]
    return next(each for each in found if getattr(each, "name", "") == name and is_workload(each))


def is_workload(value: Any) -> bool:
    """Whether the value has variants to choose from."""
    return hasattr(value, "variants") and hasattr(value, "variant")


def compiled(function: Any, arguments: Any, options: Any, devices: Any, request: Any) -> Any:
    """The program, traced, lowered and compiled for the devices, as ``assay.compile`` does it.

    Also whether it moves something to host memory.
    """
    import jax

    is_jitted = hasattr(function, "lower")  # by the user, with its own options
    jitted = function if is_jitted else jax.jit(function, **options)
    arguments = placed(arguments, options.get("in_shardings") if is_jitted else None)
    moves = False
    with jax.default_device(devices[0]):
        if hasattr(jitted, "trace"):
            with stage("trace"):
                traced = jitted.trace(*arguments)
                moves = _HOST.search(str(traced.jaxpr)) is not None
            with stage("lowering"):
                lowered = traced.lower(lowering_platforms=(request["platform"],))
        else:
            with stage("lowering"):
                lowered = jitted.lower(*arguments)
    with stage("compiler"):
        return with_options(lowered, request), moves


def with_options(lowered: Any, request: dict[str, Any]) -> Any:
    """Compile with the dump's options; without those that this release does not know.

    None if jax misses a memory of the device after the compiler was done (0.8.2, 0.8.3 on GPUs).
    """
    folder = Path(request["folder"])
    options = {**request["options"], "xla_dump_to": str(folder / "dump")}
    dump = {"xla_dump_hlo_as_proto": True, "xla_dump_hlo_as_text": False}
    for tried in ({**options, **dump}, request["options"], None):
        try:
            return lowered.compile(compiler_options=tried) if tried else lowered.compile()
        except Exception as error:
            if _NO_MEMORIES in str(error) and dumped(folder):
                return None
            refused = "No such compile option" in str(error) or "xla_dump" in str(error)
            if not tried or not refused:
                raise
    raise AssertionError


def dumped(folder: Path) -> bytes:
    """The dumped module with its buffers, or nothing."""
    files = (file.read_bytes() for file in (folder / "dump").glob(_DUMPED))
    return max(files, key=len, default=b"")


def shape_of(leaf: Any) -> Any:
    """The shape of an array; any other value as it is."""
    import jax

    if not hasattr(leaf, "shape") or isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def placed(arguments: Any, shardings: Any) -> Any:
    """The arguments' shapes, under the shardings if there are any."""
    import jax

    def place(sharding: Any, below: Any) -> Any:
        def on(leaf: Any) -> Any:
            shape = shape_of(leaf)
            if sharding is None or not isinstance(shape, jax.ShapeDtypeStruct):
                return shape
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

        return jax.tree_util.tree_map(on, below)

    if shardings is None or isinstance(shardings, jax.sharding.Sharding):
        return place(shardings, tuple(arguments))
    return jax.tree_util.tree_map(place, tuple(shardings), tuple(arguments))


def read(result: Any, folder: Path) -> dict[str, Any]:
    """The memory analysis, and the module in a file: dumped with its buffers, or without them."""
    memory: dict[str, int] | None = None
    with contextlib.suppress(Exception):
        stats = result.memory_analysis()
        sizes = {name: getattr(stats, name + "_size_in_bytes") for name in _STATS}
        hosts = {name: getattr(stats, name + "_size_in_bytes", 0) for name in _HOST_STATS}
        memory = {name + "_bytes": size for name, size in (sizes | hosts).items()}
    found = with_buffers = dumped(folder)
    if not with_buffers:
        with contextlib.suppress(Exception):
            (module,) = result.runtime_executable().hlo_modules()
            found = bytes(module.as_serialized_hlo_module_proto())
    if found:
        (folder / "module.hlo.pb").write_bytes(found)
    return {"memory": memory, "has_buffers": bool(with_buffers)}


def concrete(arguments: Any) -> Any:
    """Arguments to run on: shapes become random numbers of a fixed seed, or ones for integers."""
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
    with stage("execution"):
        jax.block_until_ready(run(*concrete(arguments)))
        returned = jax.device_get(jax.block_until_ready(run(*concrete(arguments))))
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(returned)]
    wide = [leaf.astype("complex128" if leaf.dtype.kind == "c" else "float64") for leaf in leaves]
    np.savez_compressed(folder / "outputs.npz", *wide)
    return {"compiles": len(counted)}


def serve_samples(function: Any, arguments: Any, options: Any, pipes: "Pipes") -> None:
    """Answer each request, a number of runs, with the mean seconds of one run."""
    import jax

    run, given = jax.jit(function, **options), concrete(arguments)
    if hasattr(function, "lower"):
        run = function

    def seconds(runs: int) -> float:
        start = time.perf_counter()
        for _ in range(runs):
            jax.block_until_ready(run(*given))
        return (time.perf_counter() - start) / runs

    with stage("execution"):
        seconds(1)
        first = seconds(1)
        runs_per_sample = min(_MOST_RUNS, max(1, round(_LEAST_SAMPLE_SECONDS / max(first, 1e-9))))
        prepared = {
            "toolchain": {"versions": {}},
            "python": platform.python_version(),
            "first": first,
            "runs_per_sample": runs_per_sample,
            "most_runs": _MOST_RUNS,
        }
        pipes.write({"prepared": prepared})
        for request in iter(pipes.read, b""):
            if first < _LONG_RUN_SECONDS:
                seconds(1)  # The caches of a process that waited are cold.
            pipes.write({"seconds": seconds(int(request))})


def keeps_host_memory(device: Any, platform_name: str) -> bool:
    """Whether a move to host memory is still there once a program is lowered for the device.

    Compile-only devices drop it before jax 0.8.2, and a CPU has one memory.
    """
    import jax

    with contextlib.suppress(Exception):
        if hasattr(jax, "memory"):
            host: Any = jax.memory.Space.Host
        else:
            kinds = importlib.import_module("jax._src.sharding_impls")
            host = kinds.TransferToMemoryKind("pinned_host")
        with jax.default_device(device):
            traced = jax.jit(lambda x: jax.device_put(x, host)).trace(
                jax.ShapeDtypeStruct((8, 128), "float32")
            )
            lowered = traced.lower(lowering_platforms=(platform_name,))
        return "annotate_device_placement" in lowered.as_text()
    return False


def local_files(request: dict[str, Any]) -> list[list[str]]:
    """The user's files that were imported, each with the hash of its content."""
    roots = tuple(request["roots"])
    files = {str(getattr(each, "__file__", None) or "") for each in tuple(sys.modules.values())}
    mine = sorted(each for each in files if each.startswith(roots) and Path(each).is_file())
    return [[each, hashlib.sha256(Path(each).read_bytes()).hexdigest()] for each in mine]


def measure(request: dict[str, Any], pipes: "Pipes") -> dict[str, Any]:
    """Everything that the request asks for and this toolchain gives."""
    folder, wanted = Path(request["folder"]), request["wanted"]
    if wanted == "call":
        with stage("build"):
            function, arguments, _, _ = program_of(request, [])
        with stage("execution"):
            number = float(function(*arguments))
            return {"returned": number if math.isfinite(number) else None}
    with stage("build", Exception):
        devices = devices_of(request)
        if request["topology"]:
            present_as(devices)
    with stage("build"):
        function, arguments, options, context = program_of(request, devices)
    with context:
        if wanted == "time":
            serve_samples(function, arguments, options, pipes)
            return {}
        if wanted == "run":
            return executed(function, arguments, options, folder)
        result, moves = compiled(function, arguments, options, devices, request)
    host_memory = keeps_host_memory(devices[0], request["platform"])
    seen = {"host_memory": host_memory, "moves_to_host": moves, "device_count": len(devices)}
    return read(result, folder) | seen


class Pipes:
    """Standard input and output, removed from the program, which may read and print anything."""

    def __init__(self) -> None:
        self._requests = os.fdopen(os.dup(0), "rb")
        self._answers = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def read(self) -> bytes:
        """The next request, or nothing once the parent closed the pipe."""
        length = self._requests.read(4)
        return self._requests.read(*struct.unpack("<I", length)) if length else b""

    def write(self, answer: dict[str, Any]) -> None:
        """Send one answer."""
        payload = json.dumps(answer).encode()
        self._answers.write(struct.pack("<I", len(payload)) + payload)
        self._answers.flush()


def main() -> None:
    """Measure, and answer with what was found or how it ended."""
    pipes = Pipes()
    pipes.write({})  # ready
    request = json.loads(pipes.read())
    os.chdir(request["folder"])
    try:
        found = measure(request, pipes)
    except Failed as failed:
        found = failed.answer
    except Exception:  # noqa: BLE001 -- a fault of this script, never of the program
        found = {"crash": traceback.format_exc()}
    named = {each.metadata["Name"]: each.version for each in distributions()}
    found["versions"] = {name: named[name] for name in sorted(named) if name in request["packages"]}
    found["files"] = local_files(request)
    pipes.write(found)


if __name__ == "__main__":
    main()
