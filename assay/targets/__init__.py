"""Targets: the compilers, and the devices they compile for."""

from assay.targets.catalog import known, resolve, survey
from assay.targets.devices import Target, check, prepare
from assay.targets.presence import environment

__all__ = ["Target", "check", "environment", "known", "prepare", "resolve", "survey"]
