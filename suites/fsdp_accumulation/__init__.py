"""FSDP accumulation: gradients that are gathered during backward and flushed at its end."""
