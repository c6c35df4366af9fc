"""``assay inspect``, end to end: programs and dumps in, a page or one JSON object out."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec
import pytest

from assay.hlo.schema import wrap
from tests.hlo.assigned import assigned
from tests.hlo.compiled import executable
from tests.hlo.full_buffer_write_traps import APART, IN_PLACE, UPDATED, looping
from tests.plugin.project import Ended, Project
from tests.targets.test_hlo_text import SHARDED, STABLEHLO, STACK_BYTES, UPDATE

TRAIN = """
import functools
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

OFFLOAD = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["act"],
    offload_src="device", offload_dst="pinned_host")

def loss(params, x):
    @functools.partial(jax.checkpoint, policy=OFFLOAD)
    def layer(h, w):
        return jnp.tanh(checkpoint_name(h, "act") @ w), None
    return (jax.lax.scan(layer, x, params["w"])[0] ** 2).mean()

def step(params, x):
    return jax.tree.map(lambda p, g: p - g, params, jax.grad(loss)(params, x))

jitted = jax.jit(step, donate_argnums=0)

def mismatched(params, x):
    return x + jnp.zeros(3)

def huge(params, x):
    return jnp.tile(params["w"].sum(), (300000, 200000)) @ jnp.tile(x.sum(), (200000, 300000))

def aborts(params, x):
    import os
    os.abort()

def example_args():
    return {"w": jax.ShapeDtypeStruct((8, 512, 512), jnp.float32)}, jnp.ones((256, 512))
"""
DOORS = """
import json, pathlib
from train import example_args, step

def test_doors(assay):
    step_ = assay.compile(step, *example_args(), target="gpu-h100", donate_argnums=0)
    names = ("temp_bytes", "argument_bytes", "output_bytes", "alias_bytes", "peak_bytes")
    numbers = {name: getattr(step_.memory, name) for name in names}
    pathlib.Path("doors.json").write_text(json.dumps(numbers))
"""
SHARDED_TRAIN = (
    TRAIN
    + """
