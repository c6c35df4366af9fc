"""Targets: the compilers, and the devices they compile for."""

from assay.targets.catalog import known, resolve, survey
from assay.targets.devices import Target, prepare
from assay.targets.presence import cpu_device_count, environment

__all__ = ["Target", "cpu_device_count", "environment", "known", "prepare", "resolve", "survey"]
