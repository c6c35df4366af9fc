"""Measurements of Assay itself, each a command with limits that it passes or fails."""
