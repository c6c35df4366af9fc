"""A group says what each process said, or names the process that is lost."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from assay.isolate.group import Group, first_failure, free_port
from assay.model.blame import WrongValue
from assay.model.process import Process

HOST = "127.0.0.1"


def joined(*processes: Process, seconds: float = 20.0) -> list[Future[Group]]:
    """Each process joins in a thread of its own."""
    with ThreadPoolExecutor(len(processes)) as pool:
        return [pool.submit(Group, each, seconds, 1.0) for each in processes]


def processes(count: int) -> list[Process]:
    port = free_port(HOST)
    return [Process(host=HOST, port=port, count=count, index=index) for index in range(count)]


@contextmanager
def group_of(count: int) -> Iterator[list[Group]]:
    groups = [each.result() for each in joined(*processes(count))]
    with ExitStack() as stack:
        for group in groups:
            stack.callback(group.close)
        yield groups


def at_once(*calls: Callable[[], object]) -> list[Future[object]]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [pool.submit(call) for call in calls]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_every_process_hears_all_words_in_one_order(count: int) -> None:
    with group_of(count) as groups:
        for step in ("first", "second"):
            calls = [
                lambda group=group, step=step: group.exchange(  # type: ignore[misc]
                    step, str(group.process.index).encode(), failed=group.process.index > 0
                )
                for group in groups
            ]
            heard = [each.result() for each in at_once(*calls)]
            assert heard == [heard[0]] * count
            assert [word.content for word in heard[0]] == [b"%d" % k for k in range(count)]
            failed = [word.order for word in heard[0] if word.failed]
            first = first_failure(heard[0])
            assert (first.order if first else None) == min(failed, default=None)


def test_processes_at_different_steps_name_both_steps() -> None:
    with group_of(2) as (zero, one):
        ends = at_once(lambda: zero.exchange("start a"), lambda: one.exchange("exit"))
        said = [str(each.exception()) for each in ends]
    assert said == [
        "process 1 of 2 is lost: it is at 'exit', and this process at 'start a'",
        "process 0 of 2 is lost: it is at 'start a', and this process at 'exit'",
    ]


@pytest.mark.parametrize("leaves", [1, 2])
def test_a_process_that_leaves_is_named_by_all_others(leaves: int) -> None:
    with group_of(3) as groups:
        # As the system does for a process that is killed.
        with socket.socket(fileno=os.dup(groups[leaves]._reader.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        others = [group for group in groups if group.process.index != leaves]
        ends = at_once(*(lambda group=group: group.exchange("start") for group in others))  # type: ignore[misc]
        said = {str(each.exception()) for each in ends}
        again = at_once(*(lambda group=group: group.exchange("exit") for group in others))  # type: ignore[misc]
        assert {str(each.exception()) for each in again} == said
    assert said == {f"process {leaves} of 3 is lost: its connection ended"}


def test_another_count_is_refused_in_all_processes() -> None:
    zero, one = processes(2)
    three = Process(host=HOST, port=one.port, count=3, index=1)
    for end in joined(zero, three):
        with pytest.raises(WrongValue, match=r"got process 1 of 3, wanted .* of process 0, 2"):
            end.result()


def test_one_index_twice_is_refused_in_all_processes() -> None:
    zero, one, _ = processes(3)
    for end in joined(zero, one, one):
        with pytest.raises(WrongValue, match="got process 1 of 3 twice"):
            end.result()


def test_processes_that_never_start_are_named() -> None:
    zero, one, _, _ = processes(4)
    for end in joined(zero, one, seconds=1.0):
        with pytest.raises(WrongValue, match=r"got 2 of 4 .* within 1 s, wanted process 2, 3 too"):
            end.result()


def test_process_0_that_never_starts_is_named() -> None:
    _, one = processes(2)
    with pytest.raises(WrongValue, match=f"got no answer of process 0 at {HOST}:{one.port}"):
        Group(one, 0.5, 1.0)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server((HOST, 0)) as taken:
        process = Process(host=HOST, port=taken.getsockname()[1], count=1, index=0)
        with pytest.raises(WrongValue, match="where process 0 cannot listen"):
            Group(process, 1.0, 1.0)


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 3) + b"\xc1\xc1\xc1"]
)
def test_a_stranger_at_the_port_is_ignored(said: bytes) -> None:
    (zero,) = processes(1)

    def strange() -> None:
        for _ in range(200):
            try:
                with socket.create_connection((HOST, zero.port), timeout=1) as connection:
                    connection.sendall(said)
                    return
            except OSError:
                continue

    ends = at_once(strange, lambda: Group(zero, 20.0, 1.0))
    group = ends[1].result()
    assert isinstance(group, Group)
    assert len(group.exchange("start")) == 1
    group.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "wanted HOST:PORT,COUNT,INDEX"),
        ("suites", "wanted HOST:PORT,COUNT,INDEX"),
        ("host:1,2", "wanted HOST:PORT,COUNT,INDEX"),
        ("host:1,2,-1", "wanted HOST:PORT,COUNT,INDEX"),
        (":1,2,0", "wanted HOST:PORT,COUNT,INDEX"),
        ("host:65536,2,0", "a port up to 65535"),
        ("host:0,2,0", "a port up to 65535"),
        ("host:1,2,2", "an INDEX from 0 to COUNT - 1"),
        ("host:1,0,0", "an INDEX from 0 to COUNT - 1"),
    ],
)
def test_a_process_of_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(WrongValue, match=words):
        Process.parse(text)


def test_a_process_is_read_from_its_form() -> None:
    assert Process.parse("[::1]:8476,4,3") == Process(host="::1", port=8476, count=4, index=3)
