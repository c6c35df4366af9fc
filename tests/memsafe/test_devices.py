"""memsafe on four devices."""

import json
import os
import subprocess
import sys

import pytest

from tests.memsafe.on_four_devices import CLAIMS


@pytest.fixture(scope="module")
def on_four_devices() -> dict[str, str]:
    """What is wrong with each claim about four devices, found out in a process that has them."""
    command = [sys.executable, "-m", "tests.memsafe.on_four_devices"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("claim", CLAIMS)
def test_on_four_devices(on_four_devices: dict[str, str], claim: str) -> None:
    assert on_four_devices[claim] == ""
