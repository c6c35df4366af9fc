"""Comparison of numbers with limits, with accepted numbers and with known defects: pure."""
