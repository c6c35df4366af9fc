"""Measurements of Assay on a live GPU: one command, ``python -m benchmarks.device FOLDER``."""
