"""An observer whose child runs every program together with the children of other processes.

For each program, the processes take the same steps. ``start``: whether a new child is needed; if
one needs it, all start one, and these form a new group of ``jax.distributed``. ``started``, only
then: whether each child started. ``ready``: the program is compiled; it runs only if all have
compiled the same. ``ended``: what each has measured.
All processes then know the same evidence. A child that dies costs its program, as in one process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

import msgspec

from assay.isolate.child import Child
from assay.isolate.group import Group, Word, first_failure, free_port
from assay.isolate.messages import RUN, Answer, Request
from assay.isolate.observer import ObservationError, Observer, _Measured
from assay.model.evidence import Evidence, Failure, FailureKind, ProcessEvidence
from assay.model.target import Unavailable
from assay.model.workload import Variant, Workload
from assay.observe import unseen
from assay.targets import resolve

_STOP: Final = b"stop"
_ONE_FRAMEWORK: Final = Unavailable(
    reason="only JAX programs run over several processes",
    remedy="run this suite without --assay-distributed",
)


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a process tells of a program: its own evidence in short, or why there is none.

    ``values`` is a digest of the results, ``fault`` what failed in Assay itself. ``restarts`` says
    that the child is gone, ``killed`` how, if something outside of it killed it.
    """

    process: ProcessEvidence | None = None
    failure: Failure | None = None
    unavailable: Unavailable | None = None
    values: str = ""
    fault: str = ""
    restarts: bool = False
    killed: str = ""


@dataclass(eq=False, kw_only=True)
class GroupObserver(Observer):
    """An observer of one process of a group. All of them observe the same programs in turn."""

    group: Group
    _step: str = field(default="", init=False)
    _agreed: bool = field(default=False, init=False)
    _differs: str = field(default="", init=False)

    def observe(
        self, workload: Workload, variant: Variant, target: str, growth_seconds: float | None = None
    ) -> Evidence:
        """Measure one variant on one target, together with the other processes.

        Raises:
            ProcessLost: a process is gone.
        """
        before = unseen(workload, variant, resolve(target))
        if workload.framework != "jax":
            return replace(before, unavailable=_ONE_FRAMEWORK)
        try:
            seen = self._observe_once(before, workload, variant, growth_seconds)
        # The process may have been killed during Assay's own work too.
        except ObservationError:
            if not self._killed:
                raise
        else:
            if not self._killed:
                return seen
        first = self._killed
        again = self._observe_once(before, workload, variant, growth_seconds)
        return replace(again, retries=(first,))

    def _despite_a_kill(self, measure: Callable[[], _Measured]) -> _Measured:
        """One attempt: all processes make the second one together."""
        return measure()

    def _observe_once(
        self, before: Evidence, workload: Workload, variant: Variant, growth_seconds: float | None
    ) -> Evidence:
        self._step, self._agreed, self._differs = "/".join(before.key), False, ""
        self._start_together()
        own, fault = before, ""
        try:
            own = super().observe(workload, variant, before.target, growth_seconds)
        except ObservationError as error:
            fault = str(error)
        # A program that ended before it asked must take the step ``ready`` too.
        if not self._agreed:
            self._agree(None)
        if self._differs:
            failure = Failure(kind=FailureKind.COMPILER, message=self._differs)
            own = replace(own, failure=failure)
        index = self.group.process.index
        share = Share(
            process=next((each for each in own.processes if each.index == index), None),
            failure=own.failure,
            unavailable=own.unavailable,
            values=_digest(own),
            fault=fault,
            restarts=self._child is None or not self._child.is_alive,
            killed=self._killed,
        )
        failed = bool(share.fault or share.failure or share.unavailable)
        words = self._exchange("ended", msgspec.msgpack.encode(share), failed=failed)
        shares = [msgspec.msgpack.decode(word.content, type=Share) for word in words]
        if any(each.restarts for each in shares):
            self.close()
        killed = [self._of(k, each.killed) for k, each in enumerate(shares) if each.killed]
        self._killed = next(iter(killed), "")
        return merged(own, shares, first_failure(words))

    def _start_together(self) -> None:
        """Start a new child in all processes, if one of them needs it."""
        needed = self._child is None or not self._child.is_alive
        host = self.group.process.host
        # Each group gets a new port: that of the last group may not be free yet.
        offer = free_port(host) if self.group.process.index == 0 else 0
        words = self._exchange("start", msgspec.json.encode((needed, offer)))
        asked = [msgspec.json.decode(word.content, type=tuple[bool, int]) for word in words]
        if not any(need for need, _ in asked):
            return
        self.close()
        process, why = replace(self.group.process, port=asked[0][1]), ""
        try:
            self._start("--process", msgspec.json.encode(process).decode())
        except ObservationError as error:
            why = str(error)
        words = self._exchange("started", why.encode(), failed=bool(why))
        if failed := first_failure(words):
            self.close()
            raise ObservationError(self._of(failed.source, failed.content.decode()))

    def _answers(self, request: Request, patience: Callable[[], float]) -> Iterator[Answer]:
        for answer in super()._answers(request, patience):
            if answer.asks:
                self._agree(answer.evidence)
            yield answer

    def _agree(self, seen: Evidence | None) -> None:
        """Let the child run its program, if every process is about to run the same one."""
        self._agreed = True
        words = self._exchange("ready", _signature(seen) if seen else b"")
        signatures = [word.content for word in words]
        others = [k for k, each in enumerate(signatures) if each != signatures[0]]
        if others and all(signatures):
            self._differs = self._of(others[0], "it compiled another program than process 0")
        if seen and self._child:
            # A child that died in the meantime is found when its answer is read.
            with suppress(OSError):
                self._child.send(_STOP if others else RUN, self.timeout_seconds)

    def _receive(self, child: Child, seconds: float) -> bytes:
        return self.group.receive(child, seconds)

    def _exchange(self, step: str, content: bytes, *, failed: bool = False) -> list[Word]:
        return self.group.exchange(f"{step} {self._step}", content, failed=failed)

    def _of(self, index: int, words: str) -> str:
        return f"process {index} of {self.group.process.count}: {words}"


