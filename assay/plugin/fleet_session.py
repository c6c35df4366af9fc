"""The pytest session of a fleet's worker: it runs the items that its standard input names."""

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pytest

from assay import plugin
from assay.fleet.messages import Ended, Job, Place, Refused, encode, identity
from assay.isolate.child import READY, own_pipes, read, write
from assay.model.verdict import ExitCode
from assay.plugin import NODE, RUN, start
from assay.plugin.session import ALREADY_IMPORTED, launch

_WITHOUT: Final[dict[str, Any]] = {
    # The driver has selected the items, and stops the run.
    **dict.fromkeys(("keyword", "markexpr"), ""),
    **dict.fromkeys(
        ("lf", "failedfirst", "newfirst", "stepwise", "stepwise_skip", "usepdb"), False
    ),
    "deselect": None,
    "maxfail": 0,
    # It alone writes reports, and finds the run again.
    "xmlpath": None,
    "assay_history": "",
    "assay_resume": None,
    # Workers have no workers.
    "numprocesses": None,
    "dist": "no",
    "tx": [],
}
_LARGE: Final = (".values.msgpack", ".hlo.pb.gz")
"""Files that a run deletes at its end. Programs are kept if baselines are updated."""
_KEPT: Final = {"hlo"}
LOG: Final = "pytest.log"
"""What pytest said of a run on one machine of many."""
_SHOWN: Final = 3
_CHARACTERS: Final = 400


class Worker:
    """A plugin that runs items on request and answers with their reports."""

    def __init__(self, job: Job, place: Place, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._job, self._place = job, place
        self._requests, self._answers = requests, answers
        self._problems: list[str] = []
        self._reports: list[pytest.TestReport] = []
        self._sent: dict[Path, int] = {}
        self.has_run = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Make this a worker, as those of pytest-xdist are."""
        for name, value in _WITHOUT.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.assay_results_dir = self._place.folder
        config.workerinput = {RUN: self._job.run, NODE: self._place.name}  # type: ignore[attr-defined]

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Start Assay."""
        start(config)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what cannot be collected here."""
        if report.failed:
            self._problems.append(f"{report.nodeid}: {str(report.longrepr).strip()[-_CHARACTERS:]}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Select what the driver selected, in its order."""
        found = {item.nodeid: item for item in items}
        missing = [each for each in self._job.selected if each not in found]
        if missing:
            shown = ", ".join(missing[:_SHOWN])
            self._problems.append(
                f"got {self._place.name} without {len(missing):,} of the driver's tests ({shown}), "
                "wanted the same files on every machine"
            )
        items[:] = [found[each] for each in self._job.selected if each in found]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run one group after another, until the requests end."""
        self.has_run = True
        items = {item.nodeid: item for item in session.items}
        self._problems[:0] = _differences(self._job, self._place)
        while names := self._next():
            group = [items[name] for name in names]
            for item, following in zip(group, [*group[1:], None], strict=True):
                self._reports = []
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                hook = item.config.hook.pytest_report_to_serializable
                data = [hook(config=item.config, report=each) for each in self._reports]
                ended = Ended(
                    item=item.nodeid,
                    reports=msgspec.json.encode(data, enc_hook=str),
                    files=dict(self._new_files()),
                )
                write(self._answers, encode(ended))
        return True

    def _next(self) -> tuple[str, ...]:
        """The names of the next group; empty when there is none."""
        while True:
            try:
                names = msgspec.msgpack.decode(read(self._requests, None), type=tuple[str, ...])
            except EOFError:
                return ()
            write(self._answers, refusal("; ".join(self._problems)))
            if not self._problems:
                return names

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report for the driver."""
        self._reports.append(report)

    def _new_files(self) -> Iterator[tuple[str, bytes]]:
        """What was added to the run's folder, and is not deleted at its end."""
        folder = Path(self._place.folder) / self._job.run
        for path in sorted(folder.glob("*/*")):
            name = path.relative_to(folder)
            is_large = path.name.endswith(_LARGE) and name.parts[0] not in _KEPT
            if path.name.startswith(".") or path.suffix == ".lock":
                continue
            if is_large and not (self._job.keeps_programs and path.name.endswith(_LARGE[1])):
                continue
            changed = path.stat().st_mtime_ns
            if self._sent.get(path) != changed:
                self._sent[path] = changed
                yield str(name), path.read_bytes()


def refusal(problem: str) -> bytes:
    """The answer to a group: empty if it runs."""
    return encode(Refused(reason=problem)) if problem else b""


def _differences(job: Job, place: Place) -> Iterator[str]:
    """What of the driver's Assay and toolchain is missing here, or differs."""
    here = identity()
    differ = [
        f"{name} {here.get(name, 'missing')} ({version} is wanted)"
        for name, version in job.identity.items()
        if here.get(name) != version
    ]
    if differ:
        yield (
            f"got {place.name} with {', '.join(differ)}, wanted the same packages on every machine"
        )


def main() -> int:
    """Serve one driver."""
    requests, answers = own_pipes()
    write(answers, READY)
    job = msgspec.msgpack.decode(read(requests, None), type=Job)
    place = msgspec.msgpack.decode(read(requests, None), type=Place)
    if job.root:
        os.chdir(job.root)
    if not job.selected:
        return _whole(job, place, requests, answers)
    worker, said = Worker(job, place, requests, answers), io.StringIO()
    code = int(ExitCode.CRASHED.value)
    # Output is discarded here, because without its terminal plugin pytest has no -q and -v.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(said):
        try:
            code = int(pytest.main([*_plugin(), *job.arguments], plugins=[worker]))
        # pytest's own start raises anything, such as warnings of a strict project.
        except Exception:  # noqa: BLE001
            traceback.print_exc()
    words = said.getvalue().strip()
    if not worker.has_run:
        read(requests, None)
        end = words[-_CHARACTERS:]
        write(answers, refusal(f"got pytest on {place.name} that ended with {code}: {end}"))
    sys.stderr.write(words)
    return code


def _plugin() -> list[str]:
    """Options that load Assay's plugin where only its source is: on another toolchain."""
    installed = entry_points(group="pytest11", name="assay")
    return [*ALREADY_IMPORTED, *([] if installed else ["-p", plugin.__name__])]


def _whole(job: Job, place: Place, requests: IO[bytes], answers: IO[bytes]) -> int:
    """Run pytest as on one machine, and send the exit code and the folder of the run."""
    (item,) = msgspec.msgpack.decode(read(requests, None), type=tuple[str, ...])
    problem = "; ".join(_differences(job, place))
    write(answers, refusal(problem))
    if problem:
        return ExitCode.MISUSE.value
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code, folder = launch([*_plugin(), *job.arguments, f"--assay-results-dir={place.folder}"])
    files = {LOG: said.getvalue().encode()}
    for path in sorted(folder.rglob("*")) if folder else ():
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".lock":
            files[str(path.relative_to(folder or path))] = path.read_bytes()
    write(answers, encode(Ended(item=item, reports=msgspec.json.encode(code), files=files)))
    return code


if __name__ == "__main__":
    sys.exit(main())
