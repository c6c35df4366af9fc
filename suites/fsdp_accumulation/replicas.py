"""``python -m suites.fsdp_accumulation.replicas``: FSDP at world size 2, a thread for each replica.

PyTorch/XLA starts replicas only where it runs nothing yet, hence a process of their own.
"""

import subprocess
import sys

import torch_xla

from assay import Loop
from suites.fsdp_accumulation.fsdp_loop import build
from suites.fsdp_accumulation.sizes import BertSizes, Sharding, Training

_SIZES = BertSizes(layers=1, width=32, vocabulary=64, batch=2, sequence=8, steps=2)
_CAUSE = "Termination timeout"


def build_after_replicas(sizes: BertSizes, sharding: Sharding, training: Training) -> Loop:
    """The loop, once two replicas have trained.

    What is counted is this process's loop; that replicas train at all is what is tried.

    Raises:
        RuntimeError: they do not.
    """
    command = [sys.executable, "-m", "suites.fsdp_accumulation.replicas"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["no word"]
        raise RuntimeError(next((line for line in lines if _CAUSE in line), lines[-1]))
    return build(sizes, sharding, training)


def _train(_replica: int) -> None:
    loop = build(_SIZES, Sharding(bucket_mb=20), Training())
    for _ in range(_SIZES.steps):
        loop.step()


if __name__ == "__main__":
    torch_xla.launch(_train)
