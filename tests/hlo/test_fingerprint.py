"""The fingerprint: blind to words and to orders that mean nothing, and to nothing else."""

import tracemalloc
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.hlo.fingerprint import fingerprint
from assay.hlo.module import Module
from assay.hlo.schema import INSTRUCTION, MalformedModule, decode, decode_module
from benchmarks.large_module import large_module

from .conftest import proto_of
from .programs import entry, offloading_loop
from .random_modules import BINARY, UNARY, Program, as_text, programs

SEEDS = st.integers(0, 999)


def of(text: str) -> str:
    return fingerprint(Module.from_proto(proto_of(text)))


@settings(max_examples=80)
@given(program=programs(), seeds=st.tuples(SEEDS, SEEDS))
def test_names_lines_and_orders_that_mean_nothing_change_nothing(
    program: Program, seeds: tuple[int, int]
) -> None:
    one, other = (as_text(program, seed) for seed in seeds)
    assert of(one) == of(other)


@settings(max_examples=80)
@given(program=programs(), seed=SEEDS, data=st.data())
def test_another_operation_in_any_place_that_is_alive_is_seen(
    program: Program, seed: int, data: st.DataObject
) -> None:
    position = data.draw(st.sampled_from(sorted(program.alive())))
    opcode = program.nodes[position - program.parameters].opcode
    others = BINARY if opcode in BINARY else UNARY
    changed = program.with_opcode(
        position, data.draw(st.sampled_from([each for each in others if each != opcode]))
    )
    assert of(as_text(program, seed)) != of(as_text(changed, seed))


def test_a_hash_of_the_text_would_see_the_names() -> None:
    program = entry("x = f32[4] parameter(0)", "ROOT y = f32[4] negate(x)")
    renamed = program.replace("y =", "z =")
    assert sha256(program.encode()).hexdigest() != sha256(renamed.encode()).hexdigest()
    assert sha256(proto_of(program)).hexdigest() != sha256(proto_of(renamed)).hexdigest()
    assert of(program) == of(renamed)


RICH = """HloModule rich, input_output_alias={ {0}: (0, {}, may-alias) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
fused { p = f32[8,4] parameter(0)
  ROOT q = f32[8,4] tanh(p) }
ENTRY main {
  x = f32[8,4] parameter(0)
  y = f32[4,8] parameter(1)
  z = f32[4,8] parameter(2)
  zero = f32[] constant(0)
  many = f32[3] constant({1,2,3})
  d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[8,8] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[8,8] subtract(d, e)
  t = f32[8,8]{1,0} transpose(s), dimensions={1,0}
  g = pred[8,8] compare(s, t), direction=LT
  w = f32[8,8] select(g, s, t)
  r = f32[8] reduce(w, zero), dimensions={1}, to_apply=sum
  l = f32[4] slice(r), slice={[0:8:2]}
  a = f32[8] all-reduce(r), replica_groups={{0,1},{2,3}}, channel_id=7, to_apply=sum
  c = f32[8] custom-call(a), custom_call_target="first", backend_config="{\\"k\\": 1, \\"l\\": 2, \\"estimated_cycles\\": 5}", frontend_attributes={one="1",two="2"}
  f = f32[8,4] fusion(x), kind=kLoop, calls=fused
  h = f32[8,4]{1,0:S(5)} copy(f)
  n = f32[8,4]{1,0} copy(f)
  ROOT out = (f32[8,4], f32[8,4]{1,0:S(5)}, f32[8,4], f32[4], f32[8], f32[3]) tuple(f, h, n, l, c, many)
}
"""  # noqa: E501 - one HLO instruction per line

