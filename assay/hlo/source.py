"""Source lines: which line of the user's program an instruction comes from."""

from collections.abc import Iterator
from pathlib import PurePath

from assay.hlo.schema import Message

_INSTALLED = frozenset({"site-packages", "dist-packages"})


class SourceIndex:
    """Reads ``file:line`` (``model.py:41``) from an OpMetadata.

    New compilers store a frame of the module's stack frame index, older ones the file and the
    line. Of a stack, the innermost frame outside installed packages counts: a user's line says
    more than a line of the framework. If all are installed, the innermost counts.
    """

    __slots__ = ("_found", "_index")

    def __init__(self, stack_frame_index: Message) -> None:
        self._index = stack_frame_index
        self._found: dict[int, str | None] = {}

    def line(self, metadata: Message) -> str | None:
        """``file:line`` of an instruction, None if its metadata names no source."""
        frame = metadata.stack_frame_id
        if frame:
            if frame not in self._found:
                self._found[frame] = self._line_of_frame(frame)
            if self._found[frame] is not None:
                return self._found[frame]
        if metadata.source_file:
            return _brief(metadata.source_file, metadata.source_line)
        return None

    def _line_of_frame(self, frame: int) -> str | None:
        locations = list(self._locations(frame))
        for file, line in locations:
            if _INSTALLED.isdisjoint(PurePath(file).parts):
                return _brief(file, line)
        return _brief(*locations[0]) if locations else None

    def _locations(self, frame: int) -> Iterator[tuple[str, int]]:
        """Files and lines from the innermost frame outwards. All positions count from 1."""
        index = self._index
        visited: set[int] = set()
        while 0 < frame <= len(index.stack_frames) and frame not in visited:
            visited.add(frame)
            entry = index.stack_frames[frame - 1]
            if 0 < entry.file_location_id <= len(index.file_locations):
                location = index.file_locations[entry.file_location_id - 1]
                if 0 < location.file_name_id <= len(index.file_names):
                    yield index.file_names[location.file_name_id - 1], location.line
            frame = entry.parent_frame_id


def _brief(file: str, line: int) -> str:
    return f"{PurePath(file).name}:{line}"
