"""The readers of compiled programs: HloProtos, HLO text, and profiles."""

import json
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from assay.frameworks.hlo import NoModule
from assay.hlo.schema import MODULE, decode, wrap
from assay.isolate.hlo_reader import Reading, read_hlo
from assay.model.evidence import Evidence, Toolchain
from assay.model.inspection import Inspection, Means
from assay.model.summary import ModuleSummary
from assay.report.inspection_json import to_json
from assay.report.inspection_output import print_inspection
from benchmarks.fuzz.engine import Reader, Refused, WrongResult
from benchmarks.fuzz.mutations import of_lines, of_messages

SEEDS: Final = Path(__file__).parents[2] / "tests" / "fuzz" / "seeds"
_PLATFORMS: Final = ("cpu", "cuda", "tpu")
_CONTROL: Final = frozenset(range(32)) - frozenset(b"\t\n\r\f")
_RENDERED: Final = 8
"""One accepted module of so many is also printed and compared with itself written anew."""


def seeds_of(name: str) -> Sequence[bytes]:
    """The seeds of a reader, in the order of their names."""
    return tuple(path.read_bytes() for path in sorted((SEEDS / name).iterdir()))


def read_proto(data: bytes) -> None:
    """Read an HloProto as ``assay inspect FILE --as-is`` does, in this process."""
    if not _CONTROL & set(data[:4096]):
        raise Refused("it is text")  # which another reader covers
    drawn = crc32(data)
    platform = _PLATFORMS[drawn % len(_PLATFORMS)]
    reading = _read(data, platform)
    (summary,) = reading.summaries.values()
    check_summary(summary)
    check_numbers(reading.memory)
    if drawn % _RENDERED == 0:
        _check_same_again(reading, platform)
        check_inspection(reading, summary)


def _read(data: bytes, platform: str) -> Reading:
    try:
        return read_hlo(data, "fuzzed", [platform], as_is=True, compile_it=False)
    except NoModule as error:
        raise Refused(str(error)) from error


def check_summary(summary: ModuleSummary) -> None:
    """Raise WrongResult for a summary that cannot be right."""
    if summary.instructions < 1 or summary.computations < 1:
        raise WrongResult("a module without instructions")
    check_numbers(msgspec.to_builtins(summary))
    encoded = msgspec.msgpack.encode(summary)
    if msgspec.msgpack.decode(encoded, type=ModuleSummary) != summary:
        raise WrongResult("a summary that is another one once it is stored")
    for total in (summary.to_host_bytes_per_run, summary.to_device_bytes_per_run):
        check_numbers(total)
    for write in summary.full_buffer_writes:
        check_numbers(write.nbytes_per_run)


def check_numbers(value: Any) -> None:
    """Raise WrongResult for a negative number, or one that no file can hold."""
    for each in _numbers(msgspec.to_builtins(value)):
        if not 0 <= each < 2**127:
            raise WrongResult("a negative or absurd number")


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


def _check_same_again(reading: Reading, platform: str) -> None:
    module = decode(MODULE, reading.file.module).SerializeToString()
    again = read_hlo(
        wrap(module, reading.file.buffer_assignment),
        "fuzzed",
        [platform],
        as_is=True,
        compile_it=False,
    )
    if again.summaries != reading.summaries or again.memory != reading.memory:
        raise WrongResult("another summary of the same module written anew")


def check_inspection(reading: Reading, summary: ModuleSummary) -> None:
    """Raise WrongResult unless the page and the JSON of a module can be shown."""
    evidence = Evidence(
        workload="x",
        variant="x",
        target="",
        toolchain=Toolchain(versions={}),
        memory=reading.memory,
        module=summary,
    )
    inspection = Inspection(subject="x", means=Means.AS_IT_STANDS, evidence=evidence)
    json.loads(to_json(inspection))
    check_terminal(printed(print_inspection, inspection))


def printed(function: Any, *arguments: Any, **options: Any) -> str:
    """What a function prints on a terminal without colours."""
    from rich.console import Console

    out = StringIO()
    function(Console(file=out, width=100), *arguments, **options)
    return out.getvalue()


def check_terminal(text: str) -> None:
    """Raise WrongResult for text that controls a terminal or hides what it says."""
    if bad := next((each for each in text if not (each.isprintable() or each == "\n")), ""):
        raise WrongResult(f"{bad!r} on the terminal")


def read_text(data: bytes) -> None:
    """Read HLO text as ``assay inspect FILE --as-is`` does in its child process.

    XLA's parser may abort: then ``assay inspect`` says so. What it reads, Assay reads.
    """
    reading = _read(data, "cpu")
    (summary,) = reading.summaries.values()
    check_summary(summary)
    check_inspection(reading, summary)


def read_profile(data: bytes) -> None:
    """Read the profile of five runs."""
    from assay.frameworks.jax_timing import device_times

    try:
        seen = device_times([data], 5)
    except RuntimeError as error:
        raise Refused(str(error)) from error
    check_numbers(seen)


HLO_PROTOS: Final = Reader(
    name="hlo-proto",
    read=read_proto,
    mutate=of_messages,
    seeds=lambda: seeds_of("hlo-proto"),
    share=4.0,
)
_WORDS: Final = (
    "f32[4]", "s32[]", "pred[]", "(f32[4],", "token[4]", "f32[-1]", "f32[?]", "f32[99999999999999]",
    "parameter(0)", "parameter(7)", "constant({1,2})", "constant(nan)", "while(x),", "fusion(x),",
    "calls=body", "body=body,", "condition=body", "index=-1", "index=99", "dimensions={0,0}",
    "ROOT", "ENTRY", "{", "}", "=", "{1,0:T(8,128)S(5)}", "custom_call_target=\"AllocateBuffer\"",
    "async-start(x),", "copy-done(x)", "get-tuple-element(x),", "all-reduce(x),", "window={size=0}",
)  # fmt: skip
HLO_TEXTS: Final = Reader(
    name="hlo-text",
    read=read_text,
    mutate=of_lines(_WORDS),
    seeds=lambda: seeds_of("hlo-text"),
    share=0.4,
    aborts_in="jax_internals.py",
)
PROFILES: Final = Reader(
    name="profile",
    read=read_profile,
    mutate=of_messages,
    seeds=lambda: seeds_of("profile"),
    share=0.6,
)
