"""Tensor splitting: programs whose intermediate arrays no device holds, in bounded memory."""