def merged(own: Evidence, shares: Sequence[Share], first: Word | None) -> Evidence:
    """The evidence of one process with that of all; the first failure is that of the program.

    Raises:
        ObservationError: Assay failed in one of them.
    """
    count = len(shares)
    for index, share in enumerate(shares):
        if share.fault:
            raise ObservationError(f"process {index} of {count}: {share.fault}")
    processes = tuple(each.process for each in shares if each.process)
    seen = replace(own, processes=processes or own.processes)
    if first is None:
        values = [each.values for each in shares]
        other = next((k for k, each in enumerate(values) if each != values[0]), None)
        if other is None:
            return seen
        words = f"process {other} of {count} computed other values than process 0"
        return replace(seen, failure=Failure(kind=FailureKind.EXECUTION, message=words))
    share = shares[first.source]
    same = all((e.failure, e.unavailable) == (share.failure, share.unavailable) for e in shares)
    where = "" if same else f"process {first.source} of {count}: "
    failure, unavailable = share.failure, share.unavailable
    return replace(
        seen,
        failure=failure and replace(failure, message=where + failure.message),
        unavailable=unavailable and replace(unavailable, reason=where + unavailable.reason),
    )


def _digest(seen: Evidence) -> str:
    """A digest of the results, equal for all programs without results."""
    values = sha256()
    for tensor in seen.values or ():
        values.update(repr((tensor.path, tensor.dtype, tensor.shape)).encode() + tensor.data)
    return values.hexdigest()


def _signature(seen: Evidence) -> bytes:
    """What must be equal for programs to run together: what they exchange, take and give."""
    module = seen.module
    if module is None:
        return b"unread"
    collectives = [
        (each.opcode, each.devices, each.nbytes_per_execution, each.executions)
        for each in module.collectives
    ]
    made = module.inventory
    arrays = [list(map(str, each)) for each in (made.arguments, made.outputs)] if made else []
    return sha256(repr((collectives, arrays)).encode()).digest()
