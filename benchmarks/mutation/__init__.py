"""What the tests notice: ``python -m benchmarks.mutation`` (README.md in the folder above)."""
