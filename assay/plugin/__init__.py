"""The pytest plugin: its options, its fixture, and the start of ``assay.plugin.hooks``.

pytest imports this module in every project where Assay is installed, so it imports nothing else of
Assay. The hooks are registered when Assay is first used: by an option, a file of expected coverage,
a ``Check``, the ``assay`` fixture or ``assay_target``, or an xdist worker that used one of them.
"""

import re
import secrets
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from assay.plugin.fixture import Assay

PAYLOAD: Final = "assay_verdicts"
"""The attribute of a report that holds its verdicts."""
RESULTS: Final = "results"
"""The default folder of runs."""
COVERAGE: Final = "coverage.json"
"""The file of expected coverage in the folder of baselines."""
BASELINES: Final = "baselines"
"""The default folder of baselines."""
TARGET: Final = "assay_target"
"""The argument of a test that runs once for each target."""
CONTROLLER: Final = "assay-controller"
"""The name of the plugin that collects verdicts, in processes that are not xdist workers."""
FLEET: Final = "assay-fleet"
"""The name of the plugin that gives items to the machines of a fleet."""
_HOOKS: Final = "assay-hooks"
RUN: Final = "assay_run"
NODE: Final = "assay_node"
"""The keys of the run's name, and of a fleet's machine, in the input of a worker."""
_NAME: pytest.StashKey[str] = pytest.StashKey()
_PROGRAM: Final = re.compile(r"\[([^\[/@]+/[^/@]+@([^/@\]]+))(/negative-control)?\]$")

_AGAINST: Final = (
    "toolchain to compare timings with: a JAX release (0.10.2), versions "
    "(jax==0.10.2,jaxlib==0.10.2), or that of the baselines (baseline)"
)
_MEMORY: Final = "memory limit of one program (4GiB); default: this machine's share for a worker"
_DISTRIBUTED: Final = (
    "this process is one of several that run the same items together, and process 0 writes; "
    "default: as jax.distributed detects it (Slurm, Open MPI, Kubernetes, Cloud TPU)"
)
_PREFIX: Final = "--assay-"
_AUTO: Final = {"nargs": "?", "const": "auto"}
# Name, default, metavar, help. A list can be given repeatedly, False is a flag.
_OPTIONS: Final[tuple[tuple[str, Any, str, str], ...]] = (
    ("target", [], "NAME", "only these targets (comma-separated); default: all available"),
    ("level", "quick", "LEVEL", "quick (default), full, device or soak"),
    ("update-baselines", "nothing", "{new,all}", "store missing (new) or all numbers (all)"),
    ("results-dir", RESULTS, "DIR", "folder for runs; default: results"),
    ("resume", None, "RUN", "continue the interrupted run of this folder: judge what it lacks"),
    ("baselines-dir", BASELINES, "DIR", "folder of baselines; default: baselines"),
    ("timing-seconds", "30", "SECONDS", "time limit of one timing; default: 30"),
    ("against", None, "VERSION", _AGAINST),
    ("against-seconds", None, "SECONDS", "time limit of one such comparison; default: 300"),
    ("require-framework", [], "NAME", "fail, not skip, without this framework (torch_xla)"),
    ("distributed", None, "[HOST:PORT,COUNT,INDEX]", _DISTRIBUTED),
    ("history", "", "URL", "add the run to this database: a file, postgresql://… or default"),
    ("no-cache", False, "", "compile every program again, ignore earlier runs; default in CI"),
    ("compile-timeout", "900", "SECONDS", "time limit of one program; default: 900"),
    ("memory-limit", None, "SIZE", _MEMORY),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add Assay's options; their names are *fixed*."""
    group = parser.getgroup("assay", "XLA regression checks")
    for name, default, metavar, text in _OPTIONS:
        kind: dict[str, Any] = {"action": "store_true"}
        if metavar:
            action = "append" if isinstance(default, list) else "store"
            kind = {"action": action, "metavar": metavar}
            kind |= _AUTO if metavar.startswith("[") else {}
        group.addoption(f"{_PREFIX}{name}", default=default, help=text, **kind)


def pytest_load_initial_conftests(args: list[str]) -> None:
    """Refuse an option ``--assay-…`` that does not exist, and name the nearest one."""
    known = [name for name, *_ in _OPTIONS]
    for word in args[: args.index("--")] if "--" in args else args:
        option = word.partition("=")[0]
        if option.startswith(_PREFIX) and option.removeprefix(_PREFIX) not in known:
            from assay.model.suggestion import wanted_one_of

            raise pytest.UsageError(f"assay: got {option}, {wanted_one_of(option, known, _PREFIX)}")


def pytest_configure(config: pytest.Config) -> None:
    """Start Assay if an option or a file of expected coverage asks for it."""
    given = vars(config.option)
    if given["help"]:  # pytest prints its help and stops before it reads the paths.
        return
    coverage = config.rootpath / given["assay_baselines_dir"] / COVERAGE
    if coverage.is_file() or any(
        given[f"assay_{name.replace('-', '_')}"] != default for name, default, *_ in _OPTIONS
    ):
        start(config)


def start(config: pytest.Config) -> Any:
    """The module ``assay.plugin.hooks``, registered: pytest then calls its ``pytest_configure``."""
    from assay.plugin import hooks

    if not _started(config):
        config.pluginmanager.register(hooks, _HOOKS)
    return hooks


def _started(config: pytest.Config) -> bool:
    return config.pluginmanager.has_plugin(_HOOKS)


def run_name(config: pytest.Config) -> str:
    """The name of this run, which its xdist workers share."""
    worker: dict[str, str] = getattr(config, "workerinput", {})
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    return config.stash.setdefault(_NAME, worker.get(RUN, name))


def program_of(nodeid: str) -> str:
    """``workload/variant@target`` in the id of a check's item, empty for any other test."""
    found = _PROGRAM.search(nodeid)
    return found[1] if found and _is_target(found[2]) else ""


@cache
def _is_target(name: str) -> bool:
    """Whether there is such a target; parameters of plain tests may look like an item's."""
    from assay.model.target import TargetError
    from assay.targets import resolve

    try:
        resolve(name)
    except TargetError:
        return False
    return True


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Turn a module's ``test_… = Check(…)`` into its items; refuse a ``Check`` of another name."""
    claim = sys.modules.get("assay.model.claim")  # Without it no Check exists.
    if claim is None or not isinstance(obj, claim.Check):
        return None
    items: list[pytest.Item] = start(collector.config).check_items(collector, name, obj)
    return items


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Start Assay if a test uses its fixture."""
    config = session.config
    if any(assay.__name__ in getattr(item, "fixturenames", ()) for item in items):
        start(config)
    if _started(config):
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


# xdist's controller collects nothing. It starts Assay when a worker has used it, and passes the
# present call on, because pytest does not call a plugin that is registered during the call.


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it works for (``node`` is xdist's WorkerController)."""
    node.workerinput[RUN] = run_name(node.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Iterable[str]) -> None:
    """Start where a worker collected an item of a ``Check``."""
    if not _started(node.config) and any(map(program_of, ids)):
        _controller(node.config).pytest_xdist_node_collection_finished(node, ids)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Start where a worker's test used the fixture (``report.node`` is set by xdist)."""
    node: Any = getattr(report, "node", None)
    if node is not None and hasattr(report, PAYLOAD) and not _started(node.config):
        _controller(node.config).pytest_runtest_logreport(report)


def _controller(config: pytest.Config) -> Any:
    start(config)
    return config.pluginmanager.get_plugin(CONTROLLER)
