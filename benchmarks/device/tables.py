"""Tables in Markdown of the results in a folder of ``benchmarks.device``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from assay.frameworks.jax_timing import TO_DEVICE, TO_HOST

_MB: Final = 1e6
_WORST: Final = 12


def tables(folder: Path) -> Iterator[str]:
    """The lines to print."""
    for name, rows in (
        ("programs", _programs(_read(folder, "programs-*.jsonl"))),
        ("offload", _offload(_read(folder, "offload.jsonl"))),
        ("peers", _peers(_read(folder, "peers-*.jsonl"))),
        ("large", _large(_read(folder, "large.jsonl"))),
    ):
        lines = list(rows)
        if lines:
            yield from ("", f"## {name}", "", *lines)
    for name in ("suites", "times", "alarms", *sorted(p.stem for p in folder.glob("random-*.log"))):
        log = folder / f"{name}.log"
        if log.exists():
            last = log.read_text(errors="replace").splitlines()[-9:]
            yield from ("", f"## {name}", "", *(line[:240] for line in last))


def _read(folder: Path, pattern: str) -> list[dict[str, Any]]:
    files = sorted(folder.glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _programs(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    measured = [row for row in rows if row.get("measured_bytes")]
    ratios = sorted(
        (
            (row["measured_bytes"] / _device_bytes(row), "/".join(row["program"][:3]), row)
            for row in measured
        ),
        key=lambda each: each[0],
    )
    errors = [row for row in rows if "error" in row]
    yield f"{len(rows)} programs, {len(measured)} with a measured peak, {len(errors)} failed"
    if ratios:
        middle = ratios[len(ratios) // 2][0]
        yield f"measured over compiler's: {ratios[0][0]:.3f}, {middle:.3f}, {ratios[-1][0]:.3f}"
    for ratio, name, row in (*ratios[: _WORST // 2], *ratios[-_WORST // 2 :]):
        nbytes = row["measured_bytes"] / _MB
        yield f"- {name}: {nbytes:,.1f} MB, {ratio:.3f} of {_device_bytes(row) / _MB:,.1f}"
    for row in rows:
        profile = row.get("profile")
        if not profile:
            continue
        for kind, field in ((TO_HOST, "to_host_bytes"), (TO_DEVICE, "to_device_bytes")):
            seen, said = profile["bytes"].get(kind, 0), row[field]
            if said is not None and abs(seen - said) > max(4096, 0.01 * said):
                name = "/".join(row["program"][:3])
                yield f"- {name}: {kind} {seen / _MB:,.1f} MB, the HLO says {said / _MB:,.1f}"
    for row in errors[:_WORST]:
        yield f"- {'/'.join(row['program'][:3])}: {row['error'][:160]}"


def _device_bytes(row: dict[str, Any]) -> int:
    compiler = row["compiler"]
    parts = compiler["temp_bytes"] + compiler["argument_bytes"] + compiler["output_bytes"]
    nbytes: int = parts - compiler["alias_bytes"]
    return max(1, nbytes)


def _offload(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield "| Variant | step s | GB: device, host, peak | to host: GB, s, hidden | to device |"
    yield "|---|---|---|---|---|"
    for row in rows:
        if "error" in row:
            yield f"| {row['variant']} | {row['error'][:200]} | | | |"
            continue
        profile, compiler = row["profile"], row["compiler"]
        links = []
        for kind in (TO_HOST, TO_DEVICE):
            seconds = profile["transfer_s"][kind]
            hidden = profile["hidden_s"][kind] / seconds if seconds else 0.0
            gigabytes = profile["bytes"].get(kind, 0) / 1e9
            links.append(f"{gigabytes:.2f}, {seconds:.3f}, {hidden:.0%}")
        step_s, peak = min(row["seconds"][1:-1]), (row["peak_of_process"] or 0) / 1e9
        host = compiler["host_temp_bytes"] / 1e9
        yield (
            f"| {row['variant']} | {step_s:.3f} | {_device_bytes(row) / 1e9:.2f}, {host:.2f}, "
            f"{peak:.2f} | {links[0]} | {links[1]} |"
        )


def _peers(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield "| Program | way | GB | ms | over plain | predicted | difference |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        if "seconds" not in row:
            told = row.get("error") or f"refused, least {row['refused'] / 1e9:.2f} GB"
            yield f"| {row['case']} | {row.get('way', '')} | {told[:160]} | | | | |"
            continue
        predicted = f"{row['predicted']:.2f}" if row["predicted"] else "–"
        yield (
            f"| {row['case']} | {row['way']} | {row['bytes'] / 1e9:.2f} "
            f"| {1e3 * row['seconds']:.1f} | {row['over_plain']:.2f} | {predicted} "
            f"| {row['difference']:.0e} |"
        )


def _large(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if "error" in row:
            yield f"- {row['case']}: {row['error'][:200]}"
            continue
        yield (
            f"- {row['case']}: {row['bytes'] / 1e9:.2f} GB of {row['plain_bytes'] / 1e9:,.1f}, "
            f"peak {(row['peak_after'] or 0) / 1e9:.2f}; {min(row['seconds']):.2f} s, "
            f"{row['predicted']:.2f} × by prediction, planned in {row['setup_s']:.0f} s"
            + ("" if row["finite"] else "; VALUES THAT ARE NOT FINITE")
        )
