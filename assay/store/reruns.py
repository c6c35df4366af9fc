"""A run's reruns: every sample of both toolchains, one file for each arm that was rerun."""

from typing import Final

from assay.model.rerun import Rerun
from assay.store.taken import Taken

KEPT: Final = Taken(folder="reruns", kind=Rerun)
