"""Small random modules, written down in many ways that mean the same."""

from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies

UNARY = ("negate", "exponential", "tanh", "copy")
BINARY = ("add", "subtract", "multiply", "divide")
COMMUTES = {"add", "multiply"}
CALLED = ("called_a", "called_b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An instruction; operands are positions of earlier nodes, or of parameters below those."""

    opcode: str
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Nodes after some parameters; the root is the last node. ``called`` are unary functions."""

    parameters: int
    nodes: tuple[Node, ...]
    called: tuple[str, str]

    def alive(self) -> set[int]:
        """Positions of nodes that the root needs."""
        pending, found = [self.parameters + len(self.nodes) - 1], set[int]()
        while pending:
            position = pending.pop()
            if position >= self.parameters and position not in found:
                found.add(position)
                pending.extend(self.nodes[position - self.parameters].operands)
        return found

    def with_opcode(self, position: int, opcode: str) -> "Program":
        """The program with another operation in one place."""
        nodes = list(self.nodes)
        index = position - self.parameters
        nodes[index] = replace(nodes[index], opcode=opcode)
        return replace(self, nodes=tuple(nodes))


@strategies.composite
def programs(draw: strategies.DrawFn) -> Program:
    parameters = draw(strategies.integers(1, 3))
    nodes = []
    for position in range(parameters, parameters + draw(strategies.integers(1, 12))):
        opcode = draw(strategies.sampled_from((*UNARY, *BINARY, *CALLED)))
        operand = strategies.integers(0, position - 1)
        count = 2 if opcode in BINARY else 1
        nodes.append(Node(opcode=opcode, operands=tuple(draw(operand) for _ in range(count))))
    return Program(
        parameters=parameters,
        nodes=tuple(nodes),
        called=(draw(strategies.sampled_from(UNARY)), draw(strategies.sampled_from(UNARY))),
    )


def as_text(program: Program, seed: int) -> str:
    """HLO text; the seed chooses names, source lines, and every order that means nothing."""
    random = Random(seed)
    functions = [
        f"{name}.{seed} {{ in.{seed} = f32[4] parameter(0)\n"
        f"  ROOT out.{seed} = f32[4] {opcode}(in.{seed}) }}\n"
        for name, opcode in zip(CALLED, program.called, strict=True)
    ]
    random.shuffle(functions)
    lines = [
        f"{_name(seed, position)} = f32[4] parameter({position})"
        for position in range(program.parameters)
    ]
    random.shuffle(lines)
    lines += [_line(program, position, random, seed) for position in _any_order(program, random)]
    body = "\n  ".join(lines)
    return f"HloModule module_{seed}\n{''.join(functions)}ENTRY entry_{seed} {{\n  {body}\n}}\n"


def _any_order(program: Program, random: Random) -> list[int]:
    """The nodes, operands before users, else in any order."""
    done = set(range(program.parameters))
    left = list(range(program.parameters, program.parameters + len(program.nodes)))
    order = []
    while left:
        ready = [
            each
            for each in left
            if done.issuperset(program.nodes[each - program.parameters].operands)
        ]
        position = random.choice(ready)
        left.remove(position)
        done.add(position)
        order.append(position)
    return order


def _line(program: Program, position: int, random: Random, seed: int) -> str:
    node = program.nodes[position - program.parameters]
    operands = [_name(seed, each) for each in node.operands]
    if node.opcode in COMMUTES:
        random.shuffle(operands)
    root = "ROOT " if position == program.parameters + len(program.nodes) - 1 else ""
    opcode = f"call({', '.join(operands)}), to_apply={node.opcode}.{seed}"
    if node.opcode not in CALLED:
        opcode = f"{node.opcode}({', '.join(operands)})"
    source = f'source_file="m{seed}.py" source_line={random.randint(1, 99)}'
    metadata = f'metadata={{op_name="op{seed}" {source}}}'
    return f"{root}{_name(seed, position)} = f32[4] {opcode}, {metadata}"


def _name(seed: int, position: int) -> str:
    return f"value_{seed}_{position * (seed % 7 + 1)}"
