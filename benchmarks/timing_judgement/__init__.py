"""How often a verdict on times is wrong, ours and the usual rules on the same raw runs."""
