"""The only package that writes files: evidence, records, baselines, compiled programs."""
