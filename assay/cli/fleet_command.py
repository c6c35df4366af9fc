"""The command ``assay fleet``: a run of pytest over the machines of a Ray cluster."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from assay.model.blame import WrongValue
from assay.model.units import parse_bytes

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
_Upload = Annotated[
    bool | None,
    Option(
        "--upload/--no-upload",
        help="Copy this folder to every machine; default: except with --address local.",
    ),
]


def fleet(
    arguments: _Arguments,
    *,
    address: _Address = "local",
    nodes: _Nodes = 1,
    processors: _Processors = 1.0,
    memory: _Memory = "4GiB",
    upload: _Upload = None,
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
    # The workers of a project's own ``addopts`` would run on this machine alone.
    words = [*arguments, *(["-n0"] if find_spec("xdist") else [])]
    demand = Demand(processors=processors, memory_bytes=parse_bytes(memory))
    with connected(address, nodes=nodes, upload=here if uploads else None, demand=demand) as found:
        root = "" if uploads else str(here)
        driver = Driver(found, words, root=root, environment=carried())
        code, _ = launch(words, (FLEET, driver))
    raise typer.Exit(code)
