"""The differences between two inspections: their modules, and the memory that these take."""

from collections.abc import Iterator

from assay.judge.differences.summaries import differences
from assay.model.difference import Aspect, Difference
from assay.model.evidence import Memory
from assay.model.inspection import Comparison, Inspection

_HOW = (
    "to find out, compare the .ll and .ptx files that XLA_FLAGS=--xla_dump_to=DIR writes with each "
    "toolchain, or time the program with both"
)


def compare(before: Inspection, after: Inspection) -> Comparison:
    """How the inspection after differs from the one before, most important first."""
    old, new = before.evidence.module, after.evidence.module
    if old is None or new is None:
        return Comparison(before=before.subject, error=before.error, differences=None)
    found = (*_of_memory(before, after), *differences(old, new))
    return Comparison(
        before=before.subject,
        error=before.error,
        differences=tuple(sorted(found, key=lambda difference: difference.weight)),
        notes=tuple(_notes(before, after)),
    )


def _of_memory(before: Inspection, after: Inspection) -> Iterator[Difference]:
    """Each kind of memory of which one program takes more; the largest change first."""
    ours, theirs = _sizes(before), _sizes(after)
    for name, was in ours.items():
        now = theirs.get(name)
        if was is not None and now is not None and was != now:
            yield Difference(
                aspect=Aspect.MEMORY, subject=name, before=was, after=now, nbytes=now - was
            )


def _sizes(inspection: Inspection) -> dict[str, int | None]:
    memory = inspection.evidence.memory
    if memory is None:
        return {}
    return {"peak": inspection.peak_bytes, **_parts(memory)}


def _parts(memory: Memory) -> dict[str, int | None]:
    return {
        "temporaries": memory.temp_bytes,
        "arguments": memory.argument_bytes,
        "outputs": memory.output_bytes,
        "shared by arguments and outputs": memory.alias_bytes,
        "host memory of temporaries": memory.host_temp_bytes,
        "host memory of arguments": memory.host_argument_bytes,
        "host memory of outputs": memory.host_output_bytes,
    }


def _notes(before: Inspection, after: Inspection) -> Iterator[str]:
    """What the comparison does not see."""
    missing = [each.subject for each in (before, after) if each.evidence.memory is None]
    if missing:
        yield f"memory is not compared: there is no buffer assignment in {' and '.join(missing)}"
    ours, theirs = (each.evidence.toolchain for each in (before, after))
    if ours.versions and ours.identity == theirs.identity:
        return
    old, new = (each.evidence.module for each in (before, after))
    same = bool(old and new and old.fingerprint and old.fingerprint == new.fingerprint)
    if not (ours.versions and theirs.versions):
        if same:
            yield (
                "the HLO is the same, but a dump does not say which toolchain wrote it; another "
                f"toolchain may generate other code from it; {_HOW}"
            )
    elif same:
        yield (
            f"the HLO is the same, but the toolchain is not ({ours} before, {theirs} now): the "
            f"code that it generates may differ; {_HOW}"
        )
    else:
        yield f"the toolchain differs too: {ours} before, {theirs} now"
