"""What became of donated arguments; the alias table alone would call every one of them honoured."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from assay.frameworks.installed import framework
from assay.hlo.module import Module
from assay.hlo.schema import split
from assay.hlo.summary import read
from assay.model.summary import Donation
from assay.model.target import TargetName
from assay.model.workload import Program
from assay.targets import known, prepare, resolve

from .assigned import Places, assigned
from .compilers import installed
from .conftest import proto_of

ALIAS = "input_output_alias={ {}: (0, {}, may-alias) }"


def giving(*lines: str, header: str = ALIAS, more: str = "") -> str:
    """A program that gives away its first argument."""
    text = "\n  ".join(lines)
    return f"""HloModule giving, {header}
{more}
ENTRY main {{ x = f32[8,8] parameter(0), metadata={{op_name="state['w']"}}
  y = f32[8,8] parameter(1)
  {text} }}
"""


def donation(text: str, places: Places | None = None) -> Donation:
    (found,) = assigned(text, places).summary().donations
    return found


def is_in_alias_table(text: str) -> bool:
    """The simple detector: whatever the module lists as an alias is honoured."""
    return bool(Module.from_proto(proto_of(text)).aliases)


def is_overcautious_about(text: str) -> bool:
    """Another: whatever moves data in the entry breaks the donation."""
    entry = Module.from_proto(proto_of(text)).entry
    return bool(entry.of(frozenset({"copy", "copy-start", "fusion"})))


def test_an_argument_that_is_overwritten_is_honoured() -> None:
    found = donation(giving("ROOT new = f32[8,8] add(x, y)"), {"x": (1, 0), "new": (1, 0)})
    assert found.honoured
    assert (found.argument, found.parameter_number, found.output_index) == ("state['w']", 0, ())
    assert not found.must


def test_a_must_alias_is_told() -> None:
    text = giving("ROOT new = f32[8,8] add(x, y)", header=ALIAS.replace("may", "must"))
    assert donation(text).must


def test_a_copy_that_keeps_the_old_value_breaks_it() -> None:
    text = giving(
        "old = f32[8,8] copy(x)",
        "changed = f32[8,8] add(x, y)",
        'ROOT new = f32[8,8] dot(changed, old), lhs_contracting_dims={1}, '
        "rhs_contracting_dims={0}",
    )  # fmt: skip
    found = donation(text, {"x": (1, 0), "changed": (1, 0)})
    assert (found.honoured, found.copied_by) == (False, ("old",))
    assert is_in_alias_table(text)


def test_a_copy_into_its_buffer_at_the_end_breaks_it() -> None:
    text = giving(
        "made = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        'ROOT new = f32[8,8] copy(made), metadata={op_name="n" source_file="f.py" source_line=7}',
    )
    found = donation(text, {"x": (1, 0), "new": (1, 0)})
    assert (found.honoured, found.copied_by) == (False, ("new at f.py:7",))
    assert is_in_alias_table(text)
    assert donation(text, {"x": (1, 0), "made": (1, 0), "new": (1, 0)}).honoured


def test_an_update_out_of_place_breaks_it() -> None:
    text = giving(
        "zero = s32[] constant(0)",
        "row = f32[1,8] slice(y), slice={[0:1], [0:8]}",
        "ROOT new = f32[8,8] dynamic-update-slice(x, row, zero, zero)",
    )
    assert donation(text, {"x": (1, 0), "new": (1, 0)}).honoured
    assert donation(text, {"x": (1, 0), "new": (2, 0)}).copied_by == ("new",)


def test_an_argument_that_no_output_took_is_not_honoured() -> None:
    text = giving("ROOT new = f32[] constant(0)", header="buffer_donor={ (0, {}) }")
    found = donation(text)
    assert (found.honoured, found.output_index, found.copied_by) == (False, None, ())


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (
            (
                "turned = f32[8,8]{0,1} copy(x)",
                "z = f32[8,8] dot(turned, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                "ROOT new = f32[8,8] add(x, z)",
            ),
            "",
        ),
        (
            (
                "turned = f32[8,8] fusion(x), kind=kLoop, calls=turn",
                "z = f32[8,8] dot(turned, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                "ROOT new = f32[8,8] add(x, z)",
            ),
            """turn { p = f32[8,8] parameter(0)
  ROOT t = f32[8,8] transpose(p), dimensions={1,0} }""",
        ),
        (
            ("ROOT new = f32[8,8] fusion(x, y), kind=kLoop, calls=choose",),
            """choose { p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  c = pred[8,8] compare(p, q), direction=GT
  ROOT s = f32[8,8] select(c, p, q) }""",
        ),
        (
            (
                "near = (f32[8,8]{1,0:S(1)}, f32[8,8], u32[]) copy-start(x)",
                "on_chip = f32[8,8]{1,0:S(1)} copy-done(near)",
                "ROOT new = f32[8,8] add(on_chip, y)",
            ),
            "",
        ),
        (
            (
                "on_chip = f32[8,8]{1,0:S(1)} add(x, y)",
                "far = (f32[8,8], f32[8,8]{1,0:S(1)}, u32[]) copy-start(on_chip)",
                "ROOT new = f32[8,8] copy-done(far)",
            ),
            "",
        ),
    ],
    ids=["layout", "transpose", "select in place", "into the chip", "out of the chip"],
)
def test_what_reads_or_writes_it_in_passing_breaks_nothing(
    lines: tuple[str, ...], more: str
) -> None:
    text = giving(*lines, more=more)
    out = "far/0" if "far" in text else "new"
    assert donation(text, {"x": (1, 0), out: (1, 0)}).honoured
    assert is_overcautious_about(text)


def test_a_copy_of_another_argument_breaks_nothing() -> None:
    text = giving("old = f32[8,8] copy(y)", "ROOT new = f32[8,8] add(x, old)")
    assert donation(text, {"x": (1, 0), "new": (1, 0)}).honoured


def test_an_array_in_a_tuple_is_told_from_its_neighbours() -> None:
    text = """HloModule tuples, input_output_alias={ {0}: (0, {0}), {1}: (0, {1}) }
