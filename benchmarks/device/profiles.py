"""A summary of a run's profile: kernels, transfers, and transfers hidden behind kernels."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import jax  # noqa: TID251 - its profiler is read here.

from assay.frameworks.jax_timing import TO_DEVICE, TO_HOST, covered, device_work

_SIZE: Final = re.compile(r"size:(\d+)")
_NAMED: Final = 12
"""Number of event names and of pauses to keep, the longest first."""


def profiled(run: Callable[[], object]) -> dict[str, Any]:
    """The summary of one run's profile on the first GPU."""
    with tempfile.TemporaryDirectory(prefix="assay-profile-") as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        (path,) = Path(folder).rglob("*.xplane.pb")
        return summed(path.read_bytes())


def summed(data: bytes) -> dict[str, Any]:
    """The summary of a serialised XSpace.

    ``bytes`` are the bytes of copies by direction. ``hidden_s`` are the seconds of transfers during
    which kernels ran. ``events`` are the number and seconds of events by name, the longest first.
    ``idle_s`` are the seconds between the first and the last event in which the GPU does nothing.
    ``pauses`` are the longest of these idle times, with the events before and after.
    """
    planes = jax.profiler.ProfileData.from_serialized_xspace(data).planes
    events = [
        event
        for plane in planes
        if plane.name.startswith("/device:GPU:0")
        for event in device_work(plane)
    ]
    kernels = [each for each in events if not each.name.startswith("Mem")]
    moved = {kind: [e for e in events if e.name == kind] for kind in (TO_HOST, TO_DEVICE)}
    nbytes, seconds, counts = Counter[str](), Counter[str](), Counter[str]()
    for event in events:
        seconds[event.name] += (event.end_ns - event.start_ns) * 1e-9
        counts[event.name] += 1
        if event.name.startswith("Memcpy"):
            size = _SIZE.search(str(dict(event.stats).get("memcpy_details", "")))
            nbytes[event.name] += int(size[1]) if size else 0
    return {
        "busy_s": covered(events),
        "kernel_s": covered(kernels),
        "kernels": len(kernels),
        "transfer_s": {kind: covered(each) for kind, each in moved.items()},
        # The overlap of two sets of intervals is what the sum of both counts twice.
        "hidden_s": {
            kind: covered(each) + covered(kernels) - covered([*each, *kernels])
            for kind, each in moved.items()
        },
        "bytes": dict(nbytes),
        "events": {name: (counts[name], each) for name, each in seconds.most_common(_NAMED)},
        **_idle(events),
    }


def _idle(events: Sequence[Any]) -> dict[str, Any]:
    pauses: list[tuple[float, str, str]] = []
    ended, last = float("inf"), ""
    for event in sorted(events, key=lambda event: event.start_ns):
        if event.start_ns > ended:
            pauses.append(((event.start_ns - ended) * 1e-9, last, event.name))
        if not last or event.end_ns > ended:
            ended, last = event.end_ns, event.name
    return {
        "idle_s": sum(seconds for seconds, *_ in pauses),
        "pauses": sorted(pauses, reverse=True)[:_NAMED],
    }
