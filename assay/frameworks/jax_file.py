"""A user's own function, ``FILE.py:FUNCTION``, as a program to compile."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from assay.frameworks.jax_placement import shape_of
from assay.model.blame import WrongType, WrongValue
from assay.model.workload import Program


def program(path: str, function: str, devices: Sequence[Any]) -> Program:
    """The program that the file describes, on these devices.

    ``example_args()`` gives the arguments; ``example_shardings(devices)``, if there is one, their
    shardings, else one device takes all. A jitted function stays unchanged.

    Raises:
        WrongValue: the file lacks the function or ``example_args``.
        WrongType: ``example_args`` gives no tuple.
    """
    module = _imported(Path(path))
    called = _named(module, function, path)
    arguments = _named(module, "example_args", path)()
    if not isinstance(arguments, (tuple, list)):
        raise WrongType(
            f"got {type(arguments).__name__} from example_args(), wanted a tuple of the arguments "
            f"of {function}; return ({function}'s first argument, …)"
        )
    shardings: Any = jax.sharding.SingleDeviceSharding(devices[0])
    if hasattr(module, "example_shardings"):
        shardings = module.example_shardings(devices)
    shapes = jax.tree.map(shape_of, tuple(arguments))
    return Program(function=called, arguments=shapes, in_shardings=shardings)


def _imported(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent.resolve()))
    # A file may be called like a module that is loaded already.
    name = path.stem if path.stem not in sys.modules else f"inspected_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _named(module: ModuleType, name: str, path: str) -> Any:
    if not hasattr(module, name):
        raise WrongValue(f"got {path} without {name}, wanted a function of that name")
    return getattr(module, name)
