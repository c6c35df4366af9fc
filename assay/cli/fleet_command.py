"""The command ``assay fleet``: a run of pytest over the machines of a Ray cluster."""

import secrets
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace
from rich.console import Console
from typer import Argument, Option

from assay.cli import completion
from assay.model.blame import WrongValue
from assay.model.units import parse_bytes
from assay.store.files import write_whole

if TYPE_CHECKING:
    from assay.fleet.cluster import Cluster
    from assay.fleet.messages import Job

_Arguments = Annotated[
    list[str],
    Argument(
        metavar="PATHS… [-- PYTEST ARGUMENTS]",
        help="Tests, then pytest's options.",
        autocompletion=completion.suites,
    ),
]
_Address = Annotated[
    str,
    Option(help="The Ray cluster: auto, HOST:PORT, or local for machines simulated on this one."),
]
ProbesOn = Annotated[
    str, Option("--address", help="Compile on the machines of this Ray cluster, as assay fleet.")
]
_Nodes = Annotated[int, Option(min=1, help="With --address local: how many machines.")]
_Processors = Annotated[float, Option(min=0.1, help="Processors that a worker takes.")]
_Memory = Annotated[str, Option(help="Memory that a worker takes, such as 3GiB; 0: not counted.")]
_EachNode = Annotated[
    bool, Option("--each-node", help="Run everything on each machine, and find the odd machine.")
]
_Toolchains = Annotated[
    list[str] | None,
    Option(help="A jax release, or versions as of --assay-against; repeatable: a run for each."),
]
_With = Annotated[
    list[str] | None, Option("--with", help="A package that the tests import; repeatable.")
]
_Upload = Annotated[
    bool | None,
    Option(
        "--upload/--no-upload",
        help="Copy this folder to every machine; default: except with --address local.",
    ),
]


def fleet(  # noqa: PLR0913 -- typer takes a parameter for each option.
    arguments: _Arguments,
    *,
    address: _Address = "local",
    nodes: _Nodes = 1,
    processors: _Processors = 1.0,
    memory: _Memory = "3GiB",
    upload: _Upload = None,
    each_node: _EachNode = False,
    toolchain: _Toolchains = None,
    also: _With = None,
    results_dir: Annotated[Path, Option(help="With --each-node: the folder for runs.")] = Path(
        "results"
    ),
) -> None:
    """Run pytest on the machines of a Ray cluster: same files, same exit code.

    Programs of one workload and target stay together, and so each is compiled once. If a worker or
    a machine is lost, its tests run elsewhere.
    """
    from assay.fleet.cluster import LOCAL, Demand, carried, connected
    from assay.fleet.messages import Job

    if nodes > 1 and address != LOCAL:
        raise WrongValue(f"got --nodes {nodes} with --address {address}, wanted it with local")
    if also and not toolchain:
        raise WrongValue("got --with without --toolchain, wanted both")
    uploads = address != LOCAL if upload is None else upload
    here = Path.cwd()
    job = Job(
        arguments=tuple(arguments),
        root="" if uploads else str(here),
        environment=carried(),
        also=tuple(also or ()),
    )
    jobs = [_on_toolchain(job, each) for each in toolchain or [""]]
    demand = Demand(processors=processors, memory_bytes=parse_bytes(memory))
    with connected(address, nodes=nodes, upload=here if uploads else None, demand=demand) as found:
        codes = [
            _each_node(found, each, results_dir) if each_node else _spread(found, each)
            for each in jobs
        ]
    raise typer.Exit(max(codes))


@contextmanager
def probes_on(address: str) -> Iterator[tuple[Executor | None, int]]:
    """What compiles probes on the machines of a cluster, and how many at a time.

    Without an address, None and 0: this process compiles its usual number of probes at a time.
    """
    if not address:
        yield None, 0
        return
    from assay.fleet.cluster import LOCAL, connected

    here = Path.cwd()
    is_local = address == LOCAL
    with connected(address, upload=None if is_local else here) as cluster:
        yield cluster.executor(str(here) if is_local else ""), max(1, cluster.capacity())


def _on_toolchain(job: "Job", toolchain: str) -> "Job":
    """The job on a toolchain; empty for the one of this process.

    Raises:
        UnreadableToolchain: no toolchain has that name.
    """
    from assay.fleet.messages import identity

    found = replace(job, toolchain=toolchain)
    own = identity()
    pins = {"assay": own["assay"], **found.recipe.pins} if toolchain else own
    return replace(found, identity=pins)


def _spread(cluster: "Cluster", job: "Job") -> int:
    """Run each test once, on any of the machines."""
    from assay.plugin import FLEET
    from assay.plugin.fleet import Driver
    from assay.plugin.session import launch

    if job.toolchain:
        typer.echo(f"toolchain: {job.toolchain}")
    # The workers of a project's own ``addopts`` would run on this machine alone.
    words = [*job.arguments, *(["-n0"] if find_spec("xdist") else [])]
    code, _ = launch(words, (FLEET, Driver(cluster, job)))
    return code


def _each_node(cluster: "Cluster", job: "Job", results: Path) -> int:
    """Run everything on each machine, and compare the machines."""
    from assay.fleet.machines import run_on_each
    from assay.report.fleet_output import code_of, machines_page, print_machines
    from assay.stats.machines import compared

    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    folder = results / name
    job = replace(job, run=name)
    machines = compared(run_on_each(cluster, job, folder, partial(typer.echo, err=True)))
    print_machines(Console(), machines, folder)
    write_whole(folder / "fleet.html", machines_page(machines).encode())
    return code_of(machines).value
