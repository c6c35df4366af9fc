"""The readers of what runs write: records, measurements, baselines, rules, certificates, history.

A file of a run may come from another machine, or from an artifact of CI. What is accepted is also
put into every report, which must not control the terminal or break the format.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET
from zlib import crc32

import msgspec

from assay.isolate.messages import Answer
from assay.isolate.observer import ObservationError, answer_of
from assay.model.blame import WrongValue
from assay.model.evidence import Evidence
from assay.model.history import HistoryError
from assay.model.qualification import Certificate
from assay.model.target import TargetError
from assay.model.timing import Times
from assay.model.verdict import USUAL, BaselineNumber, Invocation, Record
from assay.report.formats import Format, formatted, junit
from assay.report.run_page import run_page
from assay.report.summary import summary
from assay.report.terminal import print_run
from assay.store import baselines, certificate, evidence, history, records, rules, signature
from assay.store.evidence import GROWTH, PROGRAMS, TIMES, MeasurementCacheError
from assay.targets.catalog import device_model
from benchmarks.fuzz.engine import Reader, Refused, WrongResult
from benchmarks.fuzz.hlo import check_terminal, printed, seeds_of
from benchmarks.fuzz.mutations import of_bytes, of_json, of_json_lines, of_lines, of_msgpack

_REPORTED: Final = 4
"""One accepted run of so many is put into every report, and into a database."""


@cache
def _folder() -> Path:
    """A folder of this process, in memory if there is a file system for that."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of a random name is made in it
    return Path(tempfile.mkdtemp(prefix="assay-fuzz-", dir=memory if memory.is_dir() else None))


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@contextmanager
def _refuses(*errors: type[Exception]) -> Iterator[None]:
    """The reader's own errors, which must be sentences that a terminal can show."""
    try:
        yield
    except errors as error:
        raise Refused(str(error)) from error


def read_records(data: bytes) -> None:
    """Read the records of a run, and report them."""
    path = _file("run/records.jsonl", data)
    with _refuses(records.RecordsError):
        seen = records.load(path)
    if b"".join(map(records.line_of, seen)) != b"".join(map(records.line_of, _again(path, seen))):
        raise WrongResult("other records once they are written anew")
    if seen and crc32(data) % _REPORTED == 0:
        report(seen)
        with history.opened(str(_folder() / "history.db")) as database, _refuses(HistoryError):
            database.add(path)
            database.trends(lambda _: True)


def _again(path: Path, seen: Sequence[Record]) -> Sequence[Record]:
    path.write_bytes(b"".join(map(records.line_of, seen)))
    return records.load(path)


def report(seen: Sequence[Record], invocation: Invocation = USUAL) -> None:
    """Put the records into every report, and raise WrongResult for one that is broken."""
    check_terminal(printed(print_run, seen, (), (), invocation, verbose=True))
    ET.fromstring(junit(seen))  # noqa: S314 - Assay's own
    for form in Format:
        check_format(form, formatted(form, seen, invocation))
    # Markdown shows what stands in code as it is.
    markdown = _CODE.sub("", summary(seen, (), (), invocation))
    for page in (markdown, run_page(seen, (), (), invocation, (), (), {})):
        if "\x1b" in page or "<script>alert" in page:
            raise WrongResult("a page with a program's script")


_CODE: Final = re.compile(r"(?<![`\\])(`+)(?!`)((?!\n\n).)+?(?<!`)\1(?!`)", re.DOTALL)


def check_format(form: Format, text: str) -> None:
    """Raise WrongResult for a report that its reader would misunderstand."""
    if form in {Format.ANNOTATIONS, Format.PROMETHEUS}:
        check_terminal(text)
    else:
        json.loads(text)
    lines = text.splitlines()
    if form is Format.ANNOTATIONS and not all(each.startswith(_COMMANDS) for each in lines):
        raise WrongResult("a line that is no annotation of Assay")


_COMMANDS: Final = ("::error ", "::notice ")


def read_invocation(data: bytes) -> None:
    """Read how a run was started and ended, and report it."""
    path = _file("started/invocation.json", data)
    seen = records.load(_file("started/records.jsonl", seeds_of("records")[0]))
    with _refuses(records.RecordsError):
        invocation = records.invocation_of(path.parent)
    report(seen, invocation)


def read_evidence(data: bytes) -> None:
    """Read the measurements of a program, and draw its page."""
    path = _file("evidence/x.json", data)
    with _refuses(MeasurementCacheError):
        seen: Evidence = (PROGRAMS, GROWTH)[crc32(data) % 2].load(path)
    msgspec.json.encode(seen)


def read_times(data: bytes) -> None:
    """Read times, of a program or of two toolchains."""
    path = _file("times/x.json", data)
    with _refuses(MeasurementCacheError):
        seen: Times = TIMES.load(path)
        check_terminal(printed(print_run, (), (seen,), ()))


def read_values(data: bytes) -> None:
    """Read the values that a program computed."""
    with _refuses(MeasurementCacheError):
        evidence.values_in(_file("x.values.msgpack", data))


