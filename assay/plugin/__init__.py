"""The pytest plugin's entry: options, the fixture, and what starts the rest.

pytest imports this module in every project where Assay is installed, so it imports nothing else of
Assay. ``assay.plugin.hooks`` is registered when Assay is first used: by an option, a stored file of
expected coverage, a ``Check``, the ``assay`` fixture, or an xdist worker that met one of them.
"""

import secrets
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from assay.plugin.progress import program_of

if TYPE_CHECKING:
    from assay.plugin.controller import Controller
    from assay.plugin.fixture import Assay

PAYLOAD: Final = "assay_verdicts"
"""The attribute of a report that holds its verdicts."""
RUN_NAME: Final = "assay_run"
"""The key of an xdist worker's input that names the run, and of the run's name below."""
COVERAGE: Final = "coverage.json"
"""The file of expected coverage in the folder of baselines."""
BASELINES: Final = "baselines"
"""The folder of baselines unless another one is named."""
TARGET: Final = "assay_target"
"""The argument of a test that is run once for each target."""
_HOOKS: Final = "assay-hooks"
_NAME: pytest.StashKey[str] = pytest.StashKey()

_OPTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (
        "--assay-target",
        {
            "action": "append",
            "default": [],
            "metavar": "NAME",
            "help": "target to judge on (repeatable, comma-separated); default: all available",
        },
    ),
    (
        "--assay-level",
        {"default": "quick", "metavar": "LEVEL", "help": "quick (default), full, device or soak"},
    ),
    (
        "--assay-update-baselines",
        {
            "default": "nothing",
            "metavar": "{new,all}",
            "help": "store measured numbers that have no baseline (new), or replace all (all)",
        },
    ),
    (
        "--assay-results-dir",
        {"default": "results", "metavar": "DIR", "help": "folder for runs; default: results"},
    ),
    (
        "--assay-baselines-dir",
        {
            "default": BASELINES,
            "metavar": "DIR",
            "help": "folder of baselines; default: baselines",
        },
    ),
    (
        "--assay-timing-seconds",
        {"default": "30", "metavar": "SECONDS", "help": "time limit of one timing; default: 30"},
    ),
    (
        "--assay-against",
        {
            "metavar": "VERSION",
            "help": "compare timings with another JAX release (0.10.2, or versions: "
            "jax==0.10.2,jaxlib==0.10.2), or with the toolchain of the baselines (baseline)",
        },
    ),
    (
        "--assay-against-seconds",
        {
            "metavar": "SECONDS",
            "help": "time limit of one comparison of two toolchains; default: 300",
        },
    ),
    (
        "--assay-require-framework",
        {
            "action": "append",
            "default": [],
            "metavar": "NAME",
            "help": "fail if this framework (torch_xla) is not installed; default: skip its checks",
        },
    ),
    (
        "--assay-no-cache",
        {
            "action": "store_true",
            "default": False,
            "help": "compile every program again, also those of earlier runs; default in CI",
        },
    ),
    (
        "--assay-compile-timeout",
        {"default": "900", "metavar": "SECONDS", "help": "time limit of one program; default: 900"},
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add Assay's options; their names are *fixed*."""
    group = parser.getgroup("assay", "XLA regression checks")
    for name, settings in _OPTIONS:
        group.addoption(name, **settings)


def pytest_configure(config: pytest.Config) -> None:
    """Start Assay if this run asks for it; wait for its first use otherwise."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    config.stash[_NAME] = worker.get(RUN_NAME, f"{stamp}-{secrets.token_hex(2)}")
    if not worker:
        config.pluginmanager.register(_Workers(config), "assay-workers")
    if _is_asked_for(config):
        start(config)


def start(config: pytest.Config) -> Any:
    """The module ``assay.plugin.hooks``, registered: pytest then calls its ``pytest_configure``."""
    from assay.plugin import hooks

    if not config.pluginmanager.has_plugin(_HOOKS):
        config.pluginmanager.register(hooks, _HOOKS)
    return hooks


def run_name(config: pytest.Config) -> str:
    """The name of this run, which its xdist workers share."""
    return config.stash[_NAME]


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Turn a module's ``test_… = Check(…)`` into its items."""
    claim = sys.modules.get("assay.model.claim")  # Without it no Check exists.
    if claim is None or not isinstance(obj, claim.Check) or not name.startswith("test"):
        return None
    items: list[pytest.Item] = start(collector.config).items_of(collector, name, obj)
    return items


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Start Assay if a test uses its fixture."""
    config = session.config
    if any(assay.__name__ in getattr(item, "fixturenames", ()) for item in items):
        start(config)
    if config.pluginmanager.has_plugin(_HOOKS):
        start(config).prepare(session, items)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``assay_target`` once for each target of the run."""
    if TARGET in metafunc.fixturenames:
        metafunc.parametrize(TARGET, start(metafunc.config).targets_of(metafunc.config))


@pytest.fixture
def assay(request: pytest.FixtureRequest) -> "Assay":
    """Compile programs for any target inside a plain test; see ``assay.compile``."""
    start(request.config)
    from assay.plugin.fixture import Assay

    return Assay(request)


class _Workers:
    """Starts Assay in xdist's controller, which collects nothing, when a worker has met it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker which run it works for (``node`` is xdist's WorkerController)."""
        node.workerinput[RUN_NAME] = run_name(self._config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        """Start where a worker collected an item of a ``Check``."""
        if not self._started and any(map(program_of, ids)):
            self._controller().pytest_xdist_node_collection_finished(node, ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Start where a worker's test used the fixture."""
        if not self._started and hasattr(report, PAYLOAD):
            self._controller().pytest_runtest_logreport(report)

    @property
    def _started(self) -> bool:
        return bool(self._config.pluginmanager.has_plugin(_HOOKS))

    def _controller(self) -> "Controller":
        controller: Controller = start(self._config).controller_of(self._config)
        return controller


def _is_asked_for(config: pytest.Config) -> bool:
    given = vars(config.option)
    if given["help"]:  # pytest prints its help and stops before it reads the paths.
        return False
    for name, settings in _OPTIONS:
        if given[name.removeprefix("--").replace("-", "_")] != settings.get("default"):
            return True
    baselines: str = given["assay_baselines_dir"]
    return (config.rootpath / baselines / COVERAGE).is_file()
