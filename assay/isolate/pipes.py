"""The child's own side of its pipes, which no program that it runs may read or write."""

import os
import select
import threading
from typing import IO


def own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The streams of requests and of answers, taken off standard input and output.

    From here on this process ends once nobody can ask any more.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What a program reads or prints must reach neither the requests nor the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    end_with_parent(requests)
    return requests, answers


def end_with_parent(requests: IO[bytes]) -> None:
    """End this process once nobody can ask any more, even in the middle of a program."""

    def wait() -> None:
        hangup = select.poll()
        hangup.register(requests.fileno(), 0)
        hangup.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
