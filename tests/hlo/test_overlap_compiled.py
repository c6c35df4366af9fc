"""Overlap as compilers emit it: what the schedule of a real program lays beside its transfers."""

import jax
import pytest

from assay.hlo.summary import read
from assay.model.module import AsyncKind
from assay.model.target import TargetName
from assay.targets import jax_internals, known, resolve
from assay.targets.devices import prepare
from suites.scan_offload.programs import HIDDEN, Sizes, Writing, block_program


@pytest.fixture(scope="module")
def _ready_for_every_compiler() -> None:
    prepare(map(TargetName.parse, known()))


def is_unavailable(name: str) -> bool:
    return resolve(name).unavailable() is not None


COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(is_unavailable(name), reason="not installed"))
    for name in ("gpu-h100:8", "tpu-v5e:2x4")
]
SIZES = Sizes(layers=8, batch=16, sequence=64, embedding=128, hidden=256)


@pytest.mark.usefixtures("_ready_for_every_compiler")
@pytest.mark.parametrize("name", COMPILERS)
def test_a_scan_that_offloads_has_its_transfers_beside_its_arithmetic(name: str) -> None:
    target = resolve(name)
    program = block_program(SIZES, Writing(offload=(HIDDEN,)), target.devices())
    jitted = jax.jit(
        program.function,
        in_shardings=program.in_shardings,
        out_shardings=program.out_shardings,
        donate_argnums=program.donate_argnums,
    )
    lowered = jitted.trace(*program.arguments).lower(lowering_platforms=(target.platform,))
    (data,) = jax_internals.loaded_protos(lowered.compile().runtime_executable())
    summary = read(data)
    pairs = summary.overlaps
    for kind, nbytes in (
        (AsyncKind.TO_HOST, summary.to_host_bytes_per_run),
        (AsyncKind.TO_DEVICE, summary.to_device_bytes_per_run),
    ):
        found = [pair for pair in pairs if pair.kind is kind]
        assert sum(pair.nbytes * (pair.executions or 0) for pair in found) == nbytes
        assert all(pair.between is not None for pair in found)
        assert nbytes == SIZES.activation_elements(HIDDEN) * 4 // 8
    fetched = [pair for pair in pairs if pair.kind is AsyncKind.TO_DEVICE]
    assert max(pair.between.flops for pair in fetched if pair.between) > 8_000_000
    assert any(pair.kind is AsyncKind.COLLECTIVE for pair in pairs)
    assert all(pair.done for pair in pairs)
