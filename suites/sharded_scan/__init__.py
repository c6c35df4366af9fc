"""Scan offload: moving a scanned block's activations to host memory."""
