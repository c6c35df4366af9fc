"""How one compiled program differs from another: pure functions of two summaries."""
