"""Exclusive timing: while one worker times programs, no other runs any item."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.plugin.items import TimedItem
from assay.plugin.session import Session
from assay.store import timing_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveTiming:
    """How the items of one process keep out of the way of timing; ``directory`` is the run's.

    It is None where nobody is in the way: nothing is timed, or there are no other workers.
    """

    directory: Path | None = None

    @classmethod
    def among(cls, items: Iterable[pytest.Item], config: pytest.Config) -> "ExclusiveTiming":
        """Every worker collects the same items, so all of them come to the same."""
        timing = any(isinstance(item, TimedItem) for item in items)
        workers = hasattr(config, "workerinput")
        return cls(directory=config.stash[Session.KEY].directory if timing and workers else None)

    def lock(self, item: pytest.Item) -> AbstractContextManager[None]:
        """Held while the item runs, from the set-up of its fixtures on."""
        if self.directory is None:
            return nullcontext()
        is_timing = isinstance(item, TimedItem)
        return (
            timing_lock.exclusive(self.directory)
            if is_timing
            else timing_lock.shared(self.directory)
        )


EXCLUSIVE_TIMING: pytest.StashKey[ExclusiveTiming] = pytest.StashKey()