SEEN = {
    "opcode": ("tanh(p)", "exponential(p)"),
    "element type of a constant": ("f32[3] constant({1,2,3})", "f32[3] constant({1,2,4})"),
    "operand order": ("subtract(d, e)", "subtract(e, d)"),
    "which operand": ("dot(x, z)", "dot(x, y)"),
    "dimensions": ("s), dimensions={1,0}", "s), dimensions={0,1}"),
    "contracting dimensions": (
        "y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "y), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
    ),
    "slice": ("slice={[0:8:2]}", "slice={[1:8:2]}"),
    "direction": ("direction=LT", "direction=GT"),
    "replica groups": ("{{0,1},{2,3}}", "{{0,2},{1,3}}"),
    "no channel": ("channel_id=7, ", ""),
    "custom-call target": ('target="first"', 'target="second"'),
    "backend's own words": ('{\\"k\\": 1', '{\\"k\\": 2'),
    "frontend attribute": ('two="2"', 'two="3"'),
    "called computation": ("f32[] add(a, b)", "f32[] maximum(a, b)"),
    "fusion kind": ("kind=kLoop", "kind=kInput"),
    "memory space": ("S(5)", "S(1)"),
    "layout": ("n = f32[8,4]{1,0}", "n = f32[8,4]{0,1}"),
    "elements of the root": ("tuple(f, h, n,", "tuple(n, h, f,"),
    "alias": ("{0}: (0, {}", "{2}: (0, {}"),
    "kind of alias": ("may-alias", "must-alias"),
    "parameter number": (
        "y = f32[4,8] parameter(1)\n  z = f32[4,8] parameter(2)",
        "y = f32[4,8] parameter(2)\n  z = f32[4,8] parameter(1)",
    ),
}
NOT_SEEN = {
    "channel": ("channel_id=7", "channel_id=9"),
    "the compiler's estimate": ('\\"estimated_cycles\\": 5', '\\"estimated_cycles\\": 6'),
    "order of the backend's words": ('\\"k\\": 1, \\"l\\": 2', '\\"l\\": 2, \\"k\\": 1'),
    "operands of what commutes": ("f32[] add(a, b)", "f32[] add(b, a)"),
    "dead code": ("  l = f32[4]", "  dead = f32[8] negate(r)\n  l = f32[4]"),
    "name of the module": ("HloModule rich", "HloModule poor"),
}


def replaced(old: str, new: str) -> str:
    assert old in RICH
    changed = RICH.replace(old, new)
    assert changed != RICH
    return changed


@pytest.mark.parametrize(("old", "new"), SEEN.values(), ids=SEEN)
def test_what_changes_the_program_is_seen(old: str, new: str) -> None:
    assert of(replaced(old, new)) != of(RICH)


@pytest.mark.parametrize(("old", "new"), NOT_SEEN.values(), ids=NOT_SEEN)
def test_what_says_nothing_is_not_seen(old: str, new: str) -> None:
    assert of(replaced(old, new)) == of(RICH)


def test_an_attribute_that_nobody_has_heard_of_is_seen() -> None:
    message = decode_module(proto_of(RICH))
    (last,) = (each for each in message.computations if each.id == message.entry_computation_id)
    before = fingerprint(Module(decode_module(message.SerializeToString())))
    last.instructions[-1] += b"\xb0\x09\x01"  # field 150, a varint
    assert fingerprint(Module(decode_module(message.SerializeToString()))) != before


def test_the_order_of_a_map_on_the_wire_is_not_seen() -> None:
    message = decode_module(proto_of(RICH))
    before = fingerprint(Module(decode_module(message.SerializeToString())))
    for computation in message.computations:
        for position, encoded in enumerate(computation.instructions):
            instruction = decode(INSTRUCTION, encoded)
            pairs = instruction.frontend_attributes.map
            if len(pairs) == 2:
                pairs.reverse()
                computation.instructions[position] = instruction.SerializeToString()
    turned = message.SerializeToString()
    assert turned != decode_module(proto_of(RICH)).SerializeToString()
    assert fingerprint(Module(decode_module(turned))) == before


def test_an_argument_that_nobody_reads_is_seen() -> None:
    lines = ("x = f32[4] parameter(0)", "z = f32[4] parameter(1)", "ROOT y = f32[4] negate(x)")
    assert of(entry(*lines)) != of(entry(lines[0], lines[2]))


def test_two_copies_are_not_one() -> None:
    once = entry(
        "x = f32[4] parameter(0)",
        "a = f32[4] copy(x)",
        "ROOT t = (f32[4], f32[4]) tuple(a, a)",
    )
    twice = entry(
        "x = f32[4] parameter(0)",
        "a = f32[4] copy(x)",
        "b = f32[4] copy(x)",
        "ROOT t = (f32[4], f32[4]) tuple(a, b)",
    )
    assert of(once) != of(twice)


