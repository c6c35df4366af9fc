"""Faults of the process that observes: its start, its answers, its end, and its targets."""

from __future__ import annotations

import signal
import struct
from dataclasses import replace
from typing import Any

import msgspec

from assay.isolate.messages import Answer
from tests.faults.changes import alters, gives, hangs, is_killed, raises
from tests.faults.fault import CRASHED, FAILED, SUITE, Fault
from tests.faults.reading import COMPILES

_MINE = (*SUITE, *COMPILES)
_OBSERVER = "the observer gave no answer that Assay knows"
_FAILS = "Assay itself failed (exit 3)"
_NOT_KEPT = ("compiles · mine/stacks/looped", "(exit 1)")


def _of_another(answer: bytes) -> bytes:
    found = msgspec.msgpack.decode(answer, type=Answer)
    assert found.evidence is not None
    evidence = replace(found.evidence, workload="another", variant="another")
    return msgspec.msgpack.encode(msgspec.structs.replace(found, evidence=evidence))


def _answers(name: str, alter: Any, *says: str) -> Fault:
    return Fault(
        name=name,
        place="assay.isolate.server:_answer",
        change=alters(alter),
        command=_MINE,
        ends=CRASHED,
        says=(*says, _FAILS),
    )


OBSERVING = (
    Fault(
        name="the observer's process is killed as it starts",
        place="assay.targets.devices:prepare",
        change=is_killed(),
        command=_MINE,
        ends=CRASHED,
        says=("the observer did not start: the process ended by SIGKILL", _FAILS),
    ),
    Fault(
        name="the observer's process raises as it starts",
        place="assay.targets.devices:prepare",
        change=raises(),
        command=_MINE,
        ends=CRASHED,
        says=("the observer did not start: the process ended by exit status 1", _FAILS),
    ),
    Fault(
        name="the observer's process is killed while it compiles",
        place="assay.frameworks.jax:JaxFramework.compile",
        change=is_killed(),
        command=_MINE,
        ends=FAILED,
        says=("the process ended by SIGKILL", *_NOT_KEPT),
    ),
    Fault(
        name="the observer's process aborts at the second program",
        place="assay.frameworks.jax:JaxFramework.compile",
        change=is_killed(after=1, number=signal.SIGABRT),
        ends=FAILED,
        says=("the process ended by SIGABRT", "(exit 1)"),
    ),
    Fault(
        name="the observer's process is killed while it reads",
        place="assay.hlo.summary:read",
        change=is_killed(),
        command=_MINE,
        ends=CRASHED,
        says=("the process ended by SIGKILL", _FAILS),
    ),
    Fault(
        name="the compiler hangs",
        place="assay.frameworks.jax:JaxFramework.compile",
        change=hangs(),
        command=_MINE,
        more=("--assay-compile-timeout=2",),
        ends=FAILED,
        says=("no answer within 2 s", *_NOT_KEPT),
    ),
    Fault(
        name="the frame of an answer breaks off",
        place="assay.isolate.child:read",
        change=alters(lambda payload: payload[: len(payload) // 2]),
        command=_MINE,
        ends=CRASHED,
        says=(_OBSERVER, _FAILS),
    ),
    _answers("an answer is garbled", lambda answer: bytes(reversed(answer)), _OBSERVER),
    _answers("an answer breaks off", lambda answer: answer[: len(answer) // 2], _OBSERVER),
    _answers("an answer is empty", lambda _: b"", _OBSERVER),
    _answers("an answer holds nothing", lambda _: msgspec.msgpack.encode(Answer()), "observer"),
    _answers("an answer is of another program", _of_another, "another"),
    Fault(
        name="a frame has the length of another",
        place="assay.isolate.server:_answer",
        change=alters(lambda answer: struct.pack("<I", 2**31) + answer),
        command=_MINE,
        ends=CRASHED,
        says=(_OBSERVER, _FAILS),
    ),
    Fault(
        name="resolve raises",
        place="assay.targets.catalog:resolve",
        change=raises(),
        command=_MINE,
        ends=CRASHED,
        says=("assay/targets/catalog.py",),
    ),
    Fault(
        name="a target has no devices",
        place="assay.targets.devices:live_devices",
        change=gives(()),
        command=_MINE,
        ends=CRASHED,
        says=("assay/frameworks/framework.py", _FAILS),
    ),
    Fault(
        name="pickled raises",
        place="assay.isolate.messages:pickled",
        change=raises(),
        command=_MINE,
        ends=CRASHED,
        says=("assay/isolate/messages.py", _FAILS),
    ),
)
