"""Placeholder tensors: tracing what a scan repeats sends nothing to the device."""
