"""The words every room shares: plain values, standard library only."""
