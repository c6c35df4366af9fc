"""Observing in a child process, so that a compiler that aborts ends one observation, not the run.

The child is started once and serves many requests. A child that dies is evidence, and the next
request starts another.
"""

from assay.isolate.group import Group, ProcessLost
from assay.isolate.hlo_reader import Reading, read_hlo_file
from assay.isolate.messages import NotPortable
from assay.isolate.observer import ObservationError, Observer, Processes
from assay.isolate.together import GroupObserver

__all__ = [
    "Group",
    "GroupObserver",
    "NotPortable",
    "ObservationError",
    "Observer",
    "ProcessLost",
    "Processes",
    "Reading",
    "read_hlo_file",
]
