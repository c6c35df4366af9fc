"""A training step as PyTorch/XLA writes it: gradients through reduce-scatters, then an update."""

from collections.abc import Iterator
from dataclasses import dataclass

_SUM = "sum { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
_GRADIENTS = ("tanh", "exponential", "negate")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepText:
    """Three parameters f32[4] and a scalar, with ``numbers`` in the order of the program.

    ``callbacks`` is the order in which gradients enter the collectives, ``groups`` tells which are
    reduced together, ``outputs`` is the order of the new parameters. ``rates`` constants hold the
    one learning rate. With ``token``, the scalar is what keeps collectives in order.
    """

    numbers: tuple[int, ...] = (0, 1, 2, 3)
    outputs: tuple[int, ...] = (0, 1, 2)
    callbacks: tuple[int, ...] = (0, 1, 2)
    groups: tuple[tuple[int, ...], ...] = ((0, 1, 2),)
    rates: int = 1
    packed: bool = True
    token: bool = False

    def text(self) -> str:
        lines = [f"p{k} = f32[4] parameter({self.numbers[k]})" for k in range(3)]
        lines.append(f"p3 = f32[] parameter({self.numbers[3]})")
        lines += [f"g{k} = f32[4] {opcode}(p{k})" for k, opcode in enumerate(_GRADIENTS)]
        token = "p3"
        for number, group in enumerate(self.groups):
            lines += self._collective(number, [k for k in self.callbacks if k in group], token)
            token = f"token{number}"
        lines += [f"rate{k} = f32[4] constant({{1,2,3,4}})" for k in range(self.rates)]
        for k in range(3):
            lines.append(f"step{k} = f32[4] multiply(r{k}, rate{k % self.rates})")
            lines.append(f"new{k} = f32[4] subtract(p{k}, step{k})")
        outputs = ", ".join(f"new{k}" for k in self.outputs)
        lines.append(f"ROOT out = (f32[4], f32[4], f32[4]) tuple({outputs})")
        alias = f"{{{self.outputs.index(0)}}}: ({self.numbers[0]}, {{}}, may-alias)"
        body = "\n  ".join(lines)
        return (
            f"HloModule step, input_output_alias={{ {alias} }}\n{_SUM}ENTRY main {{\n  {body}\n}}\n"
        )

    def _collective(self, number: int, members: list[int], token: str) -> Iterator[str]:
        """A reduce-scatter of some gradients, whose results are r0, r1 …"""
        operands = [f"g{k}" for k in members]
        if self.token:
            yield f"spread{number} = f32[4] broadcast({token}), dimensions={{}}"
            yield f"tied{number} = f32[4] add({operands[0]}, spread{number})"
            operands[0] = f"tied{number}"
        many = len(members) > 1
        kind = f"({', '.join(['f32[4]'] * len(members))})" if many else "f32[4]"
        if self.packed and many:
            yield f"packed{number} = {kind} tuple({', '.join(operands)})"
            for place in range(len(members)):
                yield f"u{number}_{place} = f32[4] get-tuple-element(packed{number}), index={place}"
            operands = [f"u{number}_{place}" for place in range(len(members))]
        name = f"all{number}" if many else f"r{members[0]}"
        how = "replica_groups={}, dimensions={0}, to_apply=sum"
        yield f"{name} = {kind} reduce-scatter({', '.join(operands)}), {how}"
        for place, k in enumerate(members if many else ()):
            yield f"r{k} = f32[4] get-tuple-element(all{number}), index={place}"
        if self.token:
            yield f"first{number} = f32[1] slice(r{members[0]}), slice={{[0:1]}}"
            yield f"picked{number} = f32[] reshape(first{number})"
            yield f"token{number} = f32[] multiply({token}, picked{number})"
