"""The checks of suites, collected by pytest as for a run, for a command that judges them itself."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from assay.model.blame import WrongValue
from assay.model.claim import Trial
from assay.model.suggestion import suggestion
from assay.model.workload import Level, Workload
from assay.plugin.items import TrialItem
from assay.plugin.session import ALREADY_IMPORTED
from assay.store.shipped import pytest_options

_COLLECTED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A trial, a module from which its workload can be imported, and the folders to search.

    ``nodeid`` names its item to pytest in the working directory.
    """

    trial: Trial
    nodeid: str
    module: str
    search_path: tuple[str, ...]


def collect(
    suites: Sequence[Path], *, targets: Sequence[str], level: str, keyword: str = ""
) -> tuple[Collected, ...]:
    """The trials that pytest collects in the suites.

    Raises:
        WrongValue: pytest cannot collect them; its output follows.
    """
    arguments = [*ALREADY_IMPORTED, *pytest_options(suites)]
    arguments += ["--collect-only", "-q", *map(str, suites)]
    arguments += ["--assay-level", level]
    arguments += [word for target in targets for word in ("--assay-target", target)]
    arguments += ["-k", keyword] if keyword else []
    # The workers of a project's own ``addopts`` collect elsewhere.
    arguments += ["-n0"] if find_spec("xdist") else []
    noted, said = _Noted(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main(arguments, plugins=[noted])
    if code not in _COLLECTED:
        # The tests that it can collect come first.
        _, head, errors = said.getvalue().rpartition("= ERRORS =")
        raise WrongValue(f"pytest cannot collect the suites:\n{head}{errors.strip()}")
    return tuple(noted.found)


def trial_of(program: tuple[str, str, str], claim: str, target: str) -> Trial:
    """The trial of a claim on a (module, workload, variant), from the tests next to the module.

    Raises:
        WrongValue: no check has that claim on the variant there, or a compiled program alone
            cannot answer the claim.
    """
    module, workload, variant = program
    place = Path(*module.split("."))
    folder = place if place.is_dir() else place.parent
    trials = {
        each.trial.check.claim.name: each.trial
        for each in collect([folder], targets=[target], level=Level.FULL.name.lower())
        if not each.trial.must_fail
        and (each.trial.workload.name, each.trial.variant.name) == (workload, variant)
    }
    known = ", ".join(
        sorted(name for name, each in trials.items() if each.check.claim.judges_compiled)
    )
    if claim not in trials:
        where = f"{workload}/{variant} on {target}"
        near = suggestion(claim, trials)
        raise WrongValue(
            f"got claim {claim!r}, wanted one on {where}: {known or 'there is none'}{near}"
        )
    if not trials[claim].check.claim.judges_compiled:
        raise WrongValue(
            f"got claim {claim!r}, which needs a run, times or a baseline, wanted one that a "
            f"compiled program answers: {known or 'there is none'}"
        )
    return trials[claim]


@dataclass(slots=True)
class _Noted:
    """A pytest plugin that notes what was collected."""

    found: list[Collected] = field(default_factory=list)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the trials that were selected."""
        folders = [session.config.rootpath, *session.config.getini("pythonpath")]
        for item in session.items:
            parent = item.getparent(pytest.Module)
            if isinstance(item, TrialItem) and parent is not None:
                module: ModuleType = parent.obj
                name = module.__name__
                root = Path(str(module.__file__)).parents[name.count(".")]
                self.found.append(
                    Collected(
                        trial=item.trial,
                        nodeid=f"{os.path.relpath(item.path)}::{item.nodeid.partition('::')[2]}",
                        module=_home(item.trial.workload, name),
                        search_path=tuple(dict.fromkeys(map(str, (root, *folders)))),
                    )
                )


def _home(workload: Workload, test_module: str) -> str:
    """A module of the test's package, other than its test modules, that holds the workload.

    If there is none, the test module. A module without tests lets all checks of the program, and
    ``assay bisect``, share what was measured.
    """
    package, dot, _ = test_module.rpartition(".")
    holders = (
        name
        for name, module in sorted(sys.modules.items())
        if dot
        and name.startswith(package + dot)
        and not name.rpartition(".")[2].startswith("test_")
        and any(each is workload for each in _values(module))
    )
    return next(holders, test_module)


def _values(module: ModuleType) -> Iterator[object]:
    for value in tuple(vars(module).values()):
        yield value
        yield from value if type(value) is tuple else ()
