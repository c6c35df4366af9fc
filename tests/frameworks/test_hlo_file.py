"""A file is told by its content, and one that holds no module says what to do."""

from __future__ import annotations

import gzip

import jax
import jax.export
import jax.numpy
import pytest

from assay.frameworks.hlo import (
    Form,
    NoModule,
    compile_parsed,
    parse,
    recognise,
    why_not_compiled_again,
)
from assay.hlo.assignment import memory_stats
from assay.hlo.schema import split, wrap
from assay.hlo.summary import read
from assay.targets import jax_internals, resolve
from assay.targets.jax_internals import module_of_text
from tests.hlo.compiled import executable
from tests.targets.test_hlo_text import STABLEHLO, STACK_BYTES, UPDATE

MODULE = module_of_text(UPDATE)


def snapshot(hlo_proto: bytes) -> bytes:
    """An HloSnapshot with this HloProto, which is its field 1 as the module is the HloProto's."""
    return wrap(hlo_proto)


def bytecode() -> bytes:
    return jax_internals.stablehlo_from_hlo(MODULE)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (UPDATE.encode(), Form.HLO_TEXT),
        (b"\n  " + UPDATE.encode(), Form.HLO_TEXT),
        (MODULE, Form.HLO_PROTO),
        (wrap(MODULE), Form.HLO_PROTO),
        (snapshot(wrap(MODULE)), Form.HLO_PROTO),
        (STABLEHLO.encode(), Form.STABLEHLO),
        (bytecode(), Form.STABLEHLO),
    ],
    ids=["text", "indented", "module", "hlo-proto", "snapshot", "stablehlo", "bytecode"],
)
def test_a_file_is_told_by_its_content(data: bytes, form: Form) -> None:
    for file in (recognise(data, "x"), recognise(gzip.compress(data), "x.gz")):
        assert file.form is form
        assert not file.scheduled
        if form is not Form.STABLEHLO:
            assert read(file.module) == read(MODULE)


def test_what_jax_exports_is_stablehlo_that_compiles() -> None:
    executable(UPDATE, "cpu")  # jax is ready for every compiler from here on
    shape = jax.ShapeDtypeStruct((8, 128), "float32")  # type: ignore[no-untyped-call]
    exported = jax.export.export(jax.jit(jax.numpy.sin), platforms=["cpu"])(shape)
    file = recognise(exported.mlir_module_serialized, "exported")
    assert file.form is Form.STABLEHLO
    devices = resolve("cpu").devices()
    compiled = compile_parsed(parse(file, devices), devices)
    assert compiled.memory().argument_bytes == 8 * 128 * 4


@pytest.mark.parametrize("target", ["cpu", "gpu-h100", "tpu-v5e:2x4"])
def test_a_compilers_dump_is_scheduled_and_keeps_its_buffer_assignment(target: str) -> None:
    compiled = executable(UPDATE, target)
    file = recognise(compiled.hlo_proto(), "module.after_optimizations.hlo.pb")
    assert file.scheduled
    assert read(file.module, file.buffer_assignment).buffers_assigned
    memory = memory_stats(file.buffer_assignment)
    assert memory.argument_bytes == memory.output_bytes == memory.alias_bytes == STACK_BYTES
    alone = recognise(file.module, "a module alone")
    assert (alone.form, alone.buffer_assignment) == (Form.HLO_PROTO, b"")


@pytest.mark.parametrize("target", ["cpu", "gpu-h100"])
def test_allocations_add_up_to_the_compilers_own_analysis(target: str) -> None:
    kept = UPDATE.replace(", input_output_alias={ {}: (0, {}, may-alias) }", "")
    compiled = executable(kept, target)
    ours, theirs = memory_stats(split(compiled.hlo_proto())[1]), compiled.memory()
    for name in ("temp_bytes", "argument_bytes", "output_bytes", "alias_bytes", "host_temp_bytes"):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "which is empty"),
        (b" \n", "which is empty"),
        (gzip.compress(MODULE)[:-9], "damaged or truncated gzip"),
        (MODULE[: len(MODULE) // 2], "not a complete module"),
        (wrap(MODULE)[:-3], "not a complete module"),
        (bytes(range(256)), "not a complete module"),
        (b"\x0a\x03abc", "not a complete module"),
        (b"hello, world", "got no HLO"),
        (UPDATE[:150].encode(), "got no HLO"),
        (b"module @m { nonsense }", "got no StableHLO"),
        (b"ML\xefRgarbage", "got no StableHLO"),
        (bytecode()[:-20], "got no StableHLO"),
    ],
)
def test_a_file_without_a_module_says_so_and_what_was_wanted(data: bytes, words: str) -> None:
    with pytest.raises(NoModule, match=words) as refused:
        recognise(data, "some.file")
    assert "some.file" in str(refused.value)
    assert "want" in str(refused.value)


