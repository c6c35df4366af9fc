"""Targets: the compilers, and the devices they compile for."""

from assay.targets.catalog import known, models_of, resolve, survey
from assay.targets.devices import Target, check, prepare
from assay.targets.presence import environment

__all__ = ["Target", "check", "environment", "known", "models_of", "prepare", "resolve", "survey"]
