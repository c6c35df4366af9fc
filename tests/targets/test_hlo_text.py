"""HLO text is read whichever jaxlib printed it, and compiled for any target."""

from __future__ import annotations

import pytest

from assay.hlo.summary import read
from assay.targets.jax_internals import device_counts, module_of_text, spell_out_elements
from tests.hlo.compiled import compile_text, executable

# As jaxlib 0.12 prints it; 0.10.2 cannot read it as it stands.
ELEMENTS = """HloModule elements, is_scheduled=true
%doubled (state: (f32[], f32[])) -> f32[] {
  %state = (f32[], f32[]) parameter(0)
  ROOT %twice = f32[] add(%state#0, %state#0), metadata={op_name="%state#1"}
}
ENTRY %main (p: (f32[4], (f32[5], f32[5]))) -> f32[5] {
  %p = (f32[4], (f32[5], f32[5])) parameter(0), metadata={op_name="params[\\"%p#0\\"]"}
  %one = f32[] constant(1)
  %pair = (f32[], f32[]) tuple(%one, %one)
  %two = f32[] call(%pair), to_apply=%doubled
  %sum = f32[5] add(%p#1#0, %p#1#1)
  %all = f32[5] broadcast(%two), dimensions={}
  ROOT %product = f32[5] multiply(%sum, %all)
}
"""
SPELLED_OUT = """HloModule elements, is_scheduled=true
%doubled (state: (f32[], f32[])) -> f32[] {
  %state = (f32[], f32[]) parameter(0)
  %state--0 = get-tuple-element(%state), index=0
  ROOT %twice = f32[] add(%state--0, %state--0), metadata={op_name="%state#1"}
}
ENTRY %main (p: (f32[4], (f32[5], f32[5]))) -> f32[5] {
  %p = (f32[4], (f32[5], f32[5])) parameter(0), metadata={op_name="params[\\"%p#0\\"]"}
  %one = f32[] constant(1)
  %pair = (f32[], f32[]) tuple(%one, %one)
  %two = f32[] call(%pair), to_apply=%doubled
  %p--1 = get-tuple-element(%p), index=1
  %p--1--0 = get-tuple-element(%p--1), index=0
  %p--1--1 = get-tuple-element(%p--1), index=1
  %sum = f32[5] add(%p--1--0, %p--1--1)
  %all = f32[5] broadcast(%two), dimensions={}
  ROOT %product = f32[5] multiply(%sum, %all)
}
"""
UPDATE = """HloModule update, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY main {
  stack = f32[1500,64,128] parameter(0)
  zero = s32[] constant(0)
  row = f32[1,64,128] broadcast(f32[] constant(1)), dimensions={}
  ROOT updated = f32[1500,64,128] dynamic-update-slice(stack, row, zero, zero, zero)
}
"""
STABLEHLO = """module @update {
  func.func public @main(%stack: tensor<1500x64x128xf32> {tf.aliasing_output = 0 : i32})
      -> tensor<1500x64x128xf32> {
    %row = stablehlo.constant dense<1.0> : tensor<1x64x128xf32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %updated = stablehlo.dynamic_update_slice %stack, %row, %zero, %zero, %zero
      : (tensor<1500x64x128xf32>, tensor<1x64x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
      -> tensor<1500x64x128xf32>
    return %updated : tensor<1500x64x128xf32>
  }
}
"""
SHARDED = """HloModule sharded, num_partitions=8
ENTRY main {
  x = f32[1024,128] parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT y = f32[1024,128] negate(x), sharding={devices=[8,1]<=[8]}
}
"""
STACK_BYTES = 1500 * 64 * 128 * 4
TARGETS = ("cpu", "gpu-h100", "tpu-v5e:2x4")


def test_each_element_gets_a_line_of_its_own_and_strings_stay() -> None:
    assert spell_out_elements(ELEMENTS) == SPELLED_OUT


def test_a_text_without_elements_stays_as_it_is() -> None:
    assert spell_out_elements(SPELLED_OUT) == SPELLED_OUT


def test_elements_are_read_as_if_they_were_spelled_out() -> None:
    assert read(module_of_text(ELEMENTS)) == read(module_of_text(SPELLED_OUT))


def test_a_mistake_is_named_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"4:\d+: error: .*negat"):
        module_of_text("HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT n = negat(x)\n}")


def test_a_mistake_beside_elements_is_reported() -> None:
    broken = ELEMENTS.replace("multiply(%sum, %all)", "multiplied(%sum, %all)")
    with pytest.raises(ValueError, match="replacing it did not help"):
        module_of_text(broken)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [UPDATE, STABLEHLO], ids=["hlo", "stablehlo"])
def test_a_donated_stack_is_updated_in_place_on_every_target(text: str, target: str) -> None:
    seen = compile_text(text, target)
    (donation,) = seen.donations
    assert donation.honoured
    assert seen.buffers_assigned
    assert executable(text, target).memory().alias_bytes == STACK_BYTES


@pytest.mark.parametrize("target", TARGETS)
def test_a_stack_that_is_kept_is_copied_on_every_target(target: str) -> None:
    kept = UPDATE.replace(", input_output_alias={ {}: (0, {}, may-alias) }", "")
    seen = compile_text(kept, target)
    assert not seen.donations
    assert STACK_BYTES in {each.nbytes_per_execution for each in seen.full_buffer_writes}


@pytest.mark.parametrize("target", ["cpu:8", "gpu-h100:8", "tpu-v5e:2x4"])
def test_a_module_for_eight_devices_is_compiled_for_eight(target: str) -> None:
    assert executable(SHARDED, target).memory().argument_bytes == 1024 * 128 * 4 // 8


def test_a_module_for_more_devices_than_the_target_has_is_refused() -> None:
    with pytest.raises(ValueError, match="for 8 devices and a target of 1"):
        compile_text(SHARDED, "gpu-h100")


def test_device_counts_come_from_the_first_line_alone() -> None:
    assert device_counts("HloModule m, replica_count=2, num_partitions=4\n") == (2, 4)
    assert device_counts("HloModule m\n// num_partitions=4\n") == (1, 1)
