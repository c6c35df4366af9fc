"""The fingerprint of a module: equal for two modules that differ in nothing but their words.

Every instruction is hashed from its own bytes, without names, ids, source lines and what the
compiler only measured or estimated, and from the digests of its operands, of its control
predecessors and of the computations that it calls. What is not known here by name stays in the
bytes, so that an attribute of a later XLA counts too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Final

from assay.hlo.canonical_attributes import COMMUTATIVE, EFFECTS, own_bytes
from assay.hlo.instruction import LOCAL_ID
from assay.hlo.module import Computation, Module
from assay.hlo.schema import MalformedModule, Message, decode_anonymous

_SIZE: Final = 16
_COUNTS: Final = Struct("<3I")


def fingerprint(module: Module) -> str:
    """Hex digits that tell the module from every other that is not the same program.

    Equal for modules that differ only in names, ids, channel ids, source lines, dead code, the
    order of computations and the order of instructions that no schedule fixes. Instructions of
    equal digests are counted, not told apart: which of two equal copies is read does not show.
    Of one XLA only: another version writes other attributes for the same program.

    Raises:
        MalformedModule: a user comes before its operand, or a caller before its callee.
    """
    hashed: dict[int, _Function] = {}
    configs: dict[bytes, bytes] = {}
    for computation in module.computations:
        body = _Body(computation, hashed, configs)
        hashed[computation.id] = body.function()
    aliases = sorted(
        (alias.output_index, alias.parameter_number, alias.parameter_index, alias.must)
        for alias in module.aliases
    )
    interface = repr((aliases, sorted(module.donors))).encode()
    return blake2b(hashed[module.entry.id].digest + interface, digest_size=_SIZE).hexdigest()


@dataclass(frozen=True, slots=True)
class _Function:
    """A computation's digest, and whether running it does more than give its result."""

    digest: bytes
    has_effect: bool


class _Body:
    """The digests of one computation's instructions, operands before their users."""

    def __init__(
        self,
        computation: Computation,
        callees: Mapping[int, _Function],
        configs: dict[bytes, bytes],
    ) -> None:
        self._computation = computation
        self._callees = callees
        self._configs = configs
        self._digests: dict[int, bytes] = {}
        self._inputs: list[tuple[int, ...]] = []
        self._kept: set[int] = {computation.root_id}
        self._has_effect = False
        try:
            for message in decode_anonymous(computation.encoded):
                self._add(message)
        except KeyError as error:
            raise MalformedModule(
                f"got a reference to {error} in computation {computation.name!r} before what it "
                "refers to, wanted operands before users and callees before callers, as XLA "
                "writes them; serialize the module again"
            ) from None

    def function(self) -> _Function:
        """The whole: the root and all that is alive, in the order of the schedule if there is one.

        The number of equal instructions counts: to copy an array twice is not to copy it once.
        """
        alive, schedule = self._alive(), self._computation.order
        if schedule is None:
            body = sorted([self._digests[each] for each in alive])
        else:
            body = [self._digests[each] for each in schedule if each in alive]
        root = self._digests[self._computation.root_id]
        thread = self._computation.execution_thread.encode()
        whole = b"".join((thread, root, *body, b"o" if schedule is None else b"s"))
        return _Function(blake2b(whole, digest_size=_SIZE).digest(), self._has_effect)

    def _add(self, message: Message) -> None:
        digests, opcode = self._digests, message.opcode
        identifier = message.id & LOCAL_ID
        inputs = tuple([each & LOCAL_ID for each in message.operand_ids])
        parts = [digests[each] for each in inputs]
        if opcode in COMMUTATIVE:
            parts.sort()
        controls = called = 0
        if message.control_predecessor_ids:
            before = [each & LOCAL_ID for each in message.control_predecessor_ids]
            parts += sorted([digests[each] for each in before])
            inputs, controls = (*inputs, *before), len(before)
        has_effect = opcode in EFFECTS or message.custom_call_has_side_effect
        if message.called_computation_ids:
            callees = [self._callees[each] for each in message.called_computation_ids]
            parts += [callee.digest for callee in callees]
            called = len(callees)
            has_effect = has_effect or any(callee.has_effect for callee in callees)
        if has_effect:
            self._has_effect = True
            self._kept.add(identifier)
        elif opcode == "parameter":  # part of the signature, whether it is used or not
            self._kept.add(identifier)
        counts = _COUNTS.pack(len(inputs) - controls, controls, called)
        own = own_bytes(message, self._configs)
        digests[identifier] = blake2b(b"".join((own, *parts, counts)), digest_size=_SIZE).digest()
        self._inputs.append(inputs)

    def _alive(self) -> set[int]:
        """What the root, the parameters and the effects need."""
        alive = set(self._kept)
        for identifier, inputs in zip(reversed(self._digests), reversed(self._inputs), strict=True):
            if identifier in alive:
                alive.update(inputs)
        return alive
