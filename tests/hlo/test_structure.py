"""A module that XLA cannot have written is refused: no analysis of it ends, or is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from assay.hlo.schema import INSTRUCTION, MODULE, decode
from assay.hlo.structure import InconsistentModule
from assay.hlo.summary import read, read_foreign

from .conftest import proto_of
from .programs import counting_loop, entry, with_computations

LOOP = proto_of(counting_loop(init="0", bound="10", step="1", direction="LT"))
CALL = proto_of(
    with_computations(
        "inner { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }",
        "x = f32[4] parameter(0)",
        "ROOT y = f32[4] call(x), to_apply=inner",
    )
)
Change = Callable[[Any], None]


def changed(module: bytes, change: Change, opcode: str = "") -> bytes:
    """The module after a change to it, or to its last instruction with that opcode."""
    message = decode(MODULE, module)
    if not opcode:
        change(message)
        return bytes(message.SerializeToString())
    for computation in reversed(message.computations):
        for at, encoded in enumerate(computation.instructions):
            instruction = decode(INSTRUCTION, encoded)
            if instruction.opcode == opcode:
                change(instruction)
                computation.instructions[at] = instruction.SerializeToString()
                return bytes(message.SerializeToString())
    raise AssertionError(opcode)


def reads_itself(instruction: Any) -> None:
    instruction.operand_ids[0] = instruction.id


def calls_its_own(instruction: Any) -> None:
    instruction.called_computation_ids[0] = instruction.id >> 32


CHANGES: dict[str, tuple[bytes, str, Change, str]] = {
    "a cycle of operands": (LOOP, "add", reads_itself, "operand .* does not come before it"),
    "a call of itself": (CALL, "call", calls_its_own, "call of computation .* not come before"),
    "no operand": (LOOP, "add", lambda i: i.ClearField("operand_ids"), "add with 0 operands"),
    "too few arguments": (
        CALL,
        "call",
        lambda i: i.ClearField("operand_ids"),
        "call with 0 operands for 1 parameters",
    ),
    "a loop without a condition": (
        LOOP,
        "while",
        lambda i: i.called_computation_ids.pop(),
        "while of 1 computations",
    ),
    "an index from the end": (
        LOOP,
        "get-tuple-element",
        lambda i: setattr(i, "tuple_index", -1),
        "index -1 into a tuple",
    ),
    "a far parameter": (
        CALL,
        "parameter",
        lambda i: setattr(i, "parameter_number", 7),
        r"parameters numbered \[7\]",
    ),
    "a root that is not there": (
        CALL,
        "",
        lambda m: setattr(m.computations[-1], "root_id", 99),
        "root 99, which is not there",
    ),
    "an instruction twice": (
        CALL,
        "",
        lambda m: m.computations[-1].instructions.append(m.computations[-1].instructions[0]),
        "two instructions of one id",
    ),
    "a computation twice": (
        CALL,
        "",
        lambda m: m.computations.append(m.computations[0]),
        "the id .* of another computation",
    ),
    "a schedule of others": (
        CALL,
        "",
        lambda m: m.schedule.sequences.add(key=m.entry_computation_id).value.instruction_ids.append(
            77
        ),
        "a schedule of instructions that are not there",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_module_that_xla_cannot_have_written_is_refused(name: str) -> None:
    module, opcode, change, words = CHANGES[name]
    read(module)
    with pytest.raises(InconsistentModule, match=words):
        read(changed(module, change, opcode))


@pytest.mark.parametrize("size", [-1, 2**61])
def test_an_array_of_an_impossible_size_is_refused(size: int) -> None:
    def resize(instruction: Any) -> None:
        instruction.shape.dimensions[0] = size

    with pytest.raises(ValueError, match=f"an array of {size} elements"):
        read(changed(CALL, resize, "parameter"))


def test_a_trip_count_that_no_counter_reaches_is_unknown() -> None:
    for number in ("-3", str(2**70), "1e99"):

        def claim(instruction: Any, number: str = number) -> None:
            instruction.backend_config = f'{{"known_trip_count":{{"n":"{number}"}}}}'.encode()

        (loop,) = read(changed(LOOP, claim, "while")).loops
        assert loop.trips == 10  # derived from the loop itself


def test_fusions_that_call_one_another_twice_are_refused() -> None:
    depth = 40
    first = "fused0 { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }\n"
    others = "".join(
        f"fused{k} {{ p = f32[4] parameter(0)\n"
        f" a = f32[4] fusion(p), kind=kLoop, calls=fused{k - 1}\n"
        f" ROOT b = f32[4] fusion(a), kind=kLoop, calls=fused{k - 1} }}\n"
        for k in range(1, depth)
    )
    text = with_computations(
        first + others,
        "x = f32[4] parameter(0)",
        f"ROOT y = f32[4] fusion(x), kind=kLoop, calls=fused{depth - 1}",
    )
    with pytest.raises(InconsistentModule, match="instructions in fusions of fusions"):
        read(proto_of(text))


def test_a_long_chain_takes_time_in_proportion() -> None:
    def seconds(length: int) -> float:
        lines = ["v0 = f32[4] parameter(0)"]
        lines += [f"v{k} = f32[4] bitcast(v{k - 1})" for k in range(1, length)]
        module = proto_of(entry(*lines, f"ROOT y = f32[4] copy(v{length - 1})"))
        start = time.process_time()
        read(module)
        return time.process_time() - start

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.005)


def test_parts_that_do_not_fit_blame_a_foreign_module_alone() -> None:
    def alias(message: Any) -> None:
        entry = message.input_output_alias.entries.add(parameter_number=0)
        entry.output_shape_index.append(3)

    with pytest.raises(InconsistentModule, match=r"contradict one another \(IndexError in assay"):
        read_foreign(changed(CALL, alias))
    with pytest.raises(IndexError):
        read(changed(CALL, alias))
