"""What is kept on disk: evidence, records, baselines; only this room writes files."""
