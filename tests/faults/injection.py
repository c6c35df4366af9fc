"""Injection: one part of Assay is replaced in every process of an inner run.

An environment variable names the fault, so that the controller, xdist's workers and the observers
see the same one. A file says that what stands in a part's place was used: a fault that nothing
reached proves nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

NAME, REACHED = "INJECTED_FAULT", "INJECTED_FAULT_REACHED"


def inject(environment: Mapping[str, str]) -> None:
    """Replace what the fault of this environment replaces, if it names one."""
    name = environment.get(NAME)
    if not name:
        return
    from tests.faults.table import FAULTS, KILLED_CONTROLLER

    (fault,) = [fault for fault in (*FAULTS, KILLED_CONTROLLER) if fault.name == name]
    if fault.place:
        _replace(fault.place, fault.change)
    if fault.hides:
        _hide(fault.hides)


def reached(environment: Mapping[str, str]) -> None:
    """Note that the fault is at work."""
    Path(environment[REACHED]).touch()


def _replace(place: str, change: Callable[[Any], Any]) -> None:
    """Put what ``change`` makes of a part in its place; the part is named ``module:attribute``."""
    name, _, path = place.partition(":")
    *owners, attribute = path.split(".")
    module = importlib.import_module(name)
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    real = vars(owner)[attribute]
    function = getattr(real, "__func__", real)
    stand_in = _at_home(change(function), module)

    def noted(*arguments: Any, **keywords: Any) -> Any:
        reached(os.environ)
        return stand_in(*arguments, **keywords)

    noted = _at_home(noted, module)
    if isinstance(real, classmethod | staticmethod):
        noted = type(real)(noted)
    setattr(owner, attribute, noted)
    if owner is module:
        _bind_again(real, noted)


def _hide(packages: tuple[str, ...]) -> None:
    """Let nothing find these packages."""

    class Hiding:
        """A finder of modules that finds all but these."""

        def __init__(self, finder: Any) -> None:
            self._finder = finder

        def find_spec(self, name: str, *rest: Any) -> ModuleSpec | None:
            if any(f"{name}.".startswith(f"{package}.") for package in packages):
                reached(os.environ)
                return None
            spec: ModuleSpec | None = self._finder.find_spec(name, *rest)
            return spec

        def __getattr__(self, name: str) -> Any:
            return getattr(self._finder, name)

    for name in list(sys.modules):
        if any(f"{name}.".startswith(f"{package}.") for package in packages):
            del sys.modules[name]
    sys.meta_path[:] = map(Hiding, sys.meta_path)


def _at_home(function: Any, module: ModuleType) -> Any:
    """The same function as one of that module: who is to blame is read from the traceback."""
    code = function.__code__.replace(co_filename=module.__file__)
    names = {**function.__globals__, "__name__": module.__name__}
    return FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)


def _bind_again(real: Any, stand_in: Any) -> None:
    """Also under the names by which other modules have imported it already."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "assay":
            for own in [own for own, value in vars(module).items() if value is real]:
                setattr(module, own, stand_in)