UNUSED = 'u = f32[4] custom-call(x), custom_call_target="print"{}'


def test_an_unused_result_counts_only_if_making_it_has_an_effect() -> None:
    lines = ["x = f32[4] parameter(0)", "ROOT y = f32[4] negate(x)"]
    without = of(entry(*lines))
    dead = of(entry(lines[0], UNUSED.format(""), lines[1]))
    effect = of(entry(lines[0], UNUSED.format(", custom_call_has_side_effect=true"), lines[1]))
    assert dead == without
    assert effect != without


CALLS_AN_EFFECT = """HloModule calls
prints {{ x = f32[4] parameter(0)
  u = f32[4] custom-call(x), custom_call_target="print"{effect}
  ROOT y = f32[4] negate(x) }}
ENTRY main {{ x = f32[4] parameter(0)
  {call}ROOT z = f32[4] tanh(x) }}
"""
CALL = "dead = f32[4] call(x), to_apply=prints\n  "


def test_an_effect_inside_of_what_is_called_counts() -> None:
    effect = ", custom_call_has_side_effect=true"
    with_call = of(CALLS_AN_EFFECT.format(effect=effect, call=CALL))
    without_call = of(CALLS_AN_EFFECT.format(effect=effect, call=""))
    assert with_call != without_call
    dead_call = of(CALLS_AN_EFFECT.format(effect="", call=CALL))
    assert dead_call == of(CALLS_AN_EFFECT.format(effect="", call=""))


def test_a_control_dependency_is_seen() -> None:
    lines = (
        "x = f32[4] parameter(0)",
        "a = f32[4] negate(x)",
        "b = f32[4] tanh(x)",
        "ROOT t = (f32[4], f32[4]) tuple(a, b)",
    )
    free = entry(*lines)
    after_a = free.replace("tanh(x)", "tanh(x), control-predecessors={a}")
    after_x = free.replace("tanh(x)", "tanh(x), control-predecessors={x}")
    assert len({of(each) for each in (free, after_a, after_x)}) == 3


ORDERED = """HloModule ordered{scheduled}
ENTRY main {{
  x = f32[4] parameter(0)
  {lines}
  ROOT t = (f32[4], f32[4]) tuple(a, b)
}}
"""
LINES = ("a = f32[4] negate(x)", "b = f32[4] tanh(x)")


def test_order_counts_where_a_schedule_fixes_it() -> None:
    def ordered(scheduled: str, lines: tuple[str, ...]) -> str:
        return of(ORDERED.format(scheduled=scheduled, lines="\n  ".join(lines)))

    schedule = ", is_scheduled=true"
    assert ordered("", LINES) == ordered("", LINES[::-1])
    assert ordered(schedule, LINES) != ordered(schedule, LINES[::-1])
    assert ordered(schedule, LINES) == ordered(schedule, LINES)


def test_another_number_of_trips_is_seen() -> None:
    assert of(offloading_loop(trips=8)) != of(offloading_loop(trips=9))


def test_a_user_before_its_operand_is_no_module() -> None:
    message = decode_module(proto_of(entry("x = f32[4] parameter(0)", "ROOT y = f32[4] negate(x)")))
    backwards = list(reversed(message.computations[0].instructions))
    del message.computations[0].instructions[:]
    message.computations[0].instructions.extend(backwards)
    with pytest.raises(MalformedModule, match="operands before users"):
        fingerprint(Module(decode_module(message.SerializeToString())))


def chain(length: int) -> str:
    return entry(
        "v0 = f32[4] parameter(0)",
        *(f"v{k} = f32[4] negate(v{k - 1})" for k in range(1, length)),
        f"ROOT last = f32[4] tanh(v{length - 1})",
    )


def test_a_chain_of_twenty_thousand_has_a_fingerprint() -> None:
    assert of(chain(20_000)) != of(chain(19_999))


def test_a_fingerprint_takes_less_than_a_kilobyte_per_instruction() -> None:
    module = Module.from_proto(large_module(20_000))
    instructions = sum(map(len, module.computations))
    tracemalloc.start()
    try:
        fingerprint(module)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000 * instructions
