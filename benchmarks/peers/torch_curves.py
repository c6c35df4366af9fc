"""torch's ``activation_memory_budget``: ``python -m benchmarks.peers.torch_curves > curves.json``.

Requires torch, and imports no JAX. AOTAutograd traces the networks of ``benchmarks.peers.sizes``
with their backward passes. The tensors are fake: nothing is computed. For each budget, the min-cut
partitioner divides each network into a forward and a backward graph. Prints JSON: a list of points
for each network.
"""

import copy
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.peers.sizes import BUDGETS, NETWORKS, Training

MISSING = (
    "got no torch in this Python; wanted torch 2.13 or newer; do this: python3.11 -m venv "
    "/tmp/torch && /tmp/torch/bin/pip install torch numpy, and run this command by its Python"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A division of a network into a forward and a backward graph.

    ``saved_bytes`` are the bytes that the forward graph hands to the backward graph, without
    arguments and results. ``live_bytes`` are the most bytes alive at once, without arguments and
    results, if each operator writes its result: nothing is fused. ``products`` are the operations
    of matrix products and convolutions in both graphs, as `FlopCounterMode` counts them.
    """

    budget: float
    saved_bytes: int
    live_bytes: int
    products: int


def main() -> int:
    """Prints the points of all networks; 2 without torch."""
    try:
        import torch  # noqa: TID251 — it is compared with.
    except ImportError:
        sys.stderr.write(f"{MISSING}\n")
        return 2
    found = {name: [asdict(each) for each in curve(name)] for name in NETWORKS}
    sys.stdout.write(json.dumps({"torch": torch.__version__, "curves": found}, indent=2) + "\n")
    return 0


def curve(name: str) -> Iterator[Point]:
    """The points of a network, the largest budget first."""
    from torch._functorch import config  # noqa: TID251
    from torch._functorch.partitioners import (  # noqa: TID251
        min_cut_rematerialization_partition,
    )
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: TID251

    mode = FakeTensorMode()
    joint = _joint(name, NETWORKS[name](), mode)
    given = [node.meta["val"] for node in joint.graph.nodes if node.op == "placeholder"]
    for budget in BUDGETS:
        with config.patch(activation_memory_budget=budget):
            graphs = min_cut_rematerialization_partition(
                copy.deepcopy(joint), given, num_fwd_outputs=1
            )
        forward, backward = graphs
        yield Point(
            budget=budget,
            saved_bytes=sum(_saved(forward).values()),
            live_bytes=_live_bytes(forward, backward),
            products=sum(_products(each, mode) for each in graphs),
        )


def _joint(name: str, training: Training, mode: Any) -> Any:
    """The joint graph of a loss and of its gradients by the weights."""
    import torch  # noqa: TID251
    from torch._functorch.aot_autograd import aot_export_joint_simple  # noqa: TID251
    from torch.utils import _pytree  # noqa: TID251

    from benchmarks.peers.torch_networks import LOSSES

    leaves, tree = _pytree.tree_flatten(
        training.weights, is_leaf=lambda node: isinstance(node, tuple)
    )
    whole = torch.int64

    def loss(*arguments: Any) -> tuple[Any]:
        weights = _pytree.tree_unflatten(list(arguments[: len(leaves)]), tree)
        return (LOSSES[name](weights, *arguments[len(leaves) :]),)

    with mode:
        weights = [torch.empty(shape, requires_grad=True) for shape in leaves]
        kind = whole if training.is_of_tokens else torch.float32
        others = [torch.empty(training.given, dtype=kind)]
        if training.labels is not None:
            others.append(torch.empty(training.labels, dtype=whole))
        return aot_export_joint_simple(loss, (*weights, *others), trace_joint=True)


def _saved(forward: Any) -> dict[int, int]:
    """Bytes of each storage passed to the backward graph, without arguments; views share one."""
    _, *saved = _outputs(forward)
    arguments = _sizes(node for node in forward.graph.nodes if node.op == "placeholder")
    return {key: size for key, size in _sizes(saved).items() if key not in arguments}


def _outputs(graph: Any) -> list[Any]:
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return [each for each in output.args[0] if each is not None]


def _sizes(nodes: Iterable[Any]) -> dict[int, int]:
    """Bytes of each storage that the values of nodes lie in, by the storage's address."""
    import torch  # noqa: TID251

    found = {}
    for node in nodes:
        value = node.meta.get("val")
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, torch.Tensor):
                memory = each.untyped_storage()
                found[memory._cdata] = memory.nbytes()  # noqa: SLF001 — what views share.
    return found


def _live_bytes(forward: Any, backward: Any) -> int:
    arguments = _sizes(node for node in forward.graph.nodes if node.op == "placeholder")
    results = _sizes((_outputs(forward)[0], *_outputs(backward)))
    saved = _saved(forward)
    ignored = {*arguments, *results}
    return max(_most(forward, {}, saved, ignored), _most(backward, saved, {}, ignored))


def _most(graph: Any, before: dict[int, int], after: dict[int, int], ignored: set[int]) -> int:
    """The most bytes alive at once while a graph runs node by node, without ``ignored``.

    A value is freed after its last use. ``before`` is in memory at the start, ``after`` at the end.
    """
    nodes = [node for node in graph.graph.nodes if node.op != "output"]
    last = {}
    for at, node in enumerate(nodes):
        for key in _sizes((node, *node.all_input_nodes)):
            last[key] = at
    live, most = dict(before), sum(before.values())
    for at, node in enumerate(nodes):
        if node.op != "placeholder":
            live |= {key: size for key, size in _sizes([node]).items() if key not in ignored}
        most = max(most, sum(live.values()))
        live = {key: size for key, size in live.items() if key in after or last.get(key, 0) > at}
    return most


def _products(graph: Any, mode: Any) -> int:
    from torch.utils.flop_counter import FlopCounterMode  # noqa: TID251

    given = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    with mode, FlopCounterMode(display=False) as counter:
        graph(*given)
    found: int = counter.get_total_flops()
    return found


if __name__ == "__main__":
    sys.exit(main())
