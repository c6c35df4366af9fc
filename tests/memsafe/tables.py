"""Tables, and indices in them and far outside, for tests of gather and scatter."""

import numpy as np
from hypothesis import strategies as st

MODES = ("fill", "clip", "promise_in_bounds")
ROWS = 6
AWKWARD = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1.5], np.float32)
OUT_OF_BOUNDS = [-(2**31), -ROWS - 1, -1, ROWS, ROWS + 1, 2**31 - 1]
places = st.integers(0, ROWS - 1) | st.sampled_from(OUT_OF_BOUNDS)
vectors = st.lists(places, min_size=12, max_size=12).map(
    lambda values: np.array(values, np.int32).reshape(3, 4)
)


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape, np.int32)


def some_places(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-ROWS, 2 * ROWS, shape, np.int32)
