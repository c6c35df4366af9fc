"""A run's times: taken once for each pair and question, and kept as far as they were taken."""

from typing import Final

from assay.model.timing import Times
from assay.store.measurement_cache import MeasurementCache

TIMES: Final = MeasurementCache(folder="times", kind=Times)
