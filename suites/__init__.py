"""What compilers must keep: one folder a suite."""