ENTRY main { state = (f32[8,8], f32[8,8]) parameter(0)
  a = f32[8,8] get-tuple-element(state), index=0
  b = f32[8,8] get-tuple-element(state), index=1
  old = f32[8,8] copy(b)
  new_a = f32[8,8] add(a, old)
  new_b = f32[8,8] add(b, b)
  ROOT out = (f32[8,8], f32[8,8]) tuple(new_a, new_b) }
"""
    places: Places = {"state/0": (1, 0), "new_a": (1, 0), "state/1": (2, 0), "new_b": (2, 0)}
    found = {each.parameter_index: each for each in assigned(text, places).summary().donations}
    assert found[0,].honoured
    assert found[1,].copied_by == ("old",)


def test_without_a_buffer_assignment_a_copy_of_the_argument_still_shows() -> None:
    text = giving("old = f32[8,8] copy(x)", "ROOT new = f32[8,8] add(x, old)")
    (found,) = read(proto_of(text)).donations
    assert found.copied_by == ("old",)


def test_without_a_buffer_assignment_nothing_says_that_it_is_honoured() -> None:
    (found,) = read(proto_of(giving("ROOT new = f32[8,8] add(x, x)"))).donations
    assert found.output_index is not None
    assert found.honoured is None


@pytest.mark.parametrize("target", installed("cpu:8", "gpu-h100:8"))
def test_a_compiled_program_lists_the_argument_that_no_output_took(target: str) -> None:
    """Sharded in, replicated out: XLA is asked for the donation, and has no output that fits."""
    prepare(map(TargetName.parse, known()))
    devices = resolve(target).devices()
    mesh = jax.sharding.Mesh(np.array(devices), ("rows",))
    x, y = (
        jax.ShapeDtypeStruct(
            (16, 16),
            "float32",
            sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)),
        )
        for axes in (("rows",), ())
    )
    program = Program(function=lambda x, y: y * 2 + x.sum(), arguments=(x, y), donate_argnums=(0,))
    tools = framework("jax", resolve(target))
    lowered = tools.lower(tools.trace(program))
    assert lowered.as_text().count("jax.buffer_donor") == 1
    compiled = tools.compile(lowered)
    (found,) = read(*split(compiled.hlo_proto())).donations
    assert (found.argument, found.output_index, found.honoured) == ("x", None, False)
