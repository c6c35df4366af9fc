"""The Ray cluster of a fleet: its machines, and the work that is sent to them."""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from assay.fleet import work
from assay.fleet.ledger import Group
from assay.fleet.messages import Job, Lost, Message, Place, Refused, Started, decode, encode
from assay.model.blame import WrongValue
from assay.model.installation import install_command

LOCAL: Final = "local"
_DEVICES: Final = {"gpu": "GPU", "tpu": "TPU"}
# Compilers and frameworks read them; they must be the same on all machines.
_CARRIED: Final = ("ASSAY_", "JAX_", "XLA_", "LIBTPU_", "TPU_")
_NOT_UPLOADED: Final = (".git", ".venv", ".tox", "results", "**/__pycache__")
_CLEANING_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 5.0  # for a connection, which takes well below a second within a cluster
_KNOWN_SECONDS: Final = 1.0
"""Ray is asked for its machines at most once in this time: for 1,000 it takes a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a worker takes of its machine: processors, and bytes of memory (0: not counted)."""

    processors: float = 1.0
    memory_bytes: int = 0


@contextmanager
def connected(
    address: str, *, nodes: int = 1, upload: Path | None = None, demand: Demand = Demand()
) -> Iterator["Cluster"]:
    """The cluster at a Ray address; for ``local``, ``nodes`` machines simulated on this one.

    ``upload`` is the folder to copy to each machine; without it, the machines share this one.

    Raises:
        WrongValue: Ray is not installed, or there is no cluster at the address.
    """
    # Ray would report every run to its makers, and set CUDA_VISIBLE_DEVICES to nothing.
    for name, text in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
        os.environ.setdefault(name, text)
    if address == LOCAL:
        # Else anyone who reaches a port of the cluster could run programs here. Ray reads it once.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ImportError:
        raise WrongValue(
            f"got no Ray, which assay fleet needs; install it: {install_command('fleet')}"
        ) from None
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Ray prints the last 20 lines of a lost machine in the middle of pytest's output.
    internals: Any = import_module("ray._private.worker")
    internals.print_to_stdstream = lambda *_, **__: None
    if address.startswith("ray://"):
        raise WrongValue(
            f"got --address {address}, wanted local, auto or HOST:PORT of a cluster; from "
            "outside, use `ray job submit -- assay fleet --address auto …`"
        )
    with ExitStack() as stack:
        place = _simulated(nodes, stack) if address == LOCAL else address
        _check_answers(place)
        environment = {"working_dir": str(upload), "excludes": _NOT_UPLOADED} if upload else None
        try:
            ray.init(
                address=place,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=environment,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, error) from None
        stack.callback(ray.shutdown)
        yield Cluster(ray=ray, demand=demand)


