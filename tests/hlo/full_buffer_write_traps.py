"""Loops in which it is not plain which instruction writes an array; each fools a detector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assay.hlo.assignment import BufferAssignment
from assay.hlo.module import Module
from assay.model.summary import Content

from .assigned import Places
from .simple_detectors import (
    by_allocation,
    by_name,
    by_opcode,
    by_result,
    by_root,
)

STACK_BYTES = 128
IN_PLACE: Places = {"state/1": (1, 0), "new": (1, 0)}
APART: Places = {"state/1": (1, 0), "new": (2, 0)}


def looping(
    *lines: str,
    functions: str = "",
    stack: str = "f32[8,4]",
    hands_on: str = "new",
    trips: str = "6",
) -> str:
    """A loop that carries one stack, `a`, and hands on `new`."""
    carry = f"(s32[], {stack})"
    text = "\n  ".join(lines)
    return f"""HloModule looping
{functions}
condition {{ going = {carry} parameter(0)
  k = s32[] get-tuple-element(going), index=0
  bound = s32[] constant({trips})
  ROOT go = pred[] compare(k, bound), direction=LT }}
body {{ state = {carry} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  a = {stack} get-tuple-element(state), index=1
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  row = f32[1,4] constant({{{{1,2,3,4}}}})
  {text}
  ROOT after = {carry} tuple(next, {hands_on}) }}
