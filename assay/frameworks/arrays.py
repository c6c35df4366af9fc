"""Arrays as evidence."""

from typing import Any

import numpy as np

from assay.model.evidence import Tensor


def tensor_of(path: str, leaf: Any) -> Tensor:
    """An array, or what numpy makes one of, by the name that it has among results."""
    array = np.asarray(leaf)  # tobytes is row-major whatever the strides
    return Tensor(path=path, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())
