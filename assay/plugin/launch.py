"""Running suites from another door: pytest in this process, and where its run was written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.model.verdict import ExitCode
from assay.plugin.session import Session

# The command line has imported what pytest would rewrite; a strict project makes that an error.
_ALREADY_IMPORTED = (
    "-W",
    "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """How pytest ended; ``directory`` is None if it ended before it reached a verdict."""

    exit_code: int
    directory: Path | None


class _Witness:
    """Notes the run's folder once pytest is configured."""

    def __init__(self) -> None:
        self.session: Session | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the session that the plugin made."""
        self.session = config.stash.get(Session.KEY, None)


def launch(arguments: Sequence[str]) -> Launched:
    """Run pytest with these arguments; its misuse (4) is ours (2)."""
    witness = _Witness()
    code = int(pytest.main([*_ALREADY_IMPORTED, *arguments], plugins=[witness]))
    if code == pytest.ExitCode.USAGE_ERROR:
        code = ExitCode.MISUSE.value
    session = witness.session
    directory = session.settings.results / session.name if session else None
    return Launched(
        exit_code=code, directory=directory if directory and directory.is_dir() else None
    )
