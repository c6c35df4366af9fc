"""What suite sharded_scan needs of a target."""

import jax
import pytest

from assay.frameworks.framework import Unsupported, built
from suites.sharded_scan.workloads import EXECUTED


@pytest.mark.parametrize("variant", ["replicated", "sharded", "negative-not-averaged"])
def test_a_single_device_is_unsupported_for_nothing_is_sharded_on_it(variant: str) -> None:
    with pytest.raises(Unsupported, match=r"here is 1; use a target of 2 or more, such as cpu:8"):
        built(EXECUTED.variant(variant), jax.devices()[:1])
