"""``python -m assay.cli``: the command ``assay``."""

from assay.cli import main

main()
