"""A JAX program, also one from a user's file, placed on the devices of a target."""

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

import jax
import numpy as np

from assay.frameworks.framework import check_placement
from assay.model.blame import WrongType, WrongValue
from assay.model.workload import Program
from assay.targets import jax_internals
from assay.targets.emulation import mesh_settable, own_of

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_JIT_OPTIONS = ("in_shardings", "out_shardings", "donate_argnums", "static_argnums")
_PUT = jax.device_put
_Stage = TypeVar("_Stage")


def program_of_file(path: str, function: str, devices: Sequence[Any]) -> Program:
    """The program ``FILE.py:FUNCTION`` on these devices.

    The file's ``example_args()`` gives the arguments, ``example_shardings(devices)`` their
    shardings. Without ``example_shardings`` it is placed as ``assay.compile`` places it.

    Raises:
        WrongValue: the file lacks the function or ``example_args``.
        WrongType: ``example_args`` gives neither a tuple nor a list.
    """
    module = _imported(Path(path))
    for name in (function, "example_args"):
        if not hasattr(module, name):
            raise WrongValue(f"got {path} without {name}, wanted a function of that name")
    arguments = module.example_args()
    if not isinstance(arguments, (tuple, list)):
        raise WrongType(
            f"got {type(arguments).__name__} from example_args(), wanted a tuple of the arguments "
            f"of {function}; return ({function}'s first argument, …)"
        )
    give = getattr(module, "example_shardings", None)
    shardings = give(devices) if give else None
    shapes = jax.tree.map(shape_of, tuple(arguments))
    return Program(function=getattr(module, function), arguments=shapes, in_shardings=shardings)


def _imported(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent.resolve()))
    # A file may have the name of a module that is loaded already.
    name = path.stem if path.stem not in sys.modules else f"inspected_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def jitted(program: Program, devices: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The program's function, jitted, and its arguments, under the program's shardings.

    A jitted function is not jitted again, as that would drop its donations and static arguments:
    its arguments get the shardings.

    Raises:
        WrongValue: a jitted function is given further jit options.
    """
    function: Any = program.function
    arguments = arguments_of(program, devices)
    options = {name: getattr(program, name) for name in _JIT_OPTIONS}
    options = {name: value for name, value in options.items() if value is not None}
    if not is_jitted(function):
        return jax.jit(function, **options), arguments
    shardings = options.pop("in_shardings", None)
    for name, value in options.items():
        if value != ():
            raise WrongValue(
                f"got Program({name}=…) for {function.__name__!r}, which is jitted already, wanted "
                f"a plain function; give jax.jit the {name}, or Program the plain function"
            )
    return function, arguments if shardings is None else placed(arguments, shardings)


def is_jitted(function: Any) -> bool:
    """Whether ``jax.jit`` made the function, or a library that lowers it itself."""
    return hasattr(function, "lower")


def arguments_of(program: Program, devices: Sequence[Any]) -> tuple[Any, ...]:
    """The program's arguments; those of ``make_arguments`` as shapes.

    ``make_arguments`` is traced, not run: its model may be larger than this machine. If it uses
    several devices, it is also compiled, and the shapes have its results' shardings.

    Raises:
        WrongValue: ``make_arguments`` does not compile, or uses other devices than these.
    """
    if program.make_arguments is None:
        return program.arguments
    make = program.make_arguments
    known: list[Any] = []

    def arrays() -> list[Any]:
        leaves, tree = jax.tree.flatten(make())
        known[:] = [tree, [None if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves]]
        return [leaf for leaf in leaves if isinstance(leaf, _ARRAYS)]

    device_put = patch.object(jax, "device_put", _put_and_constrain)
    with abstractly_on(devices[0]), device_put, mesh_settable():
        traced = jax.jit(arrays).trace()
    platform = devices[0].platform
    lowered = lowered_for(traced, "cuda" if platform == "gpu" else platform, devices)
    shapes = iter(traced.out_info)
    if len(jax_internals.lowered_devices(lowered)) > 1:
        try:
            shapes = map(shape_of, shapes, lowered.compile().output_shardings)
        except jax.errors.JaxRuntimeError as error:
            raise WrongValue(
                "got a function of arguments that does not compile, so their shardings are "
                "unknown; wanted one that compiles, or jax.ShapeDtypeStructs with shardings: "
                f"{error}"
            ) from error
    tree, others = known
    leaves = [next(shapes) if leaf is None else leaf for leaf in others]
    arguments: Any = jax.tree.unflatten(tree, leaves)
    return arguments if isinstance(arguments, tuple) else (arguments,)


def _put_and_constrain(value: Any, device: Any = None, **rest: Any) -> Any:
    """``jax.device_put`` that constrains its results too: when traced, its shardings are hints."""
    shardings = jax.tree.leaves(device)
    if shardings and all(isinstance(each, jax.sharding.NamedSharding) for each in shardings):
        value = jax.lax.with_sharding_constraint(value, device)
    return _PUT(value, device, **rest)


def shape_of(leaf: Any, sharding: Any = None) -> Any:
    """The shape of an array, with the sharding if there is one; any other value unchanged."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf if sharding is None else leaf.update(sharding=sharding)
    if not hasattr(leaf, "shape"):
        return leaf
    weak = getattr(leaf, "weak_type", False)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)


