"""The RayJob to copy has the fields of KubeRay, and starts the command as documented.

The schema names the fields that the example uses, as KubeRay's own CRD spells and types them
(ray.io/v1, ray.io_rayjobs.yaml at commit feeaf72 of 19 August 2026). On 25 November 2026 the
example was also valid by that whole CRD, with unknown fields refused.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from assay.cli import app

FILE = Path(__file__).parents[1] / "docs/workflows/fleet/rayjob.yaml"

TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
AMOUNTS = {"type": "object", "additionalProperties": {"type": ["integer", "string"]}}


def fields(required: str, **known: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": known,
        "required": required.split(),
        "additionalProperties": False,
    }


def many(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one, "minItems": 1}


CONTAINER = fields(
    "name image resources",
    name=TEXT,
    image=TEXT,
    resources=fields("requests limits", requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts=many(fields("name mountPath", name=TEXT, mountPath=TEXT)),
)
CLAIM = fields("claimName", claimName=TEXT)
VOLUME = fields("name persistentVolumeClaim", name=TEXT, persistentVolumeClaim=CLAIM)
POD = fields("containers", containers=many(CONTAINER), volumes=many(VOLUME))
TEMPLATE = fields("spec", spec=POD)
WORKERS = fields(
    "groupName template",
    groupName=TEXT,
    replicas=WHOLE,
    minReplicas=WHOLE,
    maxReplicas=WHOLE,
    rayStartParams=TEXTS,
    template=TEMPLATE,
)
CLUSTER = fields(
    "headGroupSpec",
    rayVersion=TEXT,
    enableInTreeAutoscaling=FLAG,
    headGroupSpec=fields("template", rayStartParams=TEXTS, template=TEMPLATE),
    workerGroupSpecs=many(WORKERS),
)
RAYJOB = fields(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=fields("name", name=TEXT),
    spec=fields(
        "entrypoint rayClusterSpec",
        entrypoint=TEXT,
        backoffLimit=WHOLE,
        shutdownAfterJobFinishes=FLAG,
        ttlSecondsAfterFinished=WHOLE,
        rayClusterSpec=CLUSTER,
    ),
)


@pytest.fixture
def job() -> Any:
    return yaml.safe_load(FILE.read_text())


def faults(job: Any) -> list[str]:
    return [each.message for each in jsonschema.Draft202012Validator(RAYJOB).iter_errors(job)]


def test_the_rayjob_has_the_fields_of_kuberay(job: Any) -> None:
    assert faults(job) == []


def misspell(job: Any) -> None:
    job["spec"]["shutdownAfterJobFinished"] = True


def mistype(job: Any) -> None:
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0


def forget(job: Any) -> None:
    del job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]


@pytest.mark.parametrize("spoil", [misspell, mistype, forget])
def test_a_rayjob_that_is_wrong_is_refused(job: Any, spoil: Callable[[Any], None]) -> None:
    wrong = copy.deepcopy(job)
    spoil(wrong)
    assert len(faults(wrong)) == 1


def test_what_the_rayjob_asks_for_is_what_it_may_use(job: Any) -> None:
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]


def test_the_command_of_the_rayjob_has_options_that_exist(job: Any) -> None:
    _, _, script = shlex.split(job["spec"]["entrypoint"])
    words = shlex.split(script.partition("&& ")[2])
    assert words[:2] == ["assay", "fleet"]
    known = CliRunner().invoke(app, ["fleet", "--help"]).output
    own = words[: words.index("--")]
    assert all(word in known for word in own if word.startswith("--"))
