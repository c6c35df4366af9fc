"""One mutant, one trial: the changed file in a copy of the tree, and the tests that run its line.

A trial is a fork of this process, which has imported everything but ``assay`` and the tests. The
mutant is a file, so that every child process of a test sees it too.
"""

import contextlib
import importlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import pytest

from benchmarks.mutation import lines
from benchmarks.mutation.mutants import Mutant

_IMPORTED_ONCE: Final = (
    *("cloudpickle", "filelock", "google.protobuf", "hypothesis.strategies", "jax.numpy"),
    *("jaxlib._hlo", "msgspec", "numpy", "packaging.specifiers", "pytest_benchmark.plugin"),
    *("pytest_timeout", "rich.table", "scipy.stats", "typer.testing", "xdist"),
)
_OPTIONS: Final = (
    *("-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of what is imported already
)
_LEAST_SECONDS: Final = 60.0
_TIMES_AS_LONG: Final = 5.0
_MAPPING_SECONDS: Final = 7200.0


class End(Enum):
    """How a trial ended; a mutant that crashes or hangs its tests is noticed."""

    FAILED = "noticed"
    TIMEOUT = "noticed by timeout"
    SURVIVED = "survived"
    UNTESTED = "survived: no test runs its file"

    @property
    def noticed(self) -> bool:
        """Whether a test failed because of it."""
        return self in (End.FAILED, End.TIMEOUT)


class Tree:
    """A copy of the repository that trials change and restore."""

    def __init__(self, repository: Path, root: Path) -> None:
        self._root = root
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(  # noqa: S603 # the words are those above
            command, cwd=repository, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # deleted, and not yet committed
                shutil.copy2(repository / name, root / name)
        self._trials = 0
        os.environ["PYTHONPATH"] = str(root)
        sys.path.insert(0, str(root))
        os.chdir(root)
        for name in _IMPORTED_ONCE:
            importlib.import_module(name)
        loaded = {name.partition(".")[0] for name in sys.modules} & {"assay", "tests", "memsafe"}
        assert not loaded, f"a trial must import {loaded} itself"

    def mapped(self, tests: Sequence[str]) -> lines.Map:
        """Which of these tests run each line of the unchanged tree."""
        folder = self._root / "lines"
        shutil.copy2(lines.__file__, self._root / "sitecustomize.py")
        lines.begin(folder, 0)

        def work() -> int:
            os.environ[lines.FOLDER] = str(folder)
            lines.start(folder)
            return int(pytest.main([*_OPTIONS, *tests], [_Mapper(folder)]))

        _in_fork(work, _MAPPING_SECONDS, sys.stderr.fileno())
        (self._root / "sitecustomize.py").unlink()
        return lines.Map.read(folder)

    def trial(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> End:
        """Whether one of these tests, which take so long unchanged, notices the mutant."""
        if not tests:
            return End.UNTESTED
        file = self._root / mutant.path
        kept, stat = file.read_bytes(), file.stat()
        self._trials += 1
        file.write_text(mutant.mutated)
        # A time stamp of its own, so that no trial reads the compiled file of another.
        os.utime(file, (self._trials, self._trials))

        def work() -> int:
            files = dict.fromkeys(each.partition("::")[0] for each in tests)
            return int(pytest.main([*_OPTIONS, "-x", *files], [_Chosen(tests)]))

        try:
            with Path(os.devnull).open("w") as nowhere:
                most = _LEAST_SECONDS + _TIMES_AS_LONG * seconds
                return End.FAILED if _in_fork(work, most, nowhere.fileno()) else End.SURVIVED
        except TimeoutError:
            return End.TIMEOUT
        finally:
            file.write_bytes(kept)
            os.utime(file, (stat.st_atime, stat.st_mtime))


def _in_fork(work: Callable[[], int], seconds: float, output: int) -> int:
    """The exit code of ``work`` in a session of its own, all of which is ended then.

    Raises:
        TimeoutError: it took more processor time, or three times as long.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
            code = work()
        except BaseException:  # noqa: BLE001 # the fork ends here, and what ended it is told
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    until = time.monotonic() + 3 * seconds
    ended = 0
    while not ended and time.monotonic() < until:
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
        raise TimeoutError
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        raise TimeoutError
    return os.waitstatus_to_exitcode(status)


class _Chosen:
    """Asks for these tests alone, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {name: number for number, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [each for each in items if each.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda each: self._order[each.nodeid])


class _Mapper:
    """Numbers the tests from 1 and writes down how each ended and how long it took."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._passed = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._count += 1
        self._passed = True
        lines.begin(self._folder, self._count)
        begun = time.perf_counter()
        done = yield
        ended = "passed" if self._passed else "failed"
        with (self._folder / lines.TESTS).open("a") as file:
            file.write(f"{time.perf_counter() - begun:.3f} {ended} {item.nodeid}\n")
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed = self._passed and report.outcome == "passed"
