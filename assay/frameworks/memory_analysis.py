"""XLA's CompiledMemoryStats, as every executable has them, in Assay's words."""

from typing import Any

from assay.model.evidence import Memory


def memory_of(stats: Any) -> Memory:
    """The compiler's memory analysis, bytes per device."""
    return Memory(
        temp_bytes=stats.temp_size_in_bytes,
        argument_bytes=stats.argument_size_in_bytes,
        output_bytes=stats.output_size_in_bytes,
        alias_bytes=stats.alias_size_in_bytes,
        host_temp_bytes=stats.host_temp_size_in_bytes,
        host_argument_bytes=stats.host_argument_size_in_bytes,
        host_output_bytes=stats.host_output_size_in_bytes,
        host_alias_bytes=stats.host_alias_size_in_bytes,
        reported_peak_bytes=getattr(stats, "peak_memory_in_bytes", None),
    )
