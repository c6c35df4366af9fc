"""Readers with a fault each, which the fuzzer must find."""

import ctypes
import time
from collections.abc import Callable
from typing import Final

from benchmarks.fuzz.engine import Reader, Refused, WrongResult
from benchmarks.fuzz.mutations import of_bytes

_SEED: Final = b"abcdefgh"


def _is_changed(data: bytes) -> bool:
    if not data:
        raise Refused("nothing")
    return data[:4] != _SEED[:4]


def _crashes(data: bytes) -> None:
    if _is_changed(data):
        ctypes.string_at(0)


def _hangs(data: bytes) -> None:
    while _is_changed(data):
        pass


def _raises(data: bytes) -> None:
    if _is_changed(data):
        raise KeyError(data)


def _misreads(data: bytes) -> None:
    if _is_changed(data):
        raise WrongResult("other letters")


def _takes_memory(data: bytes) -> None:
    if _is_changed(data):
        bytearray(64 << 30)


def _is_right(data: bytes) -> None:
    _is_changed(data)
    time.sleep(0)


def _reader(name: str, read: Callable[[bytes], None]) -> Reader:
    return Reader(name=name, read=read, mutate=of_bytes, seeds=lambda: [_SEED], seconds=0.1)


CRASHES: Final = _reader("crashes", _crashes)
HANGS: Final = _reader("hangs", _hangs)
RAISES: Final = _reader("raises", _raises)
MISREADS: Final = _reader("misreads", _misreads)
TAKES_MEMORY: Final = _reader("memory", _takes_memory)
IS_RIGHT: Final = _reader("right", _is_right)
