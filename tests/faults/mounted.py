"""``python -m tests.faults.mounted KIND SIZE COMMAND…``: run it with a special disk at results/.

``tmpfs`` is a small disk, ``read-only`` one that cannot be written to. Nothing outside of the
process sees it; what the command wrote lies in ``results`` afterwards.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_RESULTS = Path("results")


@cache
def mounts_work() -> bool:
    """Whether this process may mount a disk that only it sees."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    ended = subprocess.run(command, capture_output=True, check=False)
    return ended.returncode == 0


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments, str(_RESULTS)], check=True)


def main(kind: str, size: str, *command: str) -> int:
    """Mount, run, and keep what was written."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    _RESULTS.mkdir(exist_ok=True)
    if kind == "read-only":
        _mount("--bind", str(_RESULTS))
        _mount("-o", "remount,ro,bind")
    else:
        _mount("-t", kind, "-o", f"size={size}", "tmpfs")
    # A warm interpreter would fork from a process that does not see the disk.
    python = Path(sys.prefix, "bin", "python")
    ended = subprocess.run([python, *command], check=False)
    shutil.copytree(_RESULTS, "kept", symlinks=True)
    subprocess.run(["umount", str(_RESULTS)], check=True)
    shutil.copytree("kept", _RESULTS, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree("kept")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
