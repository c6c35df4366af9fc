"""Loops in which it is not plain what an array is filled with; each fools a detector."""

from __future__ import annotations

from collections.abc import Mapping

from .full_buffer_write_traps import (
    APART,
    COPY,
    COPYING,
    IN_PLACE,
    MASKED,
    STACK_BYTES,
    UPDATE,
    WHOLE_COPY,
    WHOLE_UPDATE,
    Trap,
    looping,
)
from .simple_detectors import by_opcode, by_result, by_root, by_select, by_slice


def fused(root: str, result: str = "f32[8,4]") -> dict[str, str]:
    """A loop whose stack goes through one fusion."""
    functions = f"inner {{ p = f32[8,4] parameter(0)\n  ROOT r = {result} {root} }}"
    return {"functions": functions}


CONTENT_TRAPS: Mapping[str, Trap] = {
    "a fusion copies": Trap(
        text=looping("new = f32[8,4] fusion(a), kind=kLoop, calls=inner", **fused("copy(p)")),
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a fusion transposes": Trap(
        text=looping(
            "turned = f32[4,8] fusion(a), kind=kLoop, calls=inner",
            "new = f32[8,4] bitcast(turned)",
            **fused("transpose(p), dimensions={1,0}", "f32[4,8]"),
        ),
        places={"state/1": (1, 0), "turned": (1, 0)},
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a transpose that the layouts undo moves nothing": Trap(
        text=looping(
            "turned = f32[4,8]{0,1} fusion(a), kind=kLoop, calls=inner",
            "new = f32[8,4] bitcast(turned)",
            **fused("transpose(p), dimensions={1,0}", "f32[4,8]{0,1}"),
        ),
        places={"state/1": (1, 0), "turned": (1, 0)},
        fools=by_root,
    ),
    "an asynchronous copy in a computation of its own": Trap(
        text=looping(
            "begun = ((f32[8,4]), f32[8,4], u32[]) async-start(a), calls=copying",
            "new = f32[8,4] async-done(begun)",
            functions=COPYING,
        ),
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a reshape that the compiler leaves changes the tiles": Trap(
        text=looping("flat = f32[32] reshape(a)", "new = f32[8,4] bitcast(flat)"),
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a reshape inside a fusion only counts anew": Trap(
        text=looping(
            "flat = f32[32] fusion(a), kind=kLoop, calls=inner",
            "new = f32[8,4] bitcast(flat)",
            **fused("reshape(p)", "f32[32]"),
        ),
        places={"state/1": (1, 0), "flat": (1, 0)},
        fools=by_result,
    ),
    "a conversion writes the array in another type": Trap(
        text=looping("whole = s32[8,4] convert(a)", "new = f32[8,4] bitcast-convert(whole)"),
        places={"state/1": (1, 0), "whole": (1, 0), "new": (1, 0)},
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "an update seen through another type of the same width is in place": Trap(
        text=looping(
            "new = f32[8,4] fusion(a, row, i), kind=kLoop, calls=inner",
            functions="""inner { p = f32[8,4] parameter(0)
  r = f32[1,4] parameter(1)
  j = s32[] parameter(2)
  z = s32[] constant(0)
  bits = u32[8,4] bitcast-convert(p)
  bit = u32[1,4] bitcast-convert(r)
  updated = u32[8,4] dynamic-update-slice(bits, bit, j, z)
  ROOT back = f32[8,4] bitcast-convert(updated) }""",
        ),
        places=IN_PLACE,
        fools=by_result,
    ),
    "a view in another type that lies apart is a copy": Trap(
        text=looping("bits = u32[8,4] bitcast-convert(a)", "new = f32[8,4] bitcast-convert(bits)"),
        places={"state/1": (1, 0), "bits": (2, 0), "new": (2, 0)},
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a copy into another layout in the same bytes is still a full-buffer write": Trap(
        text=looping(
            "turned = f32[8,4]{0,1} copy(a)",
            "new = f32[8,4] bitcast(turned)",
        ),
        places={"state/1": (1, 0), "turned": (1, 0)},
        writes=WHOLE_COPY,
        fools=by_slice,
    ),
    "a choice by mask between a row and the old stack writes the stack": Trap(
        text=looping(
            "new = f32[8,4] fusion(a, row, i), kind=kLoop, calls=inner",
            functions=MASKED,
        ),
        places=IN_PLACE,
        writes=WHOLE_UPDATE,
        fools=by_opcode,
    ),
    "a select on a value that the body made is arithmetic": Trap(
        text=looping(
            "scaled = f32[8,4] multiply(a, a)",
            "none = f32[8,4] constant({...})",
            "positive = pred[8,4] compare(scaled, none), direction=GT",
            "relu = f32[8,4] select(positive, scaled, none)",
            "saved = f32[1,4] dynamic-slice(relu, i, zero), dynamic_slice_sizes={1,4}",
            "new = f32[8,4] dynamic-update-slice(a, saved, i, zero)",
        ),
        places=IN_PLACE,
        fools=by_select,
    ),
    "a select on a carried value that the loop does not carry on is arithmetic": Trap(
        text=looping(
            "none = f32[8,4] constant({...})",
            "positive = pred[8,4] compare(a, none), direction=GT",
            "relu = f32[8,4] select(positive, a, none)",
            "saved = f32[1,4] dynamic-slice(relu, i, zero), dynamic_slice_sizes={1,4}",
            "new = f32[8,4] dynamic-update-slice(a, saved, i, zero)",
        ),
        places=IN_PLACE,
        fools=by_select,
    ),
    "a shift register moves every row": Trap(
        text=looping(
            "new = f32[8,4] fusion(a, row), kind=kLoop, calls=inner",
            functions="""inner { p = f32[8,4] parameter(0)
  r = f32[1,4] parameter(1)
  kept = f32[7,4] slice(p), slice={[0:7], [0:4]}
  ROOT moved = f32[8,4] concatenate(r, kept), dimensions={0} }""",
        ),
        places=APART,
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "a stack turned in three pieces moves every row": Trap(
        text=looping(
            "turned = f32[8,4] fusion(a), kind=kLoop, calls=inner",
            "saved = f32[1,4] dynamic-slice(turned, i, zero), dynamic_slice_sizes={1,4}",
            "new = f32[8,4] dynamic-update-slice(a, saved, i, zero)",
            functions="""inner { p = f32[8,4] parameter(0)
  low = f32[3,4] slice(p), slice={[0:3], [0:4]}
  middle = f32[2,4] slice(p), slice={[3:5], [0:4]}
  high = f32[3,4] slice(p), slice={[5:8], [0:4]}
  ROOT moved = f32[8,4] concatenate(high, middle, low), dimensions={0} }""",
        ),
        places=IN_PLACE,
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "two arrays side by side are a new array, not an update of the first": Trap(
        text=looping(
            "beside = f32[16,4] fusion(a), kind=kLoop, calls=inner",
            "saved = f32[1,4] dynamic-slice(beside, i, zero), dynamic_slice_sizes={1,4}",
            "new = f32[8,4] dynamic-update-slice(a, saved, i, zero)",
            functions="""inner { p = f32[8,4] parameter(0)
  q = f32[8,4] negate(p)
  ROOT both = f32[16,4] concatenate(p, q), dimensions={0} }""",
        ),
        places=IN_PLACE,
        fools=by_result,
    ),
    "a part taken out of a stack is no copy of the stack": Trap(
        text=looping(
            "part = f32[2,4] fusion(a), kind=kLoop, calls=inner",
            "saved = f32[1,4] dynamic-slice(part, i, zero), dynamic_slice_sizes={1,4}",
            "new = f32[8,4] dynamic-update-slice(a, saved, i, zero)",
            functions="""inner { p = f32[8,4] parameter(0)
  ROOT taken = f32[2,4] slice(p), slice={[2:4], [0:4]} }""",
        ),
        places=IN_PLACE,
        fools=by_result,
    ),
    "a kernel that says that it writes into its operand updates it": Trap(
        text=looping(
            'new = f32[8,4] custom-call(a, row), custom_call_target="kernel", '
            "output_to_operand_aliasing={{}: (0, {})}",
        ),
        places=IN_PLACE,
        fools=by_result,
    ),
    "memory without content is not written": Trap(
        text=looping('new = f32[8,4] custom-call(), custom_call_target="AllocateBuffer"'),
        places=IN_PLACE,
        fools=by_result,
    ),
    "a copy of a tuple repeats where its arrays are": Trap(
        text=looping(
            "pair_of = (f32[8,4], f32[8,4]) tuple(a, a)",
            "again = (f32[8,4], f32[8,4]) copy(pair_of)",
            "new = f32[8,4] dynamic-update-slice(a, row, i, zero)",
        ),
        places=IN_PLACE,
        fools=by_opcode,
    ),
    "a stack padded for other tiles, and cut again, is written twice": Trap(
        text=looping(
            "none = f32[] constant(0)",
            "padded = f32[9,4] pad(a, none), padding=0_1x0_0",
            "cut = f32[8,4] slice(padded), slice={[0:8], [0:4]}",
            "new = f32[8,4] bitcast(cut)",
        ),
        writes=((UPDATE, 144), (COPY, STACK_BYTES)),
        fools=by_root,
    ),
    "an update in place of a computed array copies nothing": Trap(
        text=looping(
            "scaled = f32[8,4] multiply(a, a)",
            "new = f32[8,4] dynamic-update-slice(scaled, row, i, zero)",
        ),
        places={"state/1": (1, 0), "scaled": (1, 0), "new": (1, 0)},
        fools=by_result,
    ),
    "rows that fill new memory make a new array": Trap(
        text=looping(
            'fresh = f32[8,4] custom-call(), custom_call_target="AllocateBuffer"',
            "begun = f32[8,4] dynamic-update-slice(fresh, row, zero, zero)",
            "new = f32[8,4] dynamic-update-slice(begun, row, one, zero)",
        ),
        places={"state/1": (1, 0), "fresh": (2, 0), "begun": (2, 0), "new": (2, 0)},
        fools=by_result,
    ),
    "a carry that is a function of itself is computed": Trap(
        text=looping("new = f32[8,4] tanh(a)"), places=IN_PLACE, fools=by_result
    ),
    "a relu of a carry, a choice by its values, is computed": Trap(
        text=looping(
            "none = f32[8,4] constant({...})",
            "positive = pred[8,4] compare(a, none), direction=GT",
            "new = f32[8,4] select(positive, a, none)",
        ),
        places=IN_PLACE,
        fools=by_select,
    ),
    "one truth that keeps a carry or takes its new values is a computation": Trap(
        text=looping(
            "late = pred[] compare(i, one), direction=GT",
            "scaled = f32[8,4] multiply(a, a)",
            "new = f32[8,4] select(late, scaled, a)",
        ),
        places={"state/1": (1, 0), "scaled": (2, 0), "new": (1, 0)},
        fools=by_select,
    ),
    "one truth between a carry and its update writes the carry": Trap(
        text=looping(
            "late = pred[] compare(i, one), direction=GT",
            "new = f32[8,4] fusion(late, a, row, i), kind=kLoop, calls=inner",
            functions="""inner { t = pred[] parameter(0)
  p = f32[8,4] parameter(1)
  r = f32[1,4] parameter(2)
  j = s32[] parameter(3)
  z = s32[] constant(0)
  updated = f32[8,4] dynamic-update-slice(p, r, j, z)
  ROOT either = f32[8,4] select(t, updated, p) }""",
        ),
        places=IN_PLACE,
        writes=WHOLE_UPDATE,
        fools=by_opcode,
    ),
    "a choice by values between a carry and its update writes the carry": Trap(
        text=looping(
            "new = f32[8,4] fusion(a, row, i), kind=kLoop, calls=inner",
            functions="""inner { p = f32[8,4] parameter(0)
  r = f32[1,4] parameter(1)
  j = s32[] parameter(2)
  z = s32[] constant(0)
  updated = f32[8,4] dynamic-update-slice(p, r, j, z)
  larger = pred[8,4] compare(p, updated), direction=GT
  ROOT either = f32[8,4] select(larger, updated, p) }""",
        ),
        places=IN_PLACE,
        writes=WHOLE_UPDATE,
        fools=by_opcode,
    ),
    "a shift register as a TPU writes it, by the maximum of padded parts, moves every row": Trap(
        text=looping(
            "kept = f32[7,4] slice(a), slice={[0:7], [0:4]}",
            "new = f32[8,4] fusion(kept, row), kind=kLoop, calls=inner",
            functions="""inner { p = f32[7,4] parameter(0)
  r = f32[1,4] parameter(1)
  low = f32[] constant(-inf)
  rest = f32[8,4] pad(p, low), padding=1_0x0_0
  first = f32[8,4] pad(r, low), padding=0_7x0_0
  ROOT moved = f32[8,4] maximum(first, rest) }""",
        ),
        places=APART,
        writes=((UPDATE, STACK_BYTES), (COPY, 112)),
        fools=by_root,
    ),
    "the maximum of two whole arrays is computed": Trap(
        text=looping("b = f32[8,4] tanh(a)", "new = f32[8,4] maximum(a, b)"),
        places={"state/1": (1, 0), "b": (2, 0), "new": (1, 0)},
        fools=by_result,
    ),
    "a kernel that writes into a copy of its operand writes all": Trap(
        text=looping(
            'new = f32[8,4] custom-call(a, row), custom_call_target="kernel", '
            "output_to_operand_aliasing={{}: (0, {})}",
        ),
        places=APART,
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "all rows but one, taken out, are copied": Trap(
        text=looping(
            "most = f32[7,4] slice(a), slice={[1:8], [0:4]}",
            "saved = f32[1,4] dynamic-slice(most, i, zero), dynamic_slice_sizes={1,4}",
            "new = f32[8,4] dynamic-update-slice(a, saved, i, zero)",
        ),
        places=IN_PLACE,
        writes=((COPY, 112),),
        fools=by_opcode,
    ),
}
