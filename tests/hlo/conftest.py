"""Hand-written HLO modules, turned into protos by XLA's own parser."""

from collections.abc import Callable

import pytest
from jaxlib import _hlo  # type: ignore[attr-defined] # a compiled module without stubs

from assay.hlo.module import Module
from assay.hlo.summary import read
from assay.model.summary import ModuleSummary


def proto_of(text: str) -> bytes:
    """The bytes that a compiler would hand out for this module."""
    return bytes(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())


@pytest.fixture(scope="session")
def proto() -> Callable[[str], bytes]:
    return proto_of


@pytest.fixture(scope="session")
def module() -> Callable[[str], Module]:
    return lambda text: Module.from_proto(proto_of(text))


@pytest.fixture(scope="session")
def summary() -> Callable[[str], ModuleSummary]:
    return lambda text: read(proto_of(text))
