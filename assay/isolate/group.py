"""Processes that judge the same items together, and what each of them tells all others.

Each pytest process is connected with process 0, which passes every message on to all, in one order.
A connection that ends is a lost process. The messages hold plain values and run no code. As the
coordinator of ``jax.distributed``, process 0 trusts whoever reaches its port.
"""

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Final

import msgspec

from assay.isolate.child import START_SECONDS, Child, read, write
from assay.model.blame import WrongValue
from assay.model.process import Process, is_loopback

_HELLO, _TOGETHER, _REFUSED, _LEFT = "hello", "together", "refused", "left"
_RETRY_SECONDS: Final = 0.1
_HELLO_SECONDS: Final = 10.0
_LATE_SECONDS: Final = 2.0
_MOST_BYTES: Final = 2**26
GRACE_SECONDS: Final = 5.0
"""How long a program may run on after another process failed, for which it may be waiting."""
# A machine that vanishes closes no connection: its silence ends it after about 30 s.
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


class ProcessLost(Exception):
    """A process is gone, or at another step than this one: nothing more can be judged together."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What one process says to all at a step. ``order`` counts the words of all processes."""

    step: str
    content: bytes = b""
    failed: bool = False
    source: int = 0
    order: int = 0


class Group:
    """The processes of a run, seen from one of them. They take the same steps in the same order."""

    def __init__(self, process: Process, wait_seconds: float, program_seconds: float) -> None:
        """Wait until all processes are connected, at most ``wait_seconds``.

        ``program_seconds`` is the time limit of a program, in each process.

        Raises:
            WrongValue: the port is in use, process 0 does not listen, or the processes that came
                are not those that were announced.
            ProcessLost: process 0 is gone.
            TimeoutError: what listens at process 0's address says nothing.
        """
        self.process = process
        self._program_seconds = program_seconds
        self._gone: ProcessLost | None = None
        self._waiting: dict[int, deque[Word]] = {index: deque() for index in range(process.count)}
        self._relay = _Relay(process, wait_seconds) if process.index == 0 else None
        deadline = time.monotonic() + wait_seconds
        self._reader, self._writer = _streams(_connected(process, deadline))
        self._say(Word(step=_HELLO, content=msgspec.json.encode((process.count, process.index))))
        # Process 0 may have started later, and ends the wait.
        wait = deadline - time.monotonic() + (0 if self._relay else wait_seconds)
        word = self._next(wait + _HELLO_SECONDS)
        if word.step == _REFUSED:
            self.close()
            raise WrongValue(word.content.decode())

    def exchange(self, step: str, content: bytes = b"", *, failed: bool = False) -> list[Word]:
        """Say a word at a step. Returns the words of all processes, in the order of processes.

        Raises:
            ProcessLost: a process is gone, or at another step.
        """
        if self._gone:
            raise self._gone
        self._say(Word(step=step, content=content, failed=failed))
        return [self._heard(index, step) for index in self._waiting]

    def receive(self, child: Child, seconds: float) -> bytes:
        """The child's next frame, within ``GRACE_SECONDS`` once another process has failed.

        Raises:
            TimeoutError, MemoryExceeded, EOFError: as ``Child.receive``.
            ProcessLost: a process is gone.
        """
        deadline = time.monotonic() + seconds
        hurries = True
        while True:
            if hurries and self._failed:
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
                hurries = False
            if child.answers_first(self._reader, max(0.0, deadline - time.monotonic())):
                break
            self._hear(max(0.0, deadline - time.monotonic()))
        return child.receive(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Leave. Process 0 waits until the others have left too, for at most 10 s."""
        for stream in (self._reader, self._writer):
            with contextlib.suppress(OSError):
                stream.close()
        if self._relay:
            self._relay.join(_HELLO_SECONDS)

    @property
    def _failed(self) -> bool:
        return any(word.failed for words in self._waiting.values() for word in words)

    def _heard(self, index: int, step: str) -> Word:
        # It may be one step behind, start a child there, and then compile and run a program.
        longest = START_SECONDS + 2 * self._program_seconds
        deadline = time.monotonic() + longest
        while not self._waiting[index]:
            try:
                self._hear(deadline - time.monotonic())
            except TimeoutError:
                raise self._lost(index, f"it said nothing for {longest:g} s") from None
        word = self._waiting[index].popleft()
        if word.step != step:
            raise self._lost(index, f"it is at {word.step!r}, and this process at {step!r}")
        return word

    def _hear(self, seconds: float) -> None:
        word = self._next(seconds)
        if word.step == _LEFT:
            raise self._lost(word.source, "its connection ended")
        self._waiting[word.source].append(word)

    def _next(self, seconds: float) -> Word:
        try:
            payload = read(self._reader, max(0.0, seconds), most_bytes=_MOST_BYTES)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise self._lost(0, "its connection ended") from None
        return msgspec.msgpack.decode(payload, type=Word)

    def _say(self, word: Word) -> None:
        try:
            write(self._writer, msgspec.msgpack.encode(word))
        except OSError:
            raise self._lost(0, "its connection ended") from None

    def _lost(self, index: int, why: str) -> ProcessLost:
        self._gone = ProcessLost(f"process {index} of {self.process.count} is lost: {why}")
        return self._gone


def free_port(host: str) -> int:
    """A port of this machine that is free now."""
    with _listener(host, 0) as listener:
        return int(listener.getsockname()[1])


def _listener(host: str, port: int) -> socket.socket:
    """A socket on all interfaces; for a loopback address, on this address alone."""
    if is_loopback(host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _connected(process: Process, deadline: float) -> socket.socket:
    """A connection with process 0, which may start later."""
    address = (process.host, process.port)
    while True:
        try:
            left = max(_RETRY_SECONDS, deadline - time.monotonic())
            connection = socket.create_connection(address, timeout=left)
        except OSError as error:
            if time.monotonic() > deadline:
                where = f"{process.host}:{process.port}"
                raise WrongValue(
                    f"got no answer of process 0 at {where} ({error.strerror or error}), wanted "
                    "it to listen there; start all processes with the same address"
                ) from None
            time.sleep(_RETRY_SECONDS)
        else:
            return connection


def _streams(connection: socket.socket) -> tuple[IO[bytes], IO[bytes]]:
    connection.settimeout(None)
    for level, option, value in _KEEP_ALIVE:
        connection.setsockopt(level, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader, writer = connection.makefile("rb"), connection.makefile("wb")
    connection.close()  # It is closed with the streams.
    return reader, writer


class _Relay(threading.Thread):
    """In process 0: connects the processes, and passes each word on to all of them."""

    def __init__(self, process: Process, timeout_seconds: float) -> None:
        super().__init__(daemon=True)
        self._count = process.count
        self._timeout_seconds = timeout_seconds
        self._readers: dict[int, IO[bytes]] = {}
        self._writers: dict[int, IO[bytes]] = {}
        self._lock = threading.Lock()
        self._order = 0
        try:
            self._listener = _listener(process.host, process.port)
        except OSError as error:
            raise WrongValue(
                f"got {process.host}:{process.port}, where process 0 cannot listen "
                f"({error.strerror or error}), wanted a free port of its machine; name another"
            ) from None
        self.start()

    def run(self) -> None:
        """Connect all, then pass words on until all have left."""
        with self._listener:
            refused = self._refusal(time.monotonic() + self._timeout_seconds)
        self._pass_on(Word(step=_REFUSED if refused else _TOGETHER, content=refused.encode()))
        if not refused:
            pumps = [threading.Thread(target=self._pump, args=(each,)) for each in self._readers]
            for pump in pumps:
                pump.daemon = True
                pump.start()
            for pump in pumps:
                pump.join()
        for stream in (*self._readers.values(), *self._writers.values()):
            with contextlib.suppress(OSError):
                stream.close()

    def _refusal(self, deadline: float) -> str:
        """Why the processes cannot work together; empty once all of them are connected."""
        refused = ""
        while len(self._readers) < self._count:
            self._listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                missing = ", ".join(map(str, sorted(set(range(self._count)) - set(self._readers))))
                return refused or (
                    f"got {len(self._readers)} of {self._count} processes within "
                    f"{self._timeout_seconds:g} s, wanted process {missing} too; start COUNT "
                    "processes with the INDEX 0 to COUNT - 1"
                )
            reader, writer = _streams(connection)
            try:
                payload = read(reader, _HELLO_SECONDS, most_bytes=_MOST_BYTES)
                word = msgspec.msgpack.decode(payload, type=Word)
                count, index = msgspec.json.decode(word.content, type=tuple[int, int])
            # Whoever says something else is none of the processes.
            except (EOFError, OSError, msgspec.MsgspecError):
                reader.close()
                writer.close()
                continue
            is_new = index not in self._readers
            if not (is_new and count == self._count and index in range(count)):
                refused = (
                    f"got process {index} of {count}{'' if is_new else ' twice'}, wanted each "
                    f"INDEX once and the COUNT of process 0, {self._count}, for all processes"
                )
                # A refused process is told why, as are those that come late.
                index = -1 - len(self._readers)
                deadline = min(deadline, time.monotonic() + _LATE_SECONDS)
            self._readers[index], self._writers[index] = reader, writer
        return refused

    def _pump(self, index: int) -> None:
        """Pass the words of one process on. When its connection ends, say that it left."""
        for word in _words(self._readers[index]):
            self._pass_on(msgspec.structs.replace(word, source=index))
        self._pass_on(Word(step=_LEFT, source=index))

    def _pass_on(self, word: Word) -> None:
        with self._lock:  # All hear all words in one order.
            self._order += 1
            payload = msgspec.msgpack.encode(msgspec.structs.replace(word, order=self._order))
            for writer in self._writers.values():
                # The process of this writer has left, and its own pump says so.
                with contextlib.suppress(OSError, ValueError):
                    write(writer, payload)


def _words(reader: IO[bytes]) -> Iterator[Word]:
    """The words of a process, until its connection ends."""
    with contextlib.suppress(EOFError, OSError, ValueError, msgspec.MsgspecError):
        while True:
            yield msgspec.msgpack.decode(read(reader, None, most_bytes=_MOST_BYTES), type=Word)


def first_failure(words: Sequence[Word]) -> Word | None:
    """The word of the process that failed first; None if none failed."""
    return min((word for word in words if word.failed), key=lambda word: word.order, default=None)
