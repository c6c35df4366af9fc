"""``assay.compile``: the numbers of ``assay inspect``, as attributes, from any Python program."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import assay
from assay import api
from assay.api import Memory
from assay.model.claim import MeasurementMissing
from assay.model.target import TargetName
from assay.model.units import parse_bytes
from assay.targets import known, prepare
from tests import warm

# Before jax starts in this process: other tests ask it for every compiler.
prepare(map(TargetName.parse, known()))

V5E, H100 = "tpu-v5e:2x4", "gpu-h100:8"
LAYERS, WIDTH = 8, 1024
STACK = LAYERS * WIDTH * WIDTH * 4


def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), c), x, None, length=LAYERS)


def copying(stack: jax.Array) -> jax.Array:
    """Each iteration changes one row, and the type of the whole stack, there and back."""

    def body(index: jax.Array, stack: jax.Array) -> jax.Array:
        row = jnp.full((1, WIDTH, WIDTH), index, jnp.float32)
        changed = jax.lax.dynamic_update_slice(stack.astype(jnp.float32), row, (index, 0, 0))
        return changed.astype(jnp.bfloat16)

    return jax.lax.fori_loop(0, LAYERS, body, stack)


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    yield
    api._PROCESSES.close()


@pytest.fixture(scope="module")
def on_v5e() -> assay.Compiled:
    return assay.compile(step, np.zeros((WIDTH, WIDTH), np.float32), target=V5E)


def test_memory_says_what_libraries_hold_and_no_compiler_reports() -> None:
    x = jax.ShapeDtypeStruct((4096, 64), jnp.float32)
    held = assay.compile(lambda x: jax.nn.softmax(x @ x.T, -1) @ x, x, target="cpu")
    assert held.memory.temp_bytes == 0
    assert held.memory.library_bytes > 4096 * 4096 * 4
    assert held.memory.device_bytes == 2 * 4096 * 64 * 4 + held.memory.library_bytes
    plain = assay.compile(lambda x: jnp.tanh(x) + 1, x, target="cpu")
    assert plain.memory.library_bytes == 0
    for shown in (repr, str):
        assert "libraries hold at most" in shown(held.memory)
        assert "libraries" not in shown(plain.memory)
    assert "does not report their memory" in " ".join(str(held).split())
    assert "libraries" not in str(plain)


def test_numbers_are_attributes(on_v5e: assay.Compiled) -> None:
    memory, transfers = on_v5e.memory, on_v5e.transfers
    assert memory.argument_bytes == WIDTH * WIDTH * 4
    assert STACK <= memory.output_bytes < STACK + 2 * WIDTH * WIDTH * 4
    assert memory.peak_bytes is not None
    assert memory.peak_bytes >= STACK
    assert (transfers.to_host_bytes, transfers.to_device_bytes) == (0, 0)
    assert on_v5e.fits
    assert f"{on_v5e.fits!r}".endswith("available 15.748 GiB)")
    assert on_v5e.peak.nbytes == memory.peak_bytes
    assert on_v5e.hlo.startswith("HloModule jit_step")
    assert on_v5e.donations == ()


def test_inspect_gives_the_same_numbers(on_v5e: assay.Compiled, tmp_path: Path) -> None:
    source = (
        "import jax, jax.numpy as jnp\n"
        "def step(x):\n"
        "    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), c), x, None, length=8)\n"
        "def example_args():\n"
        "    return (jax.ShapeDtypeStruct((1024, 1024), jnp.float32),)\n"
    )
    (tmp_path / "train.py").write_text(source)
    code, output = warm.run(
        ["-m", "assay.cli", "inspect", "train.py:step", "--target", V5E, "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(assay.__file__).parents[1])},
        seconds=120,
    )
    assert code == 0
    seen = json.loads(output)
    names = set(Memory.__dataclass_fields__) - {"reported_peak_bytes"}
    assert {name: seen["memory"][name] for name in names} == {
        name: getattr(on_v5e.memory, name) for name in names
    }
    assert len([copy for copy in seen["copies"] if copy["loop"]]) == len(on_v5e.loop_copies())


def test_it_prints_the_page_of_inspect(on_v5e: assay.Compiled) -> None:
    page = str(on_v5e)
    assert page.startswith(f"step on {V5E}\n")
    assert "\nMEMORY  fits: 40.0 MiB needed of 15.75 GiB" in page
    assert max(map(len, page.splitlines())) <= 100
    html = on_v5e._repr_html_()
    assert html.startswith("<pre>")
    assert "MEMORY" in html


def test_loop_copies_are_found_with_their_size() -> None:
    found = assay.compile(
        copying, jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.bfloat16), target="cpu"
    )
    copies = found.loop_copies("1MiB")
    assert copies
    assert copies.bytes_per_iteration >= STACK // 2
    assert f"{copies!r}".startswith("LoopCopies(")
    assert "test_api.py:" in repr(copies)
    assert not found.loop_copies("1GiB")
    assert found.loop_copies(STACK // 2)  # Of just this size, too.


def test_what_a_cpu_does_not_show_is_not_zero() -> None:
    found = assay.compile(jnp.sin, np.zeros(8, np.float32), target="cpu")
    with pytest.raises(MeasurementMissing, match="got cpu, which has one memory"):
        _ = found.transfers
    with pytest.raises(MeasurementMissing, match="device memory is not known"):
        assert found.fits


def test_a_program_that_is_too_large_does_not_fit() -> None:
    tokens = jax.ShapeDtypeStruct((8, 32768, 64), jnp.float32)

    def scores(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x @ x.swapaxes(-1, -2), axis=-1)

    found = assay.compile(scores, tokens, target=V5E)
    assert not found.fits
    assert "available 15.7" in repr(found.fits)
    with pytest.raises(assay.CompileError, match="runs out of memory"):
        _ = found.memory


def test_a_program_that_does_not_trace_names_its_line() -> None:
    with pytest.raises(assay.CompileError, match=r"does not trace: tests/test_api\.py:\d+: TypeE"):
        assay.compile(lambda x: x + jnp.zeros(9), np.zeros(8), target="cpu")


def test_an_unknown_target_is_told_at_once() -> None:
    with pytest.raises(assay.TargetError, match="gpu-h1000"):
        assay.compile(step, np.zeros(8), target="gpu-h1000")


def test_two_programs_are_compared(on_v5e: assay.Compiled) -> None:
    other = assay.compile(step, np.zeros((512, 512), np.float32), target=V5E)
    assert not on_v5e.diff(on_v5e)
    assert other.diff(on_v5e)
    assert "arguments 4.0 MiB → 1.0 MiB" in repr(other.diff(on_v5e))


def test_a_program_that_was_refused_differs_from_none(on_v5e: assay.Compiled) -> None:
    refused = assay.compile(
        lambda x: x @ x.T, jax.ShapeDtypeStruct((1 << 20, 8), jnp.float32), target=V5E
    )
    with pytest.raises(MeasurementMissing, match="cannot be compared"):
        bool(refused.diff(on_v5e))


def test_transfers_of_which_only_a_bound_is_known_have_no_bytes() -> None:
    """No compiler accepts an offload in a conditional, so the bound is put in by hand."""

    def there_and_back(x: jax.Array) -> jax.Array:
        return (
            jax.device_put(jax.device_put(x, jax.memory.Space.Host) * 1, jax.memory.Space.Device)
            + 1
        )

    x = np.zeros((WIDTH, WIDTH), np.float32)
    found = assay.compile(there_and_back, x, target=V5E)
    assert found.transfers.to_host_bytes == WIDTH * WIDTH * 4
    evidence = found.inspection.evidence
    assert evidence.module is not None
    bounds = tuple(replace(each, at_most=True) for each in evidence.module.transfers)
    module = replace(evidence.module, transfers=bounds)
    inspection = replace(found.inspection, evidence=replace(evidence, module=module))
    with pytest.raises(MeasurementMissing, match="an unknown number of times"):
        _ = assay.Compiled(inspection).transfers


@pytest.mark.parametrize("target", [V5E, H100])
def test_collectives_say_what_a_device_sends(target: str) -> None:
    def split(devices: Sequence[jax.Device]) -> NamedSharding:
        return NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec("data"))

    x = np.zeros((8 * WIDTH, WIDTH), np.float32)
    found = assay.compile(lambda x: x.sum(axis=0), x, target=target, in_shardings=split)
    (operation,) = found.collectives.operations
    assert (operation.opcode, operation.devices) == ("all-reduce", 8)
    assert found.collectives.sent_bytes == 2 * WIDTH * 4 * 7 // 8
    assert "COLLECTIVES  a device sends 7.0 KiB to others per step" in str(found)


def test_another_time_limit_is_another_process() -> None:
    api.compile(jnp.sin, np.zeros(8, np.float32))
    with pytest.raises(assay.CompileError, match=r"no answer within 0\.01 s"):
        api.compile(jnp.sin, np.zeros(8, np.float32), timeout_seconds=0.01)


def test_jit_s_own_options_are_honoured() -> None:
    def scaled(x: jax.Array, times: int) -> jax.Array:
        return x * jnp.ones(times).sum()

    donated = assay.compile(
        scaled, np.zeros(4096, np.float32), 3, target=H100, donate_argnums=0, static_argnums=1
    )
    assert donated.memory.alias_bytes == 4096 * 4
    assert [each.honoured for each in donated.donations] == [True]


def data_mesh() -> Mesh:
    auto = (jax.sharding.AxisType.Auto,)
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=auto)


def make_sharded() -> tuple[jax.Array, jax.Array]:
    """As a training script for eight devices makes its state."""
    weights = jax.device_put(
        jax.random.normal(jax.random.key(0), (WIDTH, WIDTH)),
        NamedSharding(data_mesh(), PartitionSpec("data")),
    )
    return weights, jnp.ones((8, WIDTH))


@pytest.mark.parametrize("target", [V5E, H100])
def test_code_for_the_real_machine_runs_unmodified(target: str) -> None:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        split = NamedSharding(data_mesh(), PartitionSpec(None, "data"))
        return jax.lax.with_sharding_constraint(x @ weights, split).sum() / jax.device_count()

    found = assay.compile(loss, make_sharded, target=target)
    per_device = WIDTH * WIDTH * 4 // 8
    assert per_device <= found.memory.argument_bytes < 2 * per_device
    assert "all-reduce" in found.hlo


def test_shardings_may_be_a_function_of_the_devices() -> None:
    def shardings(devices: list[jax.Device]) -> NamedSharding:
        return NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec("data"))

    found = assay.compile(
        jnp.sin, np.zeros((8, WIDTH), np.float32), target=H100, in_shardings=shardings
    )
    assert found.memory.argument_bytes == WIDTH * 4


def test_meshes_of_this_machine_stand_for_the_target_s() -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    whole = jax.device_put(np.zeros((8, WIDTH), np.float32), NamedSharding(mesh, PartitionSpec()))

    def constrained(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x + 1, NamedSharding(mesh, PartitionSpec("data")))

    found = assay.compile(constrained, whole, target=V5E)
    assert found.memory.argument_bytes == 8 * WIDTH * 4


@pytest.mark.parametrize(
    ("size", "found"),
    [(7, 7), ("7", 7), ("7B", 7), ("1KiB", 1024), ("1.5 MiB", 1572864), ("2GB", 2 * 10**9)],
)
def test_sizes_are_numbers_or_text(size: int | str, found: int) -> None:
    assert parse_bytes(size) == found


@pytest.mark.parametrize("size", [-1, "", "1XiB", "MiB", "-1KiB", 1.5, True, None])
def test_what_is_no_size_is_refused(size: object) -> None:
    with pytest.raises((TypeError, ValueError), match="wanted"):
        parse_bytes(size)  # type: ignore[arg-type]  # the very thing that must not work
