"""Reading a compiled program: pure analysis of an optimized HLO module, from its proto bytes."""