def shapes_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes of all arrays, with the shardings that are ``NamedSharding``."""

    def shape(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None)
        return shape_of(
            leaf, sharding if isinstance(sharding, jax.sharding.NamedSharding) else None
        )

    shapes: tuple[Any, ...] = jax.tree.map(shape, arguments)
    return shapes


def placed(arguments: Any, shardings: Any) -> Any:
    """The arguments' shapes with the shardings, of which one may stand for a whole subtree."""

    def place(sharding: Any, below: Any) -> Any:
        return jax.tree.map(lambda leaf: shape_of(leaf, sharding), below)

    if isinstance(shardings, jax.sharding.Sharding):
        return place(shardings, arguments)
    return jax.tree.map(place, tuple(shardings), arguments, is_leaf=lambda each: each is None)


def abstractly_on(device: Any) -> AbstractContextManager[Any]:
    """In it, what is traced knows the kind of the device, which Pallas kernels for a TPU ask for.

    An abstract mesh without axes changes no sharding; ``jax.default_device`` would run on the
    device what a program computes while it is traced.
    """
    if device.platform != "tpu":
        return nullcontext()
    abstract = jax.sharding.AbstractDevice(
        device_kind=device.device_kind, num_cores=device.num_cores, platform=device.platform
    )
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=abstract)
    return jax.sharding.use_abstract_mesh(mesh)


@dataclass(frozen=True, slots=True)
class LowersItself:
    """A function of a library over jax (``equinox.filter_jit``) that lowers and does not trace."""

    function: Any
    arguments: tuple[Any, ...]

    def lower(self, **_rest: Any) -> jax.stages.Lowered:
        """What jax lowered within it, for the platform of its shardings or the default device."""
        lowered = self.function.lower(*jax.tree.map(_as_array, self.arguments))
        return unwrapped(lowered, jax.stages.Lowered, "lowered")


class _Array(np.ndarray[Any, Any]):
    """A shape that passes for an array, with a sharding and without memory for its elements."""

    sharding: Any = None
    committed = True


def _as_array(leaf: Any) -> Any:
    """An array for a shape: equinox treats everything else as a constant."""
    if not isinstance(leaf, jax.ShapeDtypeStruct) or not isinstance(leaf.dtype, np.dtype):
        return leaf
    array = np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape).view(_Array)
    array.sharding = leaf.sharding
    return array


def unwrapped(stage: Any, wanted: type[_Stage], name: str) -> _Stage:
    """The stage of jax's own within one of a library over jax (flax.nnx, equinox).

    Raises:
        WrongValue: it holds none.
    """
    while not isinstance(stage, wanted):
        if not hasattr(stage, name):
            raise WrongValue(
                f"got a {type(stage).__module__}.{type(stage).__name__}, wanted a "
                f"jax.stages.{wanted.__name__}; pass the function that jax.jit is given"
            )
        stage = getattr(stage, name)
    return stage


def lowered_for(
    traced: jax.stages.Traced | LowersItself, platform: str, devices: Sequence[Any]
) -> jax.stages.Lowered:
    """The program lowered for the devices of its shardings, or for the first if it has none.

    Raises:
        WrongValue: its shardings are of other devices than these.
    """
    with jax.default_device(own_of(devices)[0]):
        lowered: jax.stages.Lowered = traced.lower(lowering_platforms=(platform,))
    foreign = set(jax_internals.lowered_devices(lowered)) - set(devices)
    if foreign:
        raise WrongValue(
            f"got a program for {min(map(str, foreign))}, which is no device of the target; wanted "
            "shardings, meshes and arrays on the target's devices; make them of the devices that "
            "program(devices) or shardings(devices) is called with"
        )
    return lowered


def check_compiled(
    compiled: jax.stages.Compiled, lowered: jax.stages.Lowered, devices: Sequence[Any]
) -> None:
    """Raise ``Misplaced`` if the executable is for any other device than these."""
    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    used = {device for each in shardings for device in each.device_set}
    used |= set(jax_internals.loaded_devices(compiled.runtime_executable()))
    # A program without arguments and results has no shardings.
    check_placement(used | set(jax_internals.lowered_devices(lowered)), devices)


def check_results(results: Any, devices: Sequence[Any]) -> None:
    """Raise ``Misplaced`` unless all arrays among the results are on these devices."""
    arrays = (leaf for leaf in jax.tree.leaves(results) if isinstance(leaf, jax.Array))
    check_placement({device for array in arrays for device in array.devices()}, devices)


def shared(values: Any, shardings: Any) -> Any:
    """Values that every process has, as arrays over the devices of all."""
    local = jax.tree.map(lambda leaf: np.asarray(leaf) if _is_plain(leaf) else leaf, values)
    return jax.device_put(tuple(local), shardings)


def _is_plain(leaf: Any) -> bool:
    """Whether it is an array of jax that numpy can hold. An array of random keys is not."""
    return isinstance(leaf, jax.Array) and isinstance(leaf.dtype, np.dtype)


def gathered(results: Any) -> Any:
    """The results on the host, whole: each process gives the others its part."""
    from jax.experimental import multihost_utils

    def whole(leaf: Any) -> Any:
        known = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
        if known or leaf.is_fully_replicated:
            return leaf
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.device_get(jax.tree.map(whole, results))