ENTRY main {{ x = {stack} parameter(0)
  begin = s32[] constant(0)
  start = {carry} tuple(begin, x)
  loop = {carry} while(start), condition=condition, body=body
  ROOT out = {stack} get-tuple-element(loop), index=1 }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A loop, what it writes whole, and a detector that is wrong about it."""

    text: str
    places: Places = field(default_factory=dict)
    writes: tuple[tuple[Content, int], ...] = ()
    fools: Callable[[Module, BufferAssignment], int]


COPY, UPDATE = Content.COPY, Content.UPDATE
WHOLE_COPY, WHOLE_UPDATE = ((COPY, STACK_BYTES),), ((UPDATE, STACK_BYTES),)

MASKED = """inner { p = f32[8,4] parameter(0)
  r = f32[1,4] parameter(1)
  j = s32[] parameter(2)
  rows = s32[8,4] iota(), iota_dimension=0
  js = s32[8,4] broadcast(j), dimensions={}
  mask = pred[8,4] compare(rows, js), direction=EQ
  flat = f32[4] reshape(r)
  rs = f32[8,4] broadcast(flat), dimensions={1}
  ROOT chosen = f32[8,4] select(mask, rs, p) }"""
"""A row put into a stack by a mask."""

UPDATED = "new = f32[8,4] dynamic-update-slice(a, row, i, zero)"
TWO_RESULTS = """two { p = f32[8,4] parameter(0)
  r = f32[1,4] parameter(1)
  j = s32[] parameter(2)
  z = s32[] constant(0)
  updated = f32[8,4] dynamic-update-slice(p, r, j, z)
  squared = f32[8,4] multiply(p, p)
  ROOT both = (f32[8,4], f32[8,4]) tuple(updated, squared) }"""
ADD = "sum { l = f32[] parameter(0)\n r = f32[] parameter(1)\n ROOT s = f32[] add(l, r) }"
PAIR = """pair { l = f32[] parameter(0)
  k = f32[] parameter(1)
  r = f32[] parameter(2)
  t = f32[] parameter(3)
  ROOT s = (f32[], f32[]) tuple(r, t) }"""
SCATTERS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}"
AT = "at = s32[1,1] reshape(i)"
SCATTER = f"scatter(a, at, row), {SCATTERS}, index_vector_dim=1, to_apply=sum"
FUSED_SCATTER = f"""{ADD}
scattering {{ p = f32[8,4] parameter(0)
  q = s32[1,1] parameter(1)
  v = f32[1,4] parameter(2)
  ROOT d = f32[8,4] scatter(p, q, v), {SCATTERS}, index_vector_dim=1, to_apply=sum }}"""
FUSED_VARIADIC = f"""{PAIR}
scattering {{ p = f32[8,4] parameter(0)
  p2 = f32[8,4] parameter(1)
  q = s32[1,1] parameter(2)
  v = f32[1,4] parameter(3)
  ROOT d = (f32[8,4], f32[8,4]) scatter(p, p2, q, v, v), {SCATTERS}, index_vector_dim=1,
    to_apply=pair }}"""
COPYING = """copying { p = f32[8,4] parameter(0)
  ROOT branch_copy = f32[8,4] copy(p) }
"""
CHOSEN = (
    COPYING
    + """keeping { p = f32[8,4] parameter(0)
  ROOT same = f32[8,4] bitcast(p) }"""
)


TRAPS: Mapping[str, Trap] = {
    "an asynchronous update repeats its base in its result": Trap(
        text=looping(
            "begun = ((f32[8,4], f32[1,4], s32[], s32[]), f32[8,4], u32[]) "
            "dynamic-update-slice-start(a, row, i, zero)",
            "new = f32[8,4] dynamic-update-slice-done(begun)",
        ),
        places={"state/1": (1, 0), "begun/1": (1, 0)},
        fools=by_result,
    ),
    "an asynchronous update may be known by the operation in it alone": Trap(
        text=looping(
            "begun = ((f32[8,4], f32[1,4], s32[], s32[]), f32[8,4], u32[]) "
            "async-start(a, row, i, zero), calls=wrapped",
            "new = f32[8,4] async-done(begun)",
            functions="""wrapped { p = f32[8,4] parameter(0)
  r = f32[1,4] parameter(1)
  j = s32[] parameter(2)
  z = s32[] parameter(3)
  ROOT inside = f32[8,4] dynamic-update-slice(p, r, j, z) }""",
        ),
        places={"state/1": (1, 0), "begun/1": None, "inside": (1, 0)},
        fools=by_result,
    ),
    "a copy-start repeats its source in its result": Trap(
        text=looping(
            "begun = (f32[8,4], f32[8,4], u32[]) copy-start(a)", "new = f32[8,4] copy-done(begun)"
        ),
        places={"state/1": (1, 0), "begun/0": (2, 0)},
        writes=WHOLE_COPY,
        fools=by_result,
    ),
    "a fusion of several results updates one in place": Trap(
        text=looping(
            "both_of = (f32[8,4], f32[8,4]) fusion(a, row, i), kind=kLoop, calls=two",
            "new = f32[8,4] get-tuple-element(both_of), index=0",
            functions=TWO_RESULTS,
        ),
        places={"state/1": (1, 0), "both_of/0": (1, 0)},
        fools=by_result,
    ),
    "a fusion of several results updates one out of place": Trap(
        text=looping(
            "both_of = (f32[8,4], f32[8,4]) fusion(a, row, i), kind=kLoop, calls=two",
            "new = f32[8,4] get-tuple-element(both_of), index=0",
            functions=TWO_RESULTS,
        ),
        places={"state/1": (1, 0), "both_of/0": (2, 0)},
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "a scatter in place writes rows": Trap(
        text=looping(AT, f"new = f32[8,4] {SCATTER}", functions=ADD),
        places=IN_PLACE,
        fools=by_result,
    ),
    "a scatter out of place writes all": Trap(
        text=looping(AT, f"new = f32[8,4] {SCATTER}", functions=ADD),
        places=APART,
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "a fused scatter in place writes rows": Trap(
        text=looping(
            AT,
            "new = f32[8,4] fusion(a, at, row), kind=kInput, calls=scattering",
            functions=FUSED_SCATTER,
        ),
        places=IN_PLACE,
        fools=by_result,
    ),
    "a variadic scatter has a base for each result": Trap(
        text=looping(
            AT,
            "b = f32[8,4] constant({...})",
            "many = (f32[8,4], f32[8,4]) scatter(b, a, at, row, row), "
            f"{SCATTERS}, index_vector_dim=1, to_apply=pair",
            "new = f32[8,4] get-tuple-element(many), index=1",
            functions=PAIR,
        ),
        places={"state/1": (1, 0), "b": (2, 0), "many/0": (2, 0), "many/1": (1, 0)},
        fools=by_result,
    ),
    "a fused variadic scatter may update one base in place and not the other": Trap(
        text=looping(
            AT,
            "b = f32[8,4] constant({...})",
            "many = (f32[8,4], f32[8,4]) fusion(b, a, at, row), kind=kInput, calls=scattering",
            "new = f32[8,4] get-tuple-element(many), index=1",
            functions=FUSED_VARIADIC,
        ),
        places={"state/1": (1, 0), "b": (2, 0), "many/0": (3, 0), "many/1": (1, 0)},
        writes=WHOLE_UPDATE,
        fools=by_result,
    ),
    "a branch by truth copies": Trap(
        text=looping(
            "late = pred[] compare(i, one), direction=GT",
            "new = f32[8,4] conditional(late, a, a), "
            "true_computation=copying, false_computation=keeping",
            functions=CHOSEN,
        ),
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a branch by index copies": Trap(
        text=looping(
            "new = f32[8,4] conditional(i, a, a), branch_computations={keeping, copying}",
            functions=CHOSEN,
        ),
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a called computation copies": Trap(
        text=looping("new = f32[8,4] call(a), to_apply=copying", functions=COPYING),
        writes=WHOLE_COPY,
        fools=by_opcode,
    ),
    "a copy of a buffer onto itself copies nothing": Trap(
        text=looping("new = f32[8,4] copy(a)"), places=IN_PLACE, fools=by_opcode
    ),
    "slices at other offsets of one allocation are apart": Trap(
        text=looping("new = f32[8,4] copy(a)"),
        places={"state/1": (1, 0), "new": (1, 128)},
        writes=WHOLE_COPY,
        fools=by_allocation,
    ),
    "an update out of place hides a copy": Trap(
        text=looping(UPDATED), places=APART, writes=WHOLE_UPDATE, fools=by_root
    ),
    "a fused update out of place hides a copy": Trap(
        text=looping(
            "new = f32[8,4] fusion(a, row, i), kind=kLoop, calls=only",
            functions=TWO_RESULTS.replace("two {", "only {")
            .replace("  updated =", "  ROOT updated =")
            .split("  squared")[0]
            + "}",
        ),
        places=APART,
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "an update of what the assignment names only outside of the loop hides a copy": Trap(
        text=looping(UPDATED),
        places={"x": (1, 0), "state/1": None, "new": (2, 0)},
        writes=WHOLE_UPDATE,
        fools=by_root,
    ),
    "a sum called copy.1 and a copy called dynamic-update-slice.3": Trap(
        text=looping(
            "copy.1 = f32[8,4] add(a, a)",
            "copy.2 = f32[1,4] dynamic-slice(copy.1, i, zero), dynamic_slice_sizes={1,4}",
            "copy.5 = f32[8,4] add(copy.1, copy.1)",
            "b = f32[8,4] dynamic-update-slice(a, copy.2, i, zero)",
            "new = f32[8,4] bitcast(dynamic-update-slice.3)",
            "dynamic-update-slice.3 = f32[8,4] copy(b)",
        ).replace(
            "new = f32[8,4] bitcast(dynamic-update-slice.3)\n  "
            "dynamic-update-slice.3 = f32[8,4] copy(b)",
            "dynamic-update-slice.3 = f32[8,4] copy(b)\n  "
            "new = f32[8,4] bitcast(dynamic-update-slice.3)",
        ),
        places={"state/1": (1, 0), "b": (1, 0)},
        writes=WHOLE_COPY,
        fools=by_name,
    ),
}
