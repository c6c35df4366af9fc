"""Mutated inputs for everything that Assay reads and did not write itself (docs/security.md)."""
