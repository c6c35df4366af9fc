"""Remat with stacked buffers: a loop that updates one row of a stack writes one row."""
