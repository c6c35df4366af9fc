"""What the words of compilers and allocators say of memory."""

import pytest

from assay.frameworks.failures import of_compiler
from assay.model.evidence import Failure, FailureKind

GIB = 2**30
FAILED = Failure(kind=FailureKind.COMPILER, message="")


@pytest.mark.parametrize(
    ("words", "needed", "capacity"),
    [
        ("Ran out of memory. Used 20.50G of 15.75G hbm.", 20.5, 15.75),
        ("Program (1.00T) exceeds available HBM (15.75G)", 1024, 15.75),
        ("Out of memory while trying to allocate 8.00TiB with allocator GPU_0_bfc", 8192, None),
        ("no sizes", None, None),
    ],
)
def test_sizes_are_read_where_the_words_have_them(
    words: str, needed: float | None, capacity: float | None
) -> None:
    found = of_compiler(FAILED, f"RESOURCE_EXHAUSTED: {words}")
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.OUT_OF_MEMORY
    assert found.needed_bytes == (needed and needed * GIB)
    assert found.capacity_bytes == (capacity and capacity * GIB)


def test_another_error_and_on_chip_memory_are_the_compilers() -> None:
    for words in ("INTERNAL: no", "RESOURCE_EXHAUSTED: 9M of vmem, in memory space vmem"):
        assert of_compiler(FAILED, words) == FAILED
