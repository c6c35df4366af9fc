"""Upstream's scan offload at full size, on one device's share: ``… .device.offload FILE``.

The program of openxla/xla#17541 on a mesh of 4 × 2 devices gives each device a batch of 16
sequences of 4,096. Measures of one variant its step time, its device memory, and the share of its
transfers that is hidden behind kernels. Appends them to FILE as one line of JSON.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import jax  # noqa: TID251 - what is measured here is JAX itself.
import jax.numpy as jnp  # noqa: TID251

from assay.frameworks.framework import built, memory_of
from assay.frameworks.installed import framework
from assay.targets import resolve
from benchmarks.device.profiles import profiled
from suites.scan_offload.programs import Budget, Sizes, block_program, shapes
from suites.scan_offload.variants import memsafe_variants, written_variants

SHARE: Final = Sizes(layers=32, batch=16, sequence=4096, embedding=2048, hidden=2048)
_BUDGET: Final = Budget(each=8 * 2**30)
_STEPS: Final = 4
VARIANTS: Final = (
    "nothing",
    "offload-residual-input",
    "offload-hidden",
    "save-hidden",
    "offload-residual-output",
    "no-remat",
    "memsafe",
    "memsafe-no-remat",
)


def _values(sizes: Sizes) -> Any:
    """Normal values, made on the device, because numpy takes a minute for them."""
    leaves, tree = jax.tree.flatten(shapes(sizes))
    keys = jax.random.split(jax.random.key(0), len(leaves))
    scale = sizes.embedding**-0.5 / sizes.layers
    params = len(jax.tree.leaves(shapes(sizes)[0]))
    made = [
        jax.random.normal(key, leaf.shape, jnp.float32) * (scale if at < params else 1.0)
        for at, (key, leaf) in enumerate(zip(keys, leaves, strict=True))
    ]
    return jax.tree.unflatten(tree, made)


def measured(tools: Any, variant: Any, sizes: Sizes) -> dict[str, Any]:
    """Measures of one variant, whose steps each start from the parameters of the step before."""
    program = built(variant, tools.devices)
    start = time.perf_counter()
    with tools.machine():
        lowered = tools.lower(tools.trace(replace(program, values=None)))
        compiled = lowered.compile()
    setup_s = time.perf_counter() - start
    memory = memory_of(compiled.runtime_executable().get_compiled_memory_stats())
    params, inputs, target = jax.device_put(
        jax.jit(partial(_values, sizes))(), compiled.input_shardings[0]
    )
    seconds, losses = [], []

    def step(params: Any) -> Any:
        start = time.perf_counter()
        params, loss = jax.block_until_ready(compiled(params, inputs, target))
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss))
        return params

    for _ in range(_STEPS):
        params = step(params)
    held = [params]

    def last() -> None:
        held[0] = step(held[0])

    profile = profiled(last)
    stats = tools.devices[0].memory_stats() or {}
    return {
        "setup_s": setup_s,
        "seconds": seconds,
        "losses": losses,
        "compiler": asdict(memory),
        "peak_of_process": stats.get("peak_bytes_in_use"),
        "profile": profile,
    }


def main() -> int:
    """Measures one variant; one per process, because the peak memory is that of the process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--variant", required=True, choices=VARIANTS)
    parser.add_argument("--name", help="to write it down under; default: the variant's")
    parser.add_argument("--target", default="gpu")
    parser.add_argument("--layers", type=int, default=SHARE.layers)
    options = parser.parse_args()
    sizes = replace(SHARE, layers=options.layers)
    variants = (*written_variants(sizes, block_program), *memsafe_variants(sizes, _BUDGET))
    variant = next(each for each in variants if each.name == options.variant)
    tools = framework("jax", resolve(options.target))
    try:
        found = measured(tools, variant, sizes)
    except Exception as error:  # noqa: BLE001 - written down, like all that is found
        found = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
    with options.file.open("a") as file:
        file.write(json.dumps({"variant": options.name or options.variant, **found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
