"""HLO texts with answers that are known by construction."""

CARRY = "(s32[], f32[8,4], f32[8,4]{1,0:S(5)})"


def counting_loop(
    *, init: str, bound: str, step: str, direction: str, kind: str = "s32", swap: bool = False
) -> str:
    """A loop over one integer; ``bound`` sits in the condition."""
    left, right = ("bound", "i") if swap else ("i", "bound")
    return f"""HloModule counting
condition {{ state = ({kind}[]) parameter(0)
  i = {kind}[] get-tuple-element(state), index=0
  bound = {kind}[] constant({bound})
  ROOT go = pred[] compare({left}, {right}), direction={direction} }}
body {{ state = ({kind}[]) parameter(0)
  i = {kind}[] get-tuple-element(state), index=0
  step = {kind}[] constant({step})
  next = {kind}[] add(i, step)
  ROOT after = ({kind}[]) tuple(next) }}
ENTRY main {{ init = {kind}[] constant({init})
  copied = {kind}[] copy(init)
  start = ({kind}[]) tuple(copied)
  ROOT loop = ({kind}[]) while(start), condition=condition, body=body }}
"""


def entry(*lines: str) -> str:
    """A module that is only an entry computation."""
    return "HloModule entry_only\nENTRY main {\n" + "\n".join(lines) + "\n}\n"


def with_computations(computations: str, *lines: str) -> str:
    """A module of some computations and an entry."""
    return f"HloModule several\n{computations}\nENTRY main {{\n" + "\n".join(lines) + "\n}\n"


def offloading_loop(*, trips: int, peeled: int = 0) -> str:
    """A scan that saves one f32[1,4] row per iteration on the host, ``peeled`` of them outside.

    As a TPU compiler writes it: no known_trip_count, the bound of the whole scan in the
    condition, the peeled iterations skipped by a later start.
    """
    outside = "".join(
        f"""  at{k} = s32[] constant({k})
  host{k + 1} = f32[8,4]{{1,0:S(5)}} dynamic-update-slice(host{k}, row, at{k}, zero)
"""
        for k in range(peeled)
    )
    return f"""HloModule offloading
condition {{ state = {CARRY} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant({trips})
  ROOT go = pred[] compare(i, bound), direction=LT }}
body {{ state = {CARRY} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8,4] get-tuple-element(state), index=1
  saved = f32[8,4]{{1,0:S(5)}} get-tuple-element(state), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  row = f32[1,4] dynamic-slice(x, i, zero), dynamic_slice_sizes={{1,4}}
  update = ((f32[8,4]{{1,0:S(5)}}, f32[1,4], s32[], s32[]), f32[8,4]{{1,0:S(5)}}, u32[]) dynamic-update-slice-start(saved, row, i, zero)
  updated = f32[8,4]{{1,0:S(5)}} dynamic-update-slice-done(update)
  next = s32[] add(i, one)
  ROOT after = {CARRY} tuple(next, x, updated) }}
ENTRY main {{ x = f32[8,4] parameter(0)
  zero = s32[] constant(0)
  first = s32[] constant({peeled})
  row = f32[1,4] dynamic-slice(x, zero, zero), dynamic_slice_sizes={{1,4}}
  host0 = f32[8,4]{{1,0:S(5)}} custom-call(), custom_call_target="AllocateBuffer"
{outside}  start = {CARRY} tuple(first, x, host{peeled})
  ROOT loop = {CARRY} while(start), condition=condition, body=body }}
"""  # noqa: E501 - one HLO instruction per line
