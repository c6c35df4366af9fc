"""Every fault that an inner run is put to."""

from tests.faults.machine import MACHINE
from tests.faults.missing import MISSING
from tests.faults.observing import OBSERVING
from tests.faults.reading import READING
from tests.faults.running import INSPECTING, KILLED_CONTROLLER, QUALIFYING, RUNNING
from tests.faults.storing import STORING
from tests.faults.timing import TIMING

FAULTS = (
    *READING,
    *OBSERVING,
    *STORING,
    *MACHINE,
    *RUNNING,
    *QUALIFYING,
    *INSPECTING,
    *MISSING,
    *TIMING,
)

__all__ = ["FAULTS", "KILLED_CONTROLLER"]
