"""A run's reruns: every sample of both toolchains, one file for each variant that was rerun."""

from typing import Final

from assay.model.rerun import Rerun
from assay.store.measurement_cache import MeasurementCache

RERUNS: Final = MeasurementCache(folder="reruns", kind=Rerun)
