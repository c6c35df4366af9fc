"""A child process with frames on its pipes: how its parent starts, hears and ends it."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

from assay.isolate.frames import how_it_ended, read, write

_STDERR_TAIL_CHARACTERS = 400
_WORDS_READ = 65_536
# Importing a framework on a cold disk takes tens of seconds; no program is part of it.
_START_SECONDS = 300.0


class NotStartedError(RuntimeError):
    """The child died or sent no frame before the first request."""


class Child:
    """One process with a separate session and temporary folder. Its output is kept."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        # Both are kept for the child's lifetime and go in close().
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # Temporary files of compilers are removed with the child, also after a crash.
        self._folder = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
        self._heard = 0  # where in its words the present request began
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**environment, "TMPDIR": self._folder.name},
            # Ctrl-C is for the parent, which then ends the child itself.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process, which leads its session."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def await_ready(self) -> None:
        """Wait for its first frame; a child that sends none is ended.

        Raises:
            NotStartedError: it died first, or took longer than any import does.
        """
        try:
            self.receive(_START_SECONDS)
        except TimeoutError:
            self.close()
            raise NotStartedError(f"was not ready within {_START_SECONDS:g} s") from None
        # A child that dies before its first program says nothing about a program.
        except EOFError:
            raise NotStartedError(f"did not start: {self.ending_with_stderr_tail()}") from None

    def send(self, request: bytes) -> None:
        """Send a request; words from here on belong to it.

        Raises:
            BrokenPipeError: the child is gone.
        """
        assert self._process.stdin
        self._heard = os.fstat(self._words.fileno()).st_size
        write(self._process.stdin, request)

    def receive(self, timeout_seconds: float) -> bytes:
        """The next frame that it sends.

        Raises:
            TimeoutError: nothing came in that time.
            EOFError: the child is gone.
        """
        assert self._process.stdout
        return read(self._process.stdout, timeout_seconds)

    def ending_with_stderr_tail(self) -> str:
        """What a child that is gone died of; it is closed."""
        ended = how_it_ended(self._process.wait())
        words = self.with_stderr_tail(ended)
        self.close()
        return words

    def with_stderr_tail(self, ended: str) -> str:
        """What ended the request's program, and what that wrote last; it writes nowhere else."""
        file = self._words.fileno()
        start = max(self._heard, os.fstat(file).st_size - _WORDS_READ)
        # The child writes at this file's own offset, which is left where it is.
        words = os.pread(file, _WORDS_READ, start).decode(errors="replace")
        last = " ".join(words.split())[-_STDERR_TAIL_CHARACTERS:] or "none"
        return f"the process ended by {ended}; stderr tail: {last}"

    def close(self) -> None:
        """Kill the process and its children. May be called again."""
        if self._words.closed:
            return
        # Its forks belong to its session and must end with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            # A request that a dead child did not read is still in the buffer.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        self._folder.cleanup()
