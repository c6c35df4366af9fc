"""A child process with frames on its pipes: both ends, and how it starts and ends."""

import contextlib
import os
import re
import select
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final

from assay.isolate.memory import MemoryExceeded, MemoryLimit, Watch, kernel_kills, offer_to_kernel

READY: Final = b"ready"
"""The first frame that a child sends."""

MOST_BYTES: Final = 2**32 - 1
"""The longest frame."""

_LENGTH: Final = struct.Struct("<I")
_MOST_AT_ONCE: Final = 2**20
_SURE_AT_ONCE: Final = select.PIPE_BUF
"""A pipe that is ready takes so much without waiting (pipe(7))."""
_STDERR_TAIL_CHARACTERS: Final = 400
_STDERR_BYTES_READ: Final = 65_536
_FAILED_CHECK: Final = re.compile(r"^F\d{4} .*?\] (.+)$", re.MULTILINE)  # as abseil logs it
# Importing a framework on a cold disk takes tens of seconds; no program is part of it.
START_SECONDS: Final = 300.0


class NotStartedError(RuntimeError):
    """The child died or sent no frame before the first request."""


ENDED_BY_KERNEL: Final = "memory ran out, and the kernel ended its process"


class Child:
    """One process with a separate session and temporary folder, seen from its parent.

    Its memory is looked at while the parent waits for it.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        memory_limit: MemoryLimit | None = None,
    ) -> None:
        # Both exist as long as the child, and are removed in close().
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # Temporary files of compilers are removed with the child, also after a crash.
        self._folder = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
        self._stderr_start = 0  # of the present request
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**environment, "TMPDIR": self._folder.name},
            # Ctrl-C is for the parent, which then ends the child itself.
            start_new_session=True,
        )
        offer_to_kernel(self.pid)
        self._watch = Watch(self.pid, memory_limit) if memory_limit else None
        self._kernel_kills = kernel_kills()

    @property
    def pid(self) -> int:
        """The process, which leads its session."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def await_ready(self, receive: "Callable[[Child, float], bytes] | None" = None) -> None:
        """Wait for its first frame, by ``receive``; a child that sends none is ended.

        Raises:
            NotStartedError: it died first, or took more time or memory than any import does.
        """
        try:
            (receive or Child.receive)(self, START_SECONDS)
        except TimeoutError:
            self.close()
            raise NotStartedError(f"was not ready within {START_SECONDS:g} s") from None
        except MemoryExceeded as exceeded:
            raise NotStartedError(f"did not start: {exceeded}; raise the memory limit") from None
        # A child that dies before its first program says nothing about a program.
        except EOFError:
            raise NotStartedError(f"did not start: {self.ending_with_stderr_tail()}") from None

    def send(self, request: bytes, timeout_seconds: float) -> None:
        """Send a request. The stderr tail begins here.

        Raises:
            TimeoutError: the child did not take it in that time.
            BrokenPipeError: the child is gone.
        """
        assert self._process.stdin
        self._stderr_start = os.fstat(self._stderr.fileno()).st_size
        self._kernel_kills = kernel_kills()
        deadline = time.monotonic() + timeout_seconds
        pipe, rest = self._process.stdin.fileno(), memoryview(_framed(request))
        while rest:
            if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError
            rest = rest[os.write(pipe, rest[:_SURE_AT_ONCE]) :]

    def receive(self, timeout_seconds: float) -> bytes:
        """The next frame that it sends.

        Raises:
            TimeoutError: no whole frame arrived in that time.
            MemoryExceeded: its processes held more memory than they may. It is closed.
            EOFError: the child is gone.
        """
        assert self._process.stdout
        try:
            return read(self._process.stdout, timeout_seconds, self._watch)
        except MemoryExceeded:
            self.close()
            raise

    def answers_first(self, other: IO[bytes], timeout_seconds: float) -> bool:
        """Wait until the child or the other stream has something to read; whether the child has.

        Raises:
            TimeoutError, MemoryExceeded: as ``receive``.
        """
        assert self._process.stdout
        deadline = time.monotonic() + timeout_seconds
        try:
            found = _await([self._process.stdout, other], deadline, self._watch)
        except MemoryExceeded:
            self.close()
            raise
        return self._process.stdout in found

    def lost_to_kernel(self, ended: str) -> bool:
        """Whether the kernel ended it for lack of memory; ``ended`` says how it ended."""
        return is_kill(ended) and kernel_kills() > self._kernel_kills

    def ending_with_stderr_tail(self) -> str:
        """How a child that is gone ended; it is closed."""
        words = self.with_stderr_tail(how_it_ended(self._process.wait()))
        self.close()
        return words

    def with_stderr_tail(self, ended: str) -> str:
        """How the process of the request's program ended, and the last that it wrote to stderr."""
        file = self._stderr.fileno()
        start = max(self._stderr_start, os.fstat(file).st_size - _STDERR_BYTES_READ)
        # The child writes at the file's own offset, which pread does not move.
        words = os.pread(file, _STDERR_BYTES_READ, start).decode(errors="replace")
        failed = _FAILED_CHECK.findall(words)[-1:]  # what follows is the stack of the C++ functions
        tail = " ".join(" ".join(failed or [words]).split())[-_STDERR_TAIL_CHARACTERS:] or "none"
        return f"the process ended by {ended}; stderr tail: {tail}"

    def close(self) -> None:
        """Kill the process and its children. May be called again."""
        if self._stderr.closed:
            return
        # Its forks belong to its session and must end with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            # The pipe to a dead child is broken.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        self._folder.cleanup()


