"""Canonical attributes: an instruction's own bytes without names; opcodes' order and effects.

What is not known here by name stays in the bytes, so that an attribute of a later XLA counts too.
"""

import json
from typing import Any, Final

from assay.hlo.schema import Message

COMMUTATIVE: Final = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
"""Opcodes that mean the same with their operands the other way round."""

EFFECTS: Final = frozenset(
    {
        "infeed",
        "outfeed",
        "recv",
        "recv-done",
        "rng",
        "rng-get-and-update-state",
        "send",
        "send-done",
    }
)
"""Opcodes that are not dead code even where nobody uses their results."""

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
    """What an instruction says of itself, whatever it is called; takes the message apart."""
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
    """A backend's JSON without the keys of `_NOISE`; what is no JSON, as it is."""
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
