"""The command ``assay fleet``: a run of pytest over the machines of a Ray cluster."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from assay.model.blame import WrongValue
from assay.model.units import parse_bytes
from assay.store.files import write_whole

if TYPE_CHECKING:
    from assay.fleet.cluster import Cluster

_Arguments = Annotated[
    list[str],
    Argument(metavar="PATHS… [-- PYTEST ARGUMENTS]", help="Tests, then pytest's options."),
]
_Address = Annotated[
    str,
    Option(help="The Ray cluster: auto, HOST:PORT, or local for machines simulated on this one."),
]
_Nodes = Annotated[int, Option(min=1, help="With --address local: how many machines.")]
_Processors = Annotated[float, Option(min=0.1, help="Processors that a worker takes.")]
_Memory = Annotated[str, Option(help="Memory that a worker takes, such as 4GiB; 0: not counted.")]
_EachNode = Annotated[
    bool, Option("--each-node", help="Run everything on each machine, and find the odd machine.")
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
    memory: _Memory = "4GiB",
    upload: _Upload = None,
    each_node: _EachNode = False,
    results_dir: Annotated[Path, Option(help="With --each-node: the folder for runs.")] = Path(
        "results"
    ),
) -> None:
    """Run pytest on the machines of a Ray cluster: same files, same exit code.

    Programs of one workload and target stay together, and so each is compiled once. If a worker or
    a machine is lost, its tests run elsewhere.

    Example: assay fleet --address auto suites -- --assay-target gpu-h100:8 -k offload
    """
    from assay.fleet.cluster import LOCAL, Demand, carried, connected
    from assay.plugin import FLEET
    from assay.plugin.fleet import Driver
    from assay.plugin.session import launch

    if nodes > 1 and address != LOCAL:
        raise WrongValue(f"got --nodes {nodes} with --address {address}, wanted it with local")
    uploads = address != LOCAL if upload is None else upload
    here = Path.cwd()
    root = "" if uploads else str(here)
    demand = Demand(processors=processors, memory_bytes=parse_bytes(memory))
    with connected(address, nodes=nodes, upload=here if uploads else None, demand=demand) as found:
        if each_node:
            code = _each_node(found, arguments, root, results_dir)
        else:
            # The workers of a project's own ``addopts`` would run on this machine alone.
            words = [*arguments, *(["-n0"] if find_spec("xdist") else [])]
            driver = Driver(found, words, root=root, environment=carried())
            code, _ = launch(words, (FLEET, driver))
    raise typer.Exit(code)


def _each_node(cluster: "Cluster", arguments: Sequence[str], root: str, results: Path) -> int:
    """Run everything on each machine, and compare the machines."""
    from assay.fleet.cluster import carried
    from assay.fleet.machines import run_on_each
    from assay.fleet.messages import Job, identity
    from assay.report.fleet_output import code_of, machines_page, print_machines
    from assay.stats.machines import compared

    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    job = Job(
        run=name,
        arguments=tuple(arguments),
        root=root,
        environment=carried(),
        identity=identity(),
    )
    folder = results / name
    machines = compared(run_on_each(cluster, job, folder, partial(typer.echo, err=True)))
    print_machines(Console(), machines, folder)
    write_whole(folder / "fleet.html", machines_page(machines).encode())
    return code_of(machines).value
