"""Large modules: loops that offload a row per iteration, among chains of arithmetic."""

from math import ceil
from typing import Final

FEW_LOOPS: Final = 200
"""Instructions per loop, of which 24 are about the loop and its transfer."""

MANY_LOOPS: Final = 40
"""Instructions per loop, so that every second instruction is about a loop or a transfer."""

_FIXED: Final = 24  # instructions of a block, and of the entry for it, besides the chains
_CARRY: Final = "(s32[], f32[8,4], f32[8,4]{1,0:S(5)})"


def large_module(instructions: int, per_loop: int = FEW_LOOPS) -> bytes:
    """The proto of a module of at least, and about, so many instructions."""
    # XLA's own parser writes the proto; the library itself does not need it.
    from jaxlib import _hlo  # type: ignore[attr-defined]  # noqa: TID251

    loops = ceil(instructions / per_loop)
    blocks = "".join(_block(k, (per_loop - _FIXED) // 2) for k in range(loops))
    text = f"HloModule large\n{blocks}\n{_entry(loops)}"
    return bytes(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())


def _entry(loops: int) -> str:
    lines = ["  x = f32[8,4] parameter(0)", "  zero = s32[] constant(0)"]
    lines.append('  h0 = f32[8,4]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"')
    last = "x, h0"
    for k in range(loops):
        lines += [
            f"  start{k} = {_CARRY} tuple(zero, {last})",
            f"  loop{k} = {_CARRY} while(start{k}), condition=condition.{k}, body=body.{k}",
            f"  x{k} = f32[8,4] get-tuple-element(loop{k}), index=1",
            f"  g{k} = f32[8,4]{{1,0:S(5)}} get-tuple-element(loop{k}), index=2",
        ]
        last = f"x{k}, g{k}"
    lines.append(f"  ROOT done = (f32[8,4], f32[8,4]{{1,0:S(5)}}) tuple({last})")
    return "ENTRY main {\n" + "\n".join(lines) + "\n}\n"


def _block(k: int, length: int) -> str:
    """A loop that offloads a row per iteration through a fusion, and two chains of arithmetic."""
    return f"""
update.{k} {{ base = f32[8,4]{{1,0:S(5)}} parameter(0)
  row = f32[1,4] parameter(1)
  at = s32[] parameter(2)
  ROOT new = f32[8,4]{{1,0:S(5)}} dynamic-update-slice(base, row, at, at) }}
fused.{k} {{ y = f32[8,4] parameter(0)
{_chain("f", "y", k, length)}
  ROOT sum.{k} = f32[8,4] tanh(f.{k}.{length - 1}) }}
condition.{k} {{ state = {_CARRY} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant(8)
  ROOT go = pred[] compare(i, bound), direction=LT }}
body.{k} {{ state.{k} = {_CARRY} parameter(0)
  i.{k} = s32[] get-tuple-element(state.{k}), index=0
  x.{k} = f32[8,4] get-tuple-element(state.{k}), index=1
  saved.{k} = f32[8,4]{{1,0:S(5)}} get-tuple-element(state.{k}), index=2
  one.{k} = s32[] constant(1)
  row.{k} = f32[1,4] dynamic-slice(x.{k}, i.{k}, one.{k}), dynamic_slice_sizes={{1,4}}
  new.{k} = f32[8,4]{{1,0:S(5)}} fusion(saved.{k}, row.{k}, i.{k}), kind=kLoop, calls=update.{k}
{_chain("c", f"x.{k}", k, length)}
  z.{k} = f32[8,4] fusion(c.{k}.{length - 1}), kind=kLoop, calls=fused.{k}
  next.{k} = s32[] add(i.{k}, one.{k})
  ROOT after.{k} = {_CARRY} tuple(next.{k}, z.{k}, new.{k}) }}
"""


def _chain(first: str, other: str, k: int, length: int) -> str:
    """Instructions ``first.k.0``, ``first.k.1``, ... that add ``other`` again and again."""
    lines = [f"  {first}.{k}.0 = f32[8,4] negate({other})"]
    lines += [
        f"  {first}.{k}.{n} = f32[8,4] add({first}.{k}.{n - 1}, {other}), "
        'metadata={op_name="jit(f)/add" source_file="m.py" source_line=4}'
        for n in range(1, length)
    ]
    return "\n".join(lines)