def read_answer(data: bytes) -> None:
    """Read what a child process answers."""
    with _refuses(ObservationError):
        answer = answer_of(data)
    assert isinstance(answer, Answer)


def read_baselines(data: bytes) -> None:
    """Read stored numbers."""
    root = _folder() / "baselines"
    path = _file("baselines/cpu-8/dus_remat.json", data)
    with _refuses(baselines.BaselineError):
        ((_, seen),) = baselines.load_all(root)
    again = baselines.save(_folder() / "again", seen)
    if seen.baselines and not again.is_relative_to(_folder() / "again"):
        raise WrongResult("a file outside of the folder")
    stored = baselines.load(_folder() / "again", seen.suite, seen.target).baselines
    if seen.baselines and _sorted(stored) != _sorted(seen.baselines):
        raise WrongResult("other numbers once they are stored")
    path.unlink()


def _sorted(numbers: Mapping[baselines.Key, Sequence[BaselineNumber]]) -> dict[Any, list[str]]:
    """The numbers of each key. Their order means nothing in a file, nor does that of packages."""
    return {
        key: sorted(repr((n.value, n.machine, sorted(n.toolchain.items()))) for n in found)
        for key, found in numbers.items()
    }


def read_coverage(data: bytes) -> None:
    """Read the number of verdicts that a run must reach."""
    _file("coverage/coverage.json", data)
    with _refuses(baselines.BaselineError):
        seen = baselines.load_coverage(_folder() / "coverage")
    assert seen
    for counts in seen.counts.values():
        if any(min(each) < 0 for each in counts.values()):
            raise WrongResult("fewer than no verdicts")


def read_rules(data: bytes) -> None:
    """Read the rules of a qualification."""
    with _refuses(WrongValue):
        rules.load(_file("rules.toml", data))


def read_certificate(data: bytes) -> None:
    """Check a certificate and the evidence next to it."""
    folder = _folder() / "certified"
    for name in ("records.jsonl", "qualification-rules.toml"):
        if not (folder / name).exists():
            _file(f"certified/{name}", (_CERTIFIED / name).read_bytes())
    path = _file(f"certified/{certificate.NAME}", data)
    with _refuses(certificate.CertificateError, WrongValue):
        seen = certificate.verify(path)
    if not seen.mismatches and seen.certificate not in _genuine():
        raise WrongResult("a changed certificate that matches")


@cache
def _genuine() -> list[Certificate]:
    return [msgspec.json.decode(each, type=Certificate) for each in seeds_of("certificate")]


_CERTIFIED: Final = Path(__file__).parents[2] / "tests" / "fuzz" / "certified"


def read_key(data: bytes) -> None:
    """Read a key of signatures."""
    with _refuses(WrongValue):
        signature.public_key(_file("key.pem", data))


def read_device(data: bytes) -> None:
    """Read a device model."""
    with _refuses(TargetError):
        device_model(data.decode(errors="replace"), "fuzzed.toml")


def read_database(data: bytes) -> None:
    """Read a database of runs."""
    with _refuses(HistoryError), history.opened(str(_file("fuzzed.db", data))) as database:
        database.trends(lambda _: True)


def _databases() -> Sequence[bytes]:
    path = _folder() / "seed.db"
    path.unlink(missing_ok=True)
    with history.opened(str(path)) as database:
        database.add(_file("seed/records.jsonl", seeds_of("records")[0]))
    return (path.read_bytes(),)


_TOML: Final = ("schema = 1", "[[feature]]", "= {", "[[", "'''", "= nan", "= [[[[", "a.b.c = 1")


def _reader(
    name: str,
    read: Callable[[bytes], object],
    mutate: Any = of_json,
    share: float = 1.0,
) -> Reader:
    return Reader(name=name, read=read, mutate=mutate, seeds=lambda: seeds_of(name), share=share)


RECORDS: Final = _reader("records", read_records, of_json_lines, share=2.0)
INVOCATIONS: Final = _reader("invocation", read_invocation, share=0.1)
EVIDENCE: Final = _reader("evidence", read_evidence, share=2.0)
TIMED: Final = _reader("times", read_times, share=0.5)
VALUES: Final = _reader("values", read_values, of_msgpack, share=0.5)
ANSWERS: Final = _reader("answer", read_answer, of_msgpack, share=2.0)
BASELINES: Final = _reader("baselines", read_baselines, share=1.5)
COVERAGE: Final = _reader("coverage", read_coverage, share=0.5)
RULES: Final = _reader("rules", read_rules, of_lines(_TOML), share=0.5)
CERTIFICATES: Final = _reader("certificate", read_certificate, share=0.5)
KEYS: Final = _reader("key", read_key, of_bytes, share=0.3)
DEVICES: Final = _reader("device", read_device, of_lines(_TOML), share=0.3)
DATABASES: Final = Reader(
    name="history", read=read_database, mutate=of_bytes, seeds=_databases, share=0.3
)
