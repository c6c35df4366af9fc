"""How long reading a large module takes: ``python -m tests.hlo.benchmark``.

Prints, for a module of about 38,894 instructions and for one of ten times as many, the time from
bytes to graph, loops and transfers.
"""

import gc
import sys
import time

from assay.hlo.summary import read
from assay.model.module import ModuleSummary

from .conftest import proto_of

INSTRUCTIONS = 38_894
_PER_BLOCK = 200
_FIXED = 29  # instructions of a block besides its chains
_CARRY = "(s32[], f32[8,4], f32[8,4]{1,0:S(5)})"


def _chain(first: str, other: str, k: int, length: int) -> str:
    """Instructions ``first.k.1``, ``first.k.2``, ... that add ``other`` again and again."""
    lines = [f"  {first}.{k}.0 = f32[8,4] negate({other})"]
    lines += [
        f"  {first}.{k}.{n} = f32[8,4] add({first}.{k}.{n - 1}, {other}), "
        'metadata={op_name="jit(f)/add" source_file="m.py" source_line=4}'
        for n in range(1, length)
    ]
    return "\n".join(lines)


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


def large_module(instructions: int) -> bytes:
    """The proto of a module of about so many instructions: loops, fusions and transfers."""
    blocks = instructions // _PER_BLOCK
    entry = ["  x = f32[8,4] parameter(0)", "  zero = s32[] constant(0)"]
    entry.append('  h0 = f32[8,4]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"')
    last = "x, h0"
    for k in range(blocks):
        entry += [
            f"  start{k} = {_CARRY} tuple(zero, {last})",
            f"  loop{k} = {_CARRY} while(start{k}), condition=condition.{k}, body=body.{k}",
            f"  x{k} = f32[8,4] get-tuple-element(loop{k}), index=1",
            f"  g{k} = f32[8,4]{{1,0:S(5)}} get-tuple-element(loop{k}), index=2",
        ]
        last = f"x{k}, g{k}"
    entry.append(f"  ROOT done = (f32[8,4], f32[8,4]{{1,0:S(5)}}) tuple({last})")
    computations = "".join(_block(k, (_PER_BLOCK - _FIXED) // 2) for k in range(blocks))
    return proto_of(
        f"HloModule large\n{computations}\nENTRY main {{\n" + "\n".join(entry) + "\n}\n"
    )


def best_seconds(data: bytes, repeats: int = 3) -> tuple[float, ModuleSummary]:
    """The shortest of some readings, and what was read."""
    shortest = float("inf")
    for _ in range(repeats):
        gc.collect()  # what an earlier reading left is no part of this one
        start = time.perf_counter()
        summary = read(data)
        shortest = min(shortest, time.perf_counter() - start)
    return shortest, summary


def main() -> None:
    """Prints the two times and their ratio."""
    times = []
    for instructions in (INSTRUCTIONS, 10 * INSTRUCTIONS):
        data = large_module(instructions)
        seconds, summary = best_seconds(data)
        times.append(seconds)
        sys.stdout.write(
            f"{summary.instructions:,} instructions, {len(data):,} bytes: {seconds:.3f} s, "
            f"{len(summary.loops):,} loops, {len(summary.transfers):,} transfers, "
            f"{summary.to_host_bytes_per_run} bytes to the host\n"
        )
    sys.stdout.write(f"ten times the instructions: {times[1] / times[0]:.1f} times the time\n")


if __name__ == "__main__":
    main()
