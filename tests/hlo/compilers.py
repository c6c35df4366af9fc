"""Real compilers for tests of what is read of their work; those not installed are skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from assay.frameworks.framework import Compiled
from assay.frameworks.installed import framework
from assay.model.target import TargetName
from assay.model.workload import Program
from assay.targets import known, prepare, resolve


def installed(*names: str) -> list[Any]:
    """The targets as parameters of a test."""
    return [
        pytest.param(name, marks=pytest.mark.skipif(_is_missing(name), reason="not installed"))
        for name in names
    ]


def compiled(
    target: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = ()
) -> Compiled:
    """A function compiled for one device of a target; arguments are pytrees of shapes."""
    prepare(map(TargetName.parse, known()))
    tools = framework("jax", resolve(target))
    here = jax.sharding.SingleDeviceSharding(tools.devices[0])
    placed = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, "float32", sharding=here),
        arguments,
        is_leaf=lambda each: isinstance(each, tuple) and all(isinstance(n, int) for n in each),
    )
    program = Program(
        function=function, arguments=placed, donate_argnums=donate, out_shardings=here
    )
    return tools.compile(tools.lower(tools.trace(program)))


def _is_missing(name: str) -> bool:
    return resolve(name).unavailable() is not None