def example_shardings(devices):
    mesh = jax.sharding.Mesh(devices, ("data",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return {"w": whole}, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
"""
)
ARGUMENT_BYTES = (8 * 512 * 512 + 256 * 512) * 4
STACK_ON_HOST = 8 * 256 * 512 * 4
FIXED = {"target", "toolchain", "memory", "transfers", "copies", "overlap", "peak", "warnings"}
FIXED_MEMORY = {
    "temp_bytes",
    "argument_bytes",
    "output_bytes",
    "alias_bytes",
    "host_temp_bytes",
    "host_argument_bytes",
    "host_output_bytes",
    "host_alias_bytes",
    "peak_bytes",
    "fits",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    files = {
        "train.py": TRAIN,
        "sharded.py": SHARDED_TRAIN,
        "bare.py": "def step(x):\n    return x\n",
        "wrong.py": "def step(x):\n    return x\ndef example_args():\n    return 3.0\n",
        "unreadable.py": "def step(x:\n",
        "update.hlo": UPDATE,
        "update.mlir": STABLEHLO,
        "sharded.hlo": SHARDED,
        "typo.txt": UPDATE.replace("broadcast", "brodcast"),
        "empty.pb": "",
    }
    project = Project(tmp_path_factory.mktemp("inspected"), files)
    dump = executable(UPDATE, "gpu-h100").hlo_proto()
    for name, data in (("dump.hlo.pb", dump), ("dump.gz", gzip.compress(dump))):
        (project.root / name).write_bytes(data)
    for name, places in (("in_place", IN_PLACE), ("apart", APART)):
        seen = assigned(
            looping(UPDATED).replace("looping\n", "looping, is_scheduled=true\n"), places
        )
        data = wrap(seen.module, seen.assignment)
        (project.root / f"{name}.hlo.pb").write_bytes(data)
    (project.root / "cut.pb").write_bytes(dump[:-50])
    (project.root / "binary").write_bytes(bytes(range(256)))
    (project.root / "folder").mkdir()
    return project


def page(ended: Ended) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(ended.output)
    return decoded


@pytest.fixture(scope="module")
def offloading(project: Project) -> dict[str, Any]:
    ended = project.assay("inspect", "train.py:jitted", "--target", "gpu-h100", "--json")
    assert ended.exit_code == 0, ended.output
    return page(ended)


def test_the_object_has_the_fixed_names_and_no_error(offloading: dict[str, Any]) -> None:
    assert set(offloading) >= FIXED
    assert set(offloading["memory"]) >= FIXED_MEMORY
    assert "error" not in offloading
    assert offloading["target"] == "gpu-h100"
    assert "jaxlib" in offloading["toolchain"]


def test_an_offloaded_stack_shows_in_memory_and_transfers(offloading: dict[str, Any]) -> None:
    memory, transfers = offloading["memory"], offloading["transfers"]
    assert memory["host_temp_bytes"] == STACK_ON_HOST
    assert memory["argument_bytes"] == ARGUMENT_BYTES
    assert memory["fits"] is True
    assert transfers["to_host_bytes_per_step"] == STACK_ON_HOST
    assert transfers["to_device_bytes_per_step"] == STACK_ON_HOST
    assert {op["trips_per_step"] for op in transfers["ops"]} == {8}
    assert all(op["source"].startswith("train.py:") for op in transfers["ops"])


def test_a_jitted_function_keeps_its_donation(offloading: dict[str, Any]) -> None:
    (donation,) = offloading["donations"]
    assert donation["argument"] == "params['w']"
    assert donation["honoured"]
    assert offloading["memory"]["alias_bytes"] == 8 * 512 * 512 * 4


def test_a_donated_argument_has_the_same_numbers_by_both_doors(project: Project) -> None:
    command = ("inspect", "train.py:step", "--target", "gpu-h100", "--json")
    donating = page(project.assay(*command, "--donate", "0"))
    project.write({"test_doors.py": DOORS})
    ended = project.pytest(target="")
    assert ended.exit_code == 0, ended.output
    numbers = msgspec.json.decode((project.root / "doors.json").read_bytes())
    assert {name: donating["memory"][name] for name in numbers} == numbers
    assert numbers["alias_bytes"] == 8 * 512 * 512 * 4
    assert page(project.assay(*command))["memory"]["alias_bytes"] == 0


def test_the_peak_lists_the_largest_first_with_its_line(offloading: dict[str, Any]) -> None:
    sizes = [buffer["bytes"] for buffer in offloading["peak"]]
    assert sizes == sorted(sizes, reverse=True)
    assert "params['w']" in {buffer["buffer"] for buffer in offloading["peak"]}
    assert any((buffer["source"] or "").startswith("train.py:") for buffer in offloading["peak"])


def test_the_page_says_the_same(project: Project) -> None:
    ended = project.assay("inspect", "train.py:jitted", "--target", "tpu-v5e:2x4")
    assert ended.exit_code == 0, ended.output
    for words in ("MEMORY  fits: ", "4.0 MiB to the host", "ALIVE AT THE PEAK", "1 of 1 honoured"):
        assert words in ended.output
    assert max(map(len, ended.output.splitlines())) <= 100


def test_a_plain_function_is_inspected_on_the_cpu_if_no_target_is_named(project: Project) -> None:
    seen = page(project.assay("inspect", "train.py:step", "--json"))
    assert seen["target"] == "cpu"
    assert seen["memory"]["argument_bytes"] == ARGUMENT_BYTES
    assert seen["memory"]["fits"] is None
    assert seen["donations"] == []


@pytest.mark.parametrize("function", ["step", "jitted"])
def test_example_shardings_place_the_arguments(project: Project, function: str) -> None:
    seen = page(project.assay("inspect", f"sharded.py:{function}", "--target", "cpu:8", "--json"))
    assert seen["memory"]["argument_bytes"] == (8 * 512 * 512 + 256 * 512 // 8) * 4


def test_several_targets_give_a_page_each(project: Project) -> None:
    ended = project.assay("inspect", "update.hlo", "--target", "cpu,gpu-h100")
    assert ended.exit_code == 0, ended.output
    assert "update.hlo on cpu\n" in ended.output
    assert "update.hlo on gpu-h100\n" in ended.output


def test_a_program_that_does_not_trace_ends_with_1_and_an_error(project: Project) -> None:
    ended = project.assay("inspect", "train.py:mismatched", "--json")
    seen = page(ended)
    assert ended.exit_code == 1
    assert seen["error"].startswith("it does not trace: ")
    assert seen["memory"]["temp_bytes"] is None
    assert seen["copies"] is None


def test_a_program_that_does_not_fit_names_the_sizes(project: Project) -> None:
    ended = project.assay("inspect", "train.py:huge", "--target", "tpu-v5e:2x4", "--json")
    seen = page(ended)
    assert ended.exit_code == 1
    assert seen["failure"]["kind"] == "out-of-memory"
    assert seen["failure"]["needed_bytes"] > seen["failure"]["capacity_bytes"] > 2**33
    assert seen["memory"]["fits"] is False


def test_a_program_that_ends_its_process_is_an_error_of_its_own(project: Project) -> None:
    ended = project.assay("inspect", "train.py:aborts", "--json")
    assert ended.exit_code == 1
    assert "crashes its process" in page(ended)["error"]


@pytest.mark.parametrize("file", ["dump.hlo.pb", "dump.gz"])
def test_a_dump_is_read_as_it_stands(project: Project, file: str) -> None:
    seen = page(project.assay("inspect", file, "--json"))
    assert (seen["target"], seen["toolchain"]) == (None, None)
    assert seen["memory"]["argument_bytes"] == seen["memory"]["alias_bytes"] == STACK_BYTES
    assert seen["memory"]["fits"] is None
    assert seen["peak"][0]["bytes"] == STACK_BYTES


def test_a_dump_is_held_against_the_device_of_a_target(project: Project) -> None:
    seen = page(project.assay("inspect", "dump.hlo.pb", "--target", "gpu-h100", "--json"))
    assert seen["memory"]["fits"] is True
    assert seen["means"] == "read as it stands"


@pytest.mark.parametrize("file", ["update.hlo", "update.mlir"])
def test_what_no_compiler_has_seen_is_compiled_for_the_target(project: Project, file: str) -> None:
    seen = page(project.assay("inspect", file, "--target", "tpu-v5e:2x4", "--json"))
    assert seen["means"] == "compiled"
    assert seen["memory"]["alias_bytes"] == STACK_BYTES


def test_as_is_reads_an_uncompiled_module_and_says_so(project: Project) -> None:
    seen = page(project.assay("inspect", "update.hlo", "--as-is", "--json"))
    assert seen["memory"]["temp_bytes"] is None
    assert seen["peak"] is None
    assert any("not scheduled" in warning for warning in seen["warnings"])
    assert any("no buffer assignment" in warning for warning in seen["warnings"])


def test_diff_tells_a_program_from_another(project: Project) -> None:
    shared = ("inspect", "update.hlo", "--as-is", "--json", "--diff")
    other = page(project.assay(*shared, "dump.hlo.pb"))["diff"]
    assert other["before"] == "dump.hlo.pb"
    assert {each["aspect"] for each in other["differences"]} >= {"fusion"}
    assert page(project.assay(*shared, "update.hlo"))["diff"]["differences"] == []


def test_diff_tells_the_memory_of_two_dumps_of_the_same_hlo(project: Project) -> None:
    ended = project.assay("inspect", "in_place.hlo.pb", "--diff", "apart.hlo.pb", "--json")
    told = [each["text"] for each in page(ended)["diff"]["differences"]]
    assert told[:2] == ["peak 557 B → 429 B", "temporaries 429 B → 301 B"]
    assert told[2].startswith("updates that write all of f32[8,4] 1 → 0")
    assert "does not say which toolchain wrote it" in page(ended)["diff"]["notes"][0]


def test_a_module_for_more_devices_than_there_are_says_so(project: Project) -> None:
    ended = project.assay("inspect", "sharded.hlo", "--target", "gpu-h100", "--json")
    assert ended.exit_code == 1
    assert "for 8 devices and a target of 1" in page(ended)["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("absent.hlo",), "got absent.hlo, which cannot be read"),
        (("absent.py:step",), "got no file absent.py"),
        (("folder",), "Is a directory"),
        (("empty.pb",), "which is empty"),
        (("cut.pb",), "not a complete module"),
        (("binary",), "not a complete module"),
        (("typo.txt",), "brodcast"),
        (("train.py",), "wanted train.py:FUNCTION; it defines"),
        (("train.py:absent",), "without 'absent'"),
        (("train.py:setp",), "mismatched, step; write step"),
        (("bare.py:step",), "without 'example_args'"),
        (("unreadable.py:step",), "Python cannot read"),
        (("update.hlo",), "wanted a target to compile it for"),
        (("dump.hlo.pb", "--compile", "--target", "cpu"), "before_optimizations.hlo.pb"),
        (("update.mlir", "--as-is"), "wanted HLO to read as it stands"),
        (("update.hlo", "--as-is", "--compile"), "wanted one of them"),
        (("update.hlo", "--target", "cpi"), "write cpu"),
        (("update.hlo", "--target", "cpu,cpu:8", "--json"), "wanted one"),
        (("train.py:step", "--target", "gpu:99"), "cannot do it"),
        (("train.py:step", "--donate", "params"), "got --donate params, wanted numbers"),
        (("update.hlo", "--donate", "0"), "got --donate for update.hlo, whose donations are fixed"),
    ],
    ids=lambda value: "-".join(value).replace("/", "") if isinstance(value, tuple) else "",
)
def test_misuse_ends_with_2_and_says_what_to_do(
    project: Project, arguments: tuple[str, ...], words: str
) -> None:
    ended = project.assay("inspect", *arguments)
    assert ended.exit_code == 2, ended.output
    assert words in " ".join(ended.output.split())
    assert "Traceback" not in ended.output
