"""The kinds of measurement: how a claim asks for each, and where it is stored and read back."""
