"""What a live GPU says about Assay: one command, ``python -m benchmarks.device FOLDER``."""
