"""A warm interpreter: Python whose processes start with pytest, jax and Assay imported already.

An inner run starts two or three processes, and each imports for two to three seconds before it
does anything. ``Warm`` imports once, and forks a process for each command. The command is found
where any other is: ``Warm.executable`` is a file that takes Python's own arguments, and it is
``sys.executable`` in the processes that it starts, so that observers and workers of xdist are warm
too. Each is a process with its own pid, which may be killed. ``shared`` is the one that all tests
of a process use.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

_SOCKET = "socket"
_MESSAGE_BYTES = 2**20
# What the processes of an inner run import, backends of jax excepted.
_IMPORTED = (
    "_pytest.pytester jax jax.experimental.topologies pytest pytest_benchmark.plugin xdist.plugin "
    "xdist.remote xdist.dsession execnet.gateway_base hypothesis _hypothesis_pytestplugin "
    "pytest_timeout assay.cli assay.claims assay.inspection assay.isolate.server assay.plugin "
    "assay.plugin.session assay.frameworks.jax assay.frameworks.hlo rich.console rich.markdown "
    "tests.faults.table"
)
# What is imported already cannot be rewritten, and a strict project makes that an error.
_PYTEST_OPTIONS = (
    "-W",
    "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
)
_WORDS = {"true": True, "false": False}
_STUB = """#!{python} -IS
import array, json, os, signal, socket, sys
request = json.dumps([sys.argv[0], sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({socket!r})
    socket.send_fds(server, [request], [0, 1, 2])
    code = int(server.recv(16) or b"1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Warm:
    """The interpreter, for as long as it is entered."""

    def __init__(self, folder: Path) -> None:
        self.executable = folder / "python"
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        folder = self.executable.parent
        text = _STUB.format(python=sys.executable, socket=str(folder / _SOCKET))
        self.executable.write_text(text)
        self.executable.chmod(0o755)
        command = [sys.executable, "-m", __name__, str(folder)]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("JAX_")}
        environment = {**kept, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._server = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._server.stdout
        assert self._server.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server
        self._server.communicate()


@cache
def shared() -> Warm:
    """The warm interpreter of this process, started when it is first asked for."""
    ends = contextlib.ExitStack()
    atexit.register(ends.close)
    folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="warm-"))
    return ends.enter_context(Warm(Path(folder)))


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    seconds: float,
    python: str = "",
) -> tuple[int, str]:
    """The exit code of ``python ARGUMENTS``, and all that it and its children printed.

    In the shared warm interpreter, unless ``python`` is another.
    """
    ended = subprocess.run(
        [python or str(shared().executable), *arguments],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    return ended.returncode, ended.stdout.decode(errors="replace")


def _serve(folder: Path) -> None:
    """Fork for each request; returns in the processes that are to run one, prepared for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / _SOCKET))
        listener.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Keepers are not waited for.
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if 0 in ready:  # The parent is gone, or closed us.
                os._exit(0)
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _keep(connection)
                return
            connection.close()


def _keep(connection: socket.socket) -> None:
    """Tell the caller how its process ended, and end the process if the caller is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 3)
    process = os.fork()
    if process == 0:
        connection.close()
        _become(*json.loads(request), files)
        return
    for number in files:
        os.close(number)
    end = os.pidfd_open(process)
    ended, _, _ = select.select([end, connection], [], [])
    if end not in ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(
    executable: str, arguments: list[str], cwd: str, env: dict[str, str], files: list[int]
) -> None:
    os.setsid()
    for here, number in enumerate(files):
        os.dup2(number, here)
        os.close(number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.executable = executable
    sys.argv[:] = [executable, *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _configure_jax(env)
    entries = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = list(dict.fromkeys([*entries, *sys.path]))


def _configure_jax(env: Mapping[str, str]) -> None:
    """What jax reads from the environment as it is imported, which it was under another one."""
    import jax

    for variable, text in env.items():
        name = variable.lower()
        if name.startswith("jax_") and name in jax.config.values:
            value = _WORDS.get(text.lower(), int(text) if text.isdigit() else text)
            jax.config.update(name, value)


def _run() -> int:
    """What ``python`` does with the arguments of this process: ``-m MODULE …`` or ``-c CODE …``."""
    options = sys.argv[1:]
    while options[0] not in ("-m", "-c"):
        options.pop(0)  # Those of buffers and of the path, which is set already.
    kind, what, *rest = options
    sys.argv[:] = [kind, *(_PYTEST_OPTIONS if what == "pytest" else ()), *rest]
    try:
        if kind == "-m":
            sys.modules.pop(what, None)  # A second import of it is what any interpreter does here.
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 -- as the interpreter itself does.
        traceback.print_exc()
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """End this process without taking a thousand modules apart, which takes half a second."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for _name in _IMPORTED.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(_name)
    gc.collect()
    gc.freeze()
    _serve(Path(sys.argv[1]))
    from tests.faults.injection import inject

    inject(os.environ)
    _leave(_run())
