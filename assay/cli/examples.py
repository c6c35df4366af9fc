"""The examples at the end of each command's help. A test parses every one of them."""

import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

EXAMPLES: Final = MappingProxyType(
    {
        "targets": (
            "assay targets",
            "assay targets gpu-h100:8 tpu-v5e:2x4 --check",
        ),
        "inspect": (
            "assay inspect train.py:train_step --target gpu-h100",
            "assay inspect train.py:train_step --target tpu-v5e:2x4 --donate 0 --html page.html",
            "assay inspect dump/module.hlo.pb --diff dump/before.hlo.pb --json",
        ),
        "report": (
            "assay report results/latest --verbose",
            "assay report results/latest --workload block --claims temp-bytes,host-bytes",
            "assay report results/latest --format annotations",
        ),
        "run": (
            "assay run",
            "assay run dus_remat scan_offload -- --assay-target gpu-h100:8 --assay-level full",
            "assay run scan_offload -- -k host -n auto",
        ),
        "bisect": (
            "assay bisect step.py:step --good 0.8.0 --bad 0.9.2 --target gpu-h100",
            "assay bisect step.py:step --good 0.8.0 --bad 0.9.2 --metric loop_copies --html b.html",
            "assay bisect step.py:step --good 0.8.0 --bad 0.9.2 --scan --attribute",
        ),
        "matrix": (
            "assay matrix dus_remat --release 0.8.0,0.12.0.1 --target cpu:8",
            "assay matrix suites/scan_offload --release 0.10.2 --target gpu-h100:8 -k host",
        ),
        "fleet": (
            "assay fleet --address auto suites -- --assay-target gpu-h100:8 -k offload",
            "assay fleet --address local --nodes 2 suites/dus_remat",
            "assay fleet --address auto --each-node suites -- --assay-level device",
        ),
        "history": (
            "assay history --add results/latest",
            "assay history temp-bytes --target gpu-h100:8",
            "assay history 'scan_offload/*/*/host-bytes' --db runs.db --json",
        ),
        "qualify": (
            "assay qualify --target gpu-h100:8",
            "assay qualify --target tpu-v5e:2x4 --level 2 --workers auto --sign-key key.pem",
            "assay qualify --verify results/latest/qualification.json --public-key public.pem",
        ),
        "doctor": (
            "assay doctor",
            "assay doctor --target gpu-h100:8",
            "assay doctor --json",
        ),
        "cache": ("assay cache", "assay cache --clear"),
    }
)


def told(command: Callable[..., Any]) -> str:
    """What a command's docstring says, a paragraph a line: typer wraps it to the terminal."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(each.replace("\n", " ") for each in paragraphs)


def epilog(command: str) -> str:
    """The examples as the end of a help page, one a line."""
    return "\n\n".join(["Examples:", *EXAMPLES[command]])
