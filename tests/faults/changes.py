"""Ways to break a part: each takes the real function and gives what stands in its place."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from typing import Any

Change = Callable[[Callable[..., Any]], Callable[..., Any]]


def raises(error: type[Exception] = AttributeError) -> Change:
    """It raises what only a fault of Assay's own raises."""

    def change(_: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*_: Any, **__: Any) -> Any:
            raise error("injected")

        return stand_in

    return change


def gives(value: Any) -> Change:
    """It gives this, whatever it is asked."""

    def change(_: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*_: Any, **__: Any) -> Any:
            return value

        return stand_in

    return change


def alters(alter: Callable[[Any], Any]) -> Change:
    """It gives what ``alter`` makes of the real result."""

    def change(real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*arguments: Any, **keywords: Any) -> Any:
            return alter(real(*arguments, **keywords))

        return stand_in

    return change


def finds_no_room(name: str = "") -> Change:
    """The disk is full as soon as it is asked to write the file of that name, or any file."""

    def change(real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*arguments: Any, **keywords: Any) -> Any:
            if name not in str(arguments[0]):
                return real(*arguments, **keywords)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name or "injected")

        return stand_in

    return change


def is_killed(after: int = 0, number: int = signal.SIGKILL) -> Change:
    """Its process is killed at the first call, or after some, by that signal."""

    def change(real: Callable[..., Any]) -> Callable[..., Any]:
        calls: list[None] = []

        def stand_in(*arguments: Any, **keywords: Any) -> Any:
            if len(calls) == after:
                os.kill(os.getpid(), number)
            calls.append(None)
            return real(*arguments, **keywords)

        return stand_in

    return change


def hangs() -> Change:
    """It never comes back."""

    def change(_: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*_: Any, **__: Any) -> Any:
            time.sleep(600)

        return stand_in

    return change
