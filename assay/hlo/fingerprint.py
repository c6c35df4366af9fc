"""The fingerprint of a module: equal for two modules that differ only in names and metadata.

Each instruction is hashed from its own bytes, without names, ids, source lines and the compiler's
estimates, and from the digests of its operands, control predecessors and called computations.
Unknown fields stay in the bytes, so an attribute of a later XLA counts too.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

from assay.hlo.instruction import LOCAL_ID
from assay.hlo.module import Computation, Module
from assay.hlo.opcodes import COMMUTATIVE, EFFECTS
from assay.hlo.schema import ANONYMOUS, MalformedModule, Message, decode_all

_ESTIMATES: Final = frozenset(
    {
        "estimated_bundle_count",
        "estimated_cycles",
        "estimated_scoped_vmem_bytes",
        "estimated_vmem_bytes",
        "ml_estimated_microseconds",
        "reification_cost",
    }
)
_MEASURED: Final = frozenset(
    {
        "autotune_workspace_size",
        "block_level_fusion_config",
        "selected_algorithm",
        "triton_gemm_config",
    }
)
_NOISE: Final = _ESTIMATES | _MEASURED
"""Keys of a backend's JSON that change from run to run: costs, and what autotuning settled on."""

_WORDS: Final = (
    "name",
    "metadata",
    "id",
    "operand_ids",
    "control_predecessor_ids",
    "called_computation_ids",
    "all_reduce_id",
    "statistics_viz",
    "original_value",
)


def own_bytes(message: Message, configs: dict[bytes, bytes]) -> bytes:
    """The bytes that describe an instruction, without its name; modifies the message."""
    apart: list[bytes] = []
    if message.channel_id > 0:  # which channel says nothing, that there is one does
        message.channel_id = 1
    config = message.backend_config
    if config:
        if config not in configs:
            configs[config] = _without_noise(config)
        message.backend_config = configs[config]
    if message.HasField("frontend_attributes"):  # a map: its order on the wire is any
        pairs = [(pair.key, pair.value) for pair in message.frontend_attributes.map]
        message.ClearField("frontend_attributes")
        apart.append(repr(sorted(pairs)).encode())
    if message.HasField("sharding"):
        _clear_sharding(message.sharding)
    clear = message.ClearField
    for word in _WORDS:
        clear(word)
    own: bytes = message.SerializeToString()
    return b"".join((own, *apart)) if apart else own


def _clear_sharding(sharding: Message) -> None:
    sharding.ClearField("metadata")
    for element in sharding.tuple_shardings:
        _clear_sharding(element)


def _without_noise(config: bytes) -> bytes:
    """A backend's JSON without the keys of `_NOISE`; other content unchanged."""
    try:
        read = json.loads(config)
    except ValueError:
        return config
    return json.dumps(_pruned(read), sort_keys=True).encode()


def _pruned(read: Any) -> Any:  # whatever JSON holds
    if isinstance(read, dict):
        return {key: _pruned(value) for key, value in read.items() if key not in _NOISE}
    if isinstance(read, list):
        return [_pruned(each) for each in read]
    return read


_SIZE: Final = 16
_COUNTS: Final = Struct("<3I")


def fingerprint(module: Module) -> str:
    """Hex digits that differ between modules that are different programs.

    The digits are equal for modules that differ only in names, ids, channel ids, source lines, dead
    code, the order of computations and the order of instructions that no schedule fixes.
    Instructions of equal digests are only counted: the digits do not show which of two equal
    copies is read. Compare fingerprints of one XLA version only. Another version writes other
    attributes for the same program.

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
            for message in decode_all(ANONYMOUS, computation.encoded):
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
