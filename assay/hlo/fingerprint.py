"""The fingerprint of a module: equal for two modules that differ only in names and metadata.

Each instruction is hashed from its own bytes, without names, ids, source lines and the compiler's
estimates, and from the digests of its operands, control predecessors and called computations.
Unknown fields stay in the bytes, so an attribute of a later XLA counts too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

from assay.hlo.module import Computation, Module
from assay.hlo.opcodes import COMMUTATIVE, EFFECTS
from assay.hlo.schema import ANONYMOUS, MalformedModule, Message, decode_all
from assay.hlo.structure import LOCAL_ID

_SIZE: Final = 16
_COUNTS: Final = Struct("<3I")
_NOISE: Final = frozenset(
    {
        # the compiler's estimates
        "estimated_bundle_count",
        "estimated_cycles",
        "estimated_scoped_vmem_bytes",
        "estimated_vmem_bytes",
        "ml_estimated_microseconds",
        "reification_cost",
        # the choices of autotuning
        "autotune_workspace_size",
        "block_level_fusion_config",
        "selected_algorithm",
        "triton_gemm_config",
    }
)
"""Keys of a backend's JSON that change from run to run."""

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
        return json.dumps(_pruned(json.loads(config)), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return config


def _pruned(read: Any) -> Any:  # whatever JSON holds
    if isinstance(read, dict):
        return {key: _pruned(value) for key, value in read.items() if key not in _NOISE}
    if isinstance(read, list):
        return [_pruned(each) for each in read]
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A computation's digest, and whether running it does more than give its result."""

    digest: bytes
    has_effect: bool


def fingerprint(module: Module) -> str:
    """Hex digits that differ between modules that are different programs.

    The digits are equal for modules that differ only in names, ids, channel ids, source lines, dead
    code, a backend's estimates and autotuning choices (`_NOISE`), the order of computations, the
    order of instructions that no schedule fixes and the operand order of commutative operations.
    Instructions of equal digests are only counted: the digits do not show which of two equal
    copies is read. Compare fingerprints of one XLA version only. Another version writes other
    attributes for the same program.

    Raises:
        MalformedModule: a user comes before its operand, or a caller before its callee.
    """
    callees: dict[int, Callee] = {}
    configs: dict[bytes, bytes] = {}
    for computation in module.computations:
        try:
            callees[computation.id] = _callee(computation, callees, configs)
        except KeyError as error:
            raise misordered(computation, error) from None
    aliases = sorted(
        (alias.output_index, alias.parameter_number, alias.parameter_index, alias.must)
        for alias in module.aliases
    )
    interface = repr((aliases, sorted(module.donors))).encode()
    data = callees[module.entry.id].digest + interface
    return blake2b(data, digest_size=_SIZE).hexdigest()


def misordered(computation: Computation, error: Exception) -> MalformedModule:
    """The exception for a reference to what is not there, or only comes later."""
    return MalformedModule(
        f"got a reference in computation {computation.name!r} to what does not come before it "
        f"({error}), wanted operands before users and callees before callers, as XLA writes them; "
        "serialize the module again"
    )


def has_effect(message: Message, called: Sequence[Callee]) -> bool:
    """Whether an instruction is not dead code, even if no instruction uses its result."""
    if message.opcode in EFFECTS or message.custom_call_has_side_effect:
        return True
    return bool(called) and any(callee.has_effect for callee in called)


def _callee(
    computation: Computation, callees: Mapping[int, Callee], configs: dict[bytes, bytes]
) -> Callee:
    """The digest of the root and all that is alive, in the order of the schedule if there is one.

    The number of equal instructions counts: to copy an array twice is not to copy it once.
    """
    digests: dict[int, bytes] = {}
    inputs: dict[int, Sequence[int]] = {}
    acting: set[int] = set()
    alive = {computation.root_id}
    for message in decode_all(ANONYMOUS, computation.encoded):
        identifier = message.id & LOCAL_ID
        operands = [each & LOCAL_ID for each in message.operand_ids]
        before: list[int] = []
        called: list[Callee] = []
        parts = [digests[each] for each in operands]
        if message.opcode in COMMUTATIVE:
            parts.sort()
        if message.control_predecessor_ids:  # most instructions have none of these two
            before = [each & LOCAL_ID for each in message.control_predecessor_ids]
            parts += sorted([digests[each] for each in before])
        if message.called_computation_ids:
            called = [callees[each] for each in message.called_computation_ids]
            parts += [callee.digest for callee in called]
        if has_effect(message, called):
            acting.add(identifier)
        elif message.opcode == "parameter":  # part of the signature, whether it is used or not
            alive.add(identifier)
        counts = _COUNTS.pack(len(operands), len(before), len(called))
        data = b"".join((own_bytes(message, configs), *parts, counts))
        digests[identifier] = blake2b(data, digest_size=_SIZE).digest()
        inputs[identifier] = operands + before
    alive |= acting
    for identifier in reversed(digests):
        if identifier in alive:
            alive.update(inputs[identifier])
    if computation.order is None:
        body = [*sorted([digests[each] for each in alive]), b"o"]
    else:
        body = [*(digests[each] for each in computation.order if each in alive), b"s"]
    thread = computation.execution_thread.encode()
    data = b"".join((thread, digests[computation.root_id], *body))
    whole = blake2b(data, digest_size=_SIZE).digest()
    return Callee(digest=whole, has_effect=bool(acting))
