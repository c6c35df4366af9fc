"""The frameworks by name; one is imported when it is asked for."""

from collections.abc import Callable
from importlib.util import find_spec

from assay.frameworks.framework import Framework


class FrameworkMissing(LookupError):
    """The framework is not installed; the message names the command that installs it."""


def _jax() -> Framework:
    from assay.frameworks.jax import JaxFramework

    return JaxFramework()


def _hlo() -> Framework:
    from assay.frameworks.hlo import HloFramework

    return HloFramework()


def _torch_xla() -> Framework:
    preload("torch_xla")
    from assay.frameworks.torch_xla import TorchXlaFramework

    return TorchXlaFramework()


_FRAMEWORKS: dict[str, Callable[[], Framework]] = {
    "jax": _jax,
    "hlo": _hlo,
    "torch_xla": _torch_xla,
}
_PACKAGE = {"jax": "jax", "hlo": "jaxlib", "torch_xla": "torch_xla"}
_INSTALL = {
    "jax": "pip install jax",
    "hlo": "pip install jax",
    "torch_xla": "tox run -e torch_xla, or pip install 'assay-xla[torch_xla]' (7 GB)",
}
KNOWN = tuple(_FRAMEWORKS)
_KEEPS_STATE = frozenset({"torch_xla"})


def keeps_state(name: str) -> bool:
    """Whether what a framework compiled and counted for one program shows in the next one.

    Its programs are then observed in a process each.
    """
    return name in _KEEPS_STATE


def preload(name: str) -> None:
    """Import a framework, as far as a process that only forks may."""
    if name == "torch_xla" and find_spec("torch_xla") is not None:
        from assay.frameworks.torch_xla_internals import import_only

        import_only()


def why_missing(name: str) -> str:
    """That a known framework is not installed and how to install it, empty if it is there."""
    if name not in _PACKAGE or find_spec(_PACKAGE[name]) is not None:
        return ""
    return f"{name} is not installed; {_INSTALL[name]}"


def framework(name: str) -> Framework:
    """The framework of that name.

    Raises:
        FrameworkMissing: unknown or not installed.
    """
    if name not in _FRAMEWORKS:
        known = ", ".join(sorted(_FRAMEWORKS))
        raise FrameworkMissing(f"got framework {name!r}, wanted one of {known}")
    if missing := why_missing(name):
        raise FrameworkMissing(missing)
    return _FRAMEWORKS[name]()