def how_it_ended(code: int) -> str:
    """``SIGABRT``, or ``exit status 3``, of a process's exit code as ``subprocess`` gives it."""
    if code >= 0:
        return f"exit status {code}"
    known = {each.value: each.name for each in signal.Signals}  # not the real-time signals
    return known.get(-code, f"signal {-code}")


def is_kill(ended: str) -> bool:
    """Whether SIGKILL ended the process; ``ended`` is as ``with_stderr_tail`` says it."""
    return ended.partition(";")[0].endswith(signal.SIGKILL.name)


def own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """In the child: the streams of requests and of answers, removed from standard input and output.

    From here on this process ends when the parent closes its end of the pipe.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What a program reads or prints must reach neither the requests nor the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    end_with_parent(requests)
    return requests, answers


def end_with_parent(requests: IO[bytes]) -> None:
    """End this process when no parent can send requests, even in the middle of a program."""

    def wait() -> None:
        hangup = select.poll()
        hangup.register(requests.fileno(), 0)
        hangup.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def write(stream: IO[bytes], payload: bytes) -> None:
    """Send one frame."""
    stream.write(_framed(payload))
    stream.flush()


def _framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def read(
    stream: IO[bytes],
    timeout_seconds: float | None,
    watch: Watch | None = None,
    most_bytes: int = MOST_BYTES,
) -> bytes:
    """The next frame. ``watch`` looks at the memory of the other side until it arrives.

    Raises:
        TimeoutError: the whole frame did not arrive in that time.
        MemoryExceeded: the other side held too much.
        EOFError: the other side is gone, or announces a frame longer than ``most_bytes``.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size, deadline, watch))
    if length > most_bytes:
        raise EOFError
    return _exactly(stream, length, deadline, watch)


def _exactly(stream: IO[bytes], count: int, deadline: float | None, watch: Watch | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        _await([stream], deadline, watch)
        # Not through the stream's buffer: select does not see a frame that is in it.
        part = os.read(stream.fileno(), min(count - len(data), _MOST_AT_ONCE))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _await(
    streams: Sequence[IO[bytes]], deadline: float | None, watch: Watch | None
) -> Sequence[IO[bytes]]:
    """The streams of which there is something to read. Raises as ``read`` does."""
    while True:
        if watch:
            watch.look()
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        pause = watch.seconds_left() if watch else None
        waits = [each for each in (left, pause) if each is not None]
        if found := select.select(streams, [], [], min(waits, default=None))[0]:
            return found
        if left == 0.0:
            raise TimeoutError