def _check_answers(address: str) -> None:
    """Raise WrongValue unless something listens at HOST:PORT: Ray would try it for 5 minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:  # OverflowError: a port above 65535.
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> WrongValue:
    return WrongValue(
        f"got --address {address}, where no Ray cluster answers ({error}); wanted local, "
        "auto or HOST:PORT; start one with `ray start --head`; if it has a token, set "
        "RAY_AUTH_MODE=token"
    )


def _simulated(nodes: int, stack: ExitStack) -> str:
    """The address of a new cluster on this machine, whose processors its nodes share."""
    from ray.cluster_utils import Cluster as Simulated

    each = max(1, (os.cpu_count() or 1) // nodes)
    head = {"num_cpus": each, "include_dashboard": False, "node_name": "node-1"}
    simulated = Simulated(initialize_head=True, head_node_args=head)
    stack.callback(simulated.shutdown)
    for number in range(2, nodes + 1):
        simulated.add_node(num_cpus=each, node_name=f"node-{number}")
    address: str = simulated.address
    return address


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A connected cluster. It runs groups of a job (``Workers``), and functions (``executor``)."""

    ray: Any
    demand: Demand = Demand()
    _job: bytes = b""
    _reference: Any = None
    _run: Any = None
    _used: set[str] = field(default_factory=set)
    _nodes: list[dict[str, Any]] = field(default_factory=list)
    _known_until: float = 0.0

    def start(self, job: Job) -> None:
        """The job whose groups are submitted from now on."""
        self._job = encode(job)
        self._reference = self.ray.put(self._job)
        self._run = self.ray.remote(num_returns="streaming", max_retries=0)(_run_group)

    def places(self) -> tuple[Place, ...]:
        """The machines that have room for a worker, by name; machines of one name get a number."""
        found = [(_name(node), node["NodeID"]) for node in self._alive() if self._room(node)]
        names = [name for name, _ in found]
        return tuple(
            Place(name=name if names.count(name) == 1 else f"{name}-{number}", id=node)
            for number, (name, node) in enumerate(sorted(found), 1)
        )

    def capacity(self) -> int:
        """How many workers the machines have room for."""
        return sum(map(self._room, self._alive()))

    def _alive(self) -> list[dict[str, Any]]:
        if time.monotonic() > self._known_until:
            self._nodes = [node for node in self.ray.nodes() if node["Alive"]]
            self._known_until = time.monotonic() + _KNOWN_SECONDS
        return self._nodes

    def _room(self, node: Mapping[str, Any]) -> int:
        resources, memory = node["Resources"], self._memory()
        room = int(resources.get("CPU", 0) // self.demand.processors)
        return min(room, int(resources.get("memory", 0) // memory)) if memory else room

    def _memory(self) -> int:
        """What a worker takes: no more than the largest machine has."""
        most = max((each["Resources"].get("memory", 0) for each in self._alive()), default=0)
        return min(self.demand.memory_bytes, int(most))

    def submit(self, group: Group) -> Any:
        """The stream of the group's messages."""
        return self._run.options(**self._placement(group)).remote(self._reference, group.items)

    def _placement(self, group: Group) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        totals = [node["Resources"] for node in self._alive()]
        options: dict[str, Any] = {"num_cpus": self.demand.processors}
        if memory := self._memory():
            options["memory"] = memory
        device = _DEVICES.get(group.device, "")
        # Without such a machine, any other says that the target is not available.
        if device and any(each.get(device, 0) for each in totals):
            options |= {"num_gpus": 1} if device == "GPU" else {"resources": {device: 1}}
        if group.node:
            strategy = NodeAffinitySchedulingStrategy(group.node, soft=False)
            options["scheduling_strategy"] = strategy
        return options

    def receive(
        self, handles: Collection[Any], seconds: float
    ) -> Iterator[tuple[Any, Message | None]]:
        """The next message of each stream that has one."""
        streams = list(handles)
        ready, _ = self.ray.wait(streams, num_returns=1, timeout=seconds)
        if ready and len(streams) > 1:
            ready, _ = self.ray.wait(streams, num_returns=len(streams), timeout=0)
        for stream in ready:
            yield stream, self._next(stream)

    def _next(self, stream: Any) -> Message | None:
        errors = self.ray.exceptions
        try:
            message = decode(self.ray.get(next(stream)))
        except StopIteration:
            return None
        except errors.RayTaskError as error:
            if isinstance(error.cause, ModuleNotFoundError):
                return Refused(
                    reason=f"got a machine where Assay does not start ({error.cause}); install "
                    "assay-xla and your project on every machine"
                )
            raise
        except errors.RayError as error:
            return Lost(why=_first_sentence(error))
        if isinstance(message, Started):
            self._used.add(message.place.id)
        return message

    def executor(self, folder: str) -> Executor:
        """Calls functions on any machine, in ``folder``; if that is empty, in the uploaded copy."""
        return _Anywhere(self, folder)

    def call(self, folder: str, function: Callable[[], Any]) -> Future[Any]:
        """The future result of the function, run as a task with the demand of a worker."""
        task = self.ray.remote(_in_folder).options(**self._placement(Group(items=())))
        found: Future[Any] = task.remote(folder, function).future()
        return found

    def close(self) -> None:
        """Remove the job's folders on its machines."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        clean = self.ray.remote(num_cpus=0, max_retries=0)(work.clean)
        alive = self._used & {node["NodeID"] for node in self._alive()}
        done = [
            clean.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote(self._reference, node)
            for node in alive
        ]
        with suppress(self.ray.exceptions.RayError):
            self.ray.wait(done, num_returns=len(done), timeout=_CLEANING_SECONDS) if done else None


class _Anywhere(Executor):
    """Ray runs each call on a machine with room, and again if that machine is lost."""

    def __init__(self, cluster: Cluster, folder: str) -> None:
        self._cluster, self._folder = cluster, folder

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Call the function on a machine."""
        return self._cluster.call(self._folder, partial(function, *arguments, **named))


def _in_folder(folder: str, function: Callable[[], Any]) -> Any:
    """Call the function in the folder, or where Ray put the uploaded one."""
    if folder:
        os.chdir(folder)
    return function()


def carried() -> dict[str, str]:
    """The settings of compilers and frameworks here, which every machine gets."""
    # Other names that begin with CI are secrets, such as CI_JOB_TOKEN.
    settings = os.environ.items()
    return {name: text for name, text in settings if name.startswith(_CARRIED) or name == "CI"}


def _run_group(job: bytes, items: Sequence[str]) -> Iterator[bytes]:
    """``run_group`` as a task of Ray."""
    yield from work.run_group(job, items, _here())


@cache
def _here() -> Place:
    """The machine of this process."""
    ray = import_module("ray")
    own = ray.get_runtime_context().get_node_id()
    names = (_name(node) for node in ray.nodes() if node["NodeID"] == own)
    return Place(name=next(names, own), id=own)


def _name(node: Mapping[str, Any]) -> str:
    """The name that the machine was given (``ray start --node-name``), else its host's."""
    given: str = node["NodeName"]
    return given if given != node["NodeManagerAddress"] else str(node["NodeManagerHostname"])


def _first_sentence(error: Exception) -> str:
    """The first sentence of Ray's long messages, with the kind of the error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text.partition('. ')[0]}"[:300]
