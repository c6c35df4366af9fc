"""Comparison of numbers with limits, with baselines and with known defects: pure."""
