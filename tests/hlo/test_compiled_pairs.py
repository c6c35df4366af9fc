"""Pairs of real programs: what only has another name is the same, and what is copied is told."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import SingleDeviceSharding

from assay.hlo.fingerprint import fingerprint
from assay.hlo.module import Module
from assay.hlo.summary import inventory, read
from assay.judge.differences.inspections import differences
from assay.model.inspection import Aspect
from assay.model.summary import ModuleSummary
from assay.model.target import TargetName
from assay.targets import resolve
from assay.targets.catalog import known
from assay.targets.devices import prepare
from assay.targets.jax_internals import loaded_protos

TPU = "tpu-v5e:2x4"
STACK, ROW = (64, 8, 128), (8, 128)


@pytest.fixture(scope="module", autouse=True)
def _ready_for_every_compiler() -> None:
    prepare(map(TargetName.parse, known()))


def compiled(target: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> bytes:
    here = SingleDeviceSharding(resolve(target).devices()[0])
    arguments = [jax.ShapeDtypeStruct(each, jnp.float32, sharding=here) for each in shapes]
    lowered = jax.jit(function, out_shardings=here).lower(*arguments)
    (proto,) = loaded_protos(lowered.compile().runtime_executable())
    return proto


def step(weights: jax.Array, rows: jax.Array) -> jax.Array:
    carry, _ = lax.scan(lambda c, row: (jnp.tanh(c @ weights) + row, None), rows[0], rows)
    return carry


def renamed(parameters: jax.Array, inputs: jax.Array) -> jax.Array:
    def body(state: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(state @ parameters) + row, None

    return lax.scan(body, inputs[0], inputs)[0]


def other(weights: jax.Array, rows: jax.Array) -> jax.Array:
    carry, _ = lax.scan(lambda c, row: (jnp.sin(c @ weights) + row, None), rows[0], rows)
    return carry


@pytest.mark.parametrize("target", ["cpu", TPU])
def test_one_function_under_two_names_compiles_to_one_program(target: str) -> None:
    protos = [compiled(target, each, (8, 8), (4, 8)) for each in (step, renamed, other)]
    assert len({sha256(each).hexdigest() for each in protos}) == 3
    first, second, third = (fingerprint(Module.from_proto(each)) for each in protos)
    assert first == second
    assert first != third


def plain(stack: jax.Array, row: jax.Array) -> jax.Array:
    def write(i: jax.Array, stack: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(stack, (row + i)[None], (i, 0, 0))

    return lax.fori_loop(0, STACK[0], write, stack)


def reshaped(stack: jax.Array, row: jax.Array) -> jax.Array:
    def write(i: jax.Array, stack: jax.Array) -> jax.Array:
        flat = stack.reshape(STACK[0], -1)
        flat = lax.dynamic_update_slice(flat, (row + i).reshape(1, -1), (i, 0))
        return lax.optimization_barrier(flat).reshape(STACK)

    return lax.fori_loop(0, STACK[0], write, stack)


def summary_of(proto: bytes) -> ModuleSummary:
    module = Module.from_proto(proto)
    return replace(read(proto), fingerprint=fingerprint(module), inventory=inventory(module))


def test_a_reshape_around_an_update_is_told_by_its_copies_on_a_tpu() -> None:
    before, after = (summary_of(compiled(TPU, each, STACK, ROW)) for each in (plain, reshaped))
    assert differences(before, before) == ()
    copies = [
        each for each in differences(before, after) if each.aspect is Aspect.FULL_BUFFER_WRITE
    ]
    assert all(str(each).startswith("copies of f32[") for each in copies)
    assert all(f"of the loop at {Path(__file__).name}:" in str(each) for each in copies)
    # The whole stack at least once in each of as many iterations as it has rows.
    assert sum(each.nbytes or 0 for each in copies) >= STACK[0] * 4 * prod(STACK)
    back = [each for each in differences(after, before) if each.aspect is Aspect.FULL_BUFFER_WRITE]
    assert [each.nbytes for each in back] == [-(each.nbytes or 0) for each in copies]