REDUCED = """HloModule reduced
sum { l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r) }
ENTRY main { x = f32[8] parameter(0)
  ROOT y = f32[8] all-reduce(x), to_apply=sum, replica_groups={} }
"""
ONE_OPERATION = "HloModule one\nENTRY main {{ x = f32[8,8] parameter(0)\n ROOT y = {} }}"


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ("f32[64] bitcast(x)", "1 × bitcast"),
        ('f32[8,8] custom-call(x), custom_call_target="__cublas$gemm"', "1 × __cublas$gemm"),
        ('f32[8,8] custom-call(x), custom_call_target="tpu_custom_call"', ""),
        ("f32[8,8] negate(x)", ""),
    ],
)
def test_what_a_compiler_made_is_not_compiled_again(operation: str, why: str) -> None:
    file = recognise(ONE_OPERATION.format(operation).encode(), "x")
    for platform in ("cpu", "cuda", "tpu"):
        said = why_not_compiled_again(file, platform)
        assert why in said
        assert bool(said) == bool(why)
        assert ("before_optimizations.hlo.pb" in said) == bool(why)


def test_a_dump_of_a_compiled_module_lists_what_is_in_the_way() -> None:
    file = recognise(executable(UPDATE, "cpu").hlo_proto(), "x")
    assert "× fusion" in why_not_compiled_again(file, "cpu")


def test_a_copy_is_compiled_again_on_a_cpu_alone() -> None:
    file = recognise(ONE_OPERATION.format("f32[8,8] copy(x)").encode(), "x")
    assert why_not_compiled_again(file, "cpu") == ""
    assert "1 × copy" in why_not_compiled_again(file, "tpu")


def test_operations_across_devices_need_text_which_says_how_many() -> None:
    text, proto = recognise(REDUCED.encode(), "x"), recognise(module_of_text(REDUCED), "x")
    assert why_not_compiled_again(text, "cpu") == ""
    assert "1 × all-reduce" in why_not_compiled_again(proto, "cpu")


def test_stablehlo_is_what_compilers_take() -> None:
    assert why_not_compiled_again(recognise(STABLEHLO.encode(), "x"), "tpu") == ""


ON_HOST = """HloModule placed
ENTRY main { x = f32[1024,1024]{1,0:S(5)} parameter(0)
  z = f32[8,128] parameter(1)
  y = f32[1024,1024]{1,0:S(5)} negate(x)
  w = f32[8,128] negate(z)
  ROOT out = (f32[1024,1024]{1,0:S(5)}, f32[8,128]) tuple(y, w) }
"""


# What a compiler dumps before its passes: host memory in the entry's layout alone.
ON_HOST_BY_LAYOUT = (
    ON_HOST.replace(
        "placed",
        "placed, entry_computation_layout={(f32[1024,1024]{1,0:S(5)}, f32[8,128]{1,0})->"
        "(f32[1024,1024]{1,0:S(5)}, f32[8,128]{1,0})}",
        1,
    )
    .replace("{1,0:S(5)} ", "{1,0} ")
    .replace("ROOT out = (f32[1024,1024]{1,0:S(5)}", "ROOT out = (f32[1024,1024]{1,0}")
)


@pytest.mark.parametrize("text", [ON_HOST, ON_HOST_BY_LAYOUT], ids=["arrays", "layout"])
@pytest.mark.parametrize("target", ["gpu-h100", "tpu-v5e:2x4"])
def test_arrays_of_the_entry_stay_in_host_memory(target: str, text: str) -> None:
    memory = executable(text, target).memory()
    assert memory.host_argument_bytes == memory.host_output_bytes == 4 * 1024 * 1024
    assert memory.argument_bytes == 4 * 8 * 128
