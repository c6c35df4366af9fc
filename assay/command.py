"""The entry point of the command ``assay``: Ctrl-C also ends the imports of the command line."""

import sys

_MISUSE = 2
"""``ExitCode.MISUSE``, which is imported too late."""


def main() -> None:
    """Run the command line."""
    try:
        from assay.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("assay: interrupted\n")
        sys.exit(_MISUSE)
    run()
