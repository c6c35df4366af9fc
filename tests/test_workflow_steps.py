"""The steps of the workflows run outside GitHub and Slurm, in a folder that holds one test."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import assay
from tests import warm
from tests.plugin.project import PREAMBLE, Project

ROOT = Path(__file__).parents[1]
TEST = (
    PREAMBLE
    + """
W = workload(variant("double", PROGRAM))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)
FAILS, PASSES = (TEST.replace("PROGRAM", program) for program in ("mismatched", "double"))


class Runner:
    """A machine that runs steps in a project, as GitHub's runner does, with commands in ``tools``.

    Slurm's ``srun`` runs the command here.
    """

    def __init__(self, root: Path, test: str) -> None:
        self.root, self.tools = root / "project", root / "tools"
        Project(self.root, {"tests/test_small.py": test})
        self.tools.mkdir()
        python = f"{warm.shared().executable} -P -m"
        for name, command in {
            "pytest": f"{python} pytest",
            "assay": f"{python} assay.cli",
            "srun": "",
        }.items():
            (self.tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (self.tools / name).chmod(0o755)
        self.summary, self.output = root / "summary.md", root / "output"
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(assay.__file__).parents[1]),
            "PYTEST_ADDOPTS": "--assay-target=cpu:8 -p no:cacheprovider",
            "HOME": str(root),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
        }

    def run(self, script: str, *arguments: str, **environment: str) -> tuple[int, str]:
        """The exit code and the output of a script."""
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script, "step", *arguments],
            cwd=self.root,
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stdout

    def outputs(self) -> dict[str, str]:
        """What the steps gave to other jobs."""
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


def steps(file: str, job: str) -> Mapping[str, Any]:
    """The scripts of a job, by the name of their step."""
    found = yaml.safe_load((ROOT / file).read_text())["jobs"][job]["steps"]
    return {step["name"]: step["run"] for step in found if "run" in step}


@pytest.mark.parametrize(("test", "code"), [(PASSES, 0), (FAILS, 1)], ids=["passes", "fails"])
def test_the_steps_to_copy_judge_report_and_publish(tmp_path: Path, test: str, code: int) -> None:
    runner = Runner(tmp_path, test)
    judge = steps("docs/workflows/assay.yml", "judge")
    assert list(judge) == ["Install", "Judge", "Report"]
    ended, output = runner.run(judge["Judge"])
    assert ended == code, output
    ended, output = runner.run(judge["Report"])
    assert ended == 0, output
    annotations = output.splitlines()
    assert len(annotations) == code
    line = test.partition("test_compiles")[0].count("\n") + 1
    assert all(f"::error file=tests/test_small.py,line={line}," in each for each in annotations)
    assert runner.summary.read_text().startswith("# Assay\n")
    (run,) = json.loads((runner.root / "results/assay.sarif").read_text())["runs"]
    assert len(run["results"]) == code

    badge = runner.outputs()["badge"]
    (publish,) = steps("docs/workflows/assay.yml", "badge").values()
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    for text in ("{}", badge):
        ended, output = runner.run(publish, BADGE=text, REPOSITORY=str(remote), TOKEN="x")
        assert ended == 0, output
        runner.run("rm -rf badge")
    show = ["git", "-C", str(remote), "show", "assay-badge:badge.json"]
    published = json.loads(subprocess.run(show, capture_output=True, check=True).stdout)
    assert published["message"] == ("The run fails" if code else "1 passed")


def test_a_run_without_a_summary_says_so(tmp_path: Path) -> None:
    runner = Runner(tmp_path, PASSES)
    for file, job, name in (
        ("docs/workflows/assay.yml", "judge", "Report"),
        (".github/workflows/suites.yml", "run", "Show the summary"),
    ):
        ended, output = runner.run(steps(file, job)[name], ENVIRONMENT="nightly")
        assert ended == 0, output
    assert runner.summary.read_text().count("The run ended before its summary") == 2


def test_our_own_nightly_shows_summary_and_annotations(tmp_path: Path) -> None:
    runner = Runner(tmp_path, FAILS)
    assert runner.run("pytest")[0] == 1
    environment = runner.root / ".tox/nightly"
    environment.mkdir(parents=True)
    (environment / "bin").symlink_to(runner.tools)
    show = steps(".github/workflows/suites.yml", "run")["Show the summary"]
    ended, output = runner.run(show, ENVIRONMENT="nightly")
    assert (ended, output.count("::error ")) == (0, 1), output
    assert "The run fails" in runner.summary.read_text()


def slurm(runner: Runner, task: str, **environment: str) -> tuple[int, str]:
    """The batch script as the task of an array."""
    script = (ROOT / "docs/workflows/assay.sbatch").read_text()
    usual = {
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": task,
        "ASSAY_TARGET": "cpu:8",
    }
    tests = ("tests/test_none.py", "tests/test_small.py")
    return runner.run(script, *tests, **usual, **environment)


def test_a_task_of_a_slurm_array_judges_its_test(tmp_path: Path) -> None:
    runner = Runner(tmp_path, FAILS)
    ended, output = slurm(runner, "1", TEXTFILES=str(tmp_path))
    assert ended == 1, output
    assert (runner.root / "results/slurm-7/1/latest/records.jsonl").is_file()
    (metrics,) = tmp_path.glob("assay-*")
    assert metrics.name == "assay-test_small.prom"
    families = {each.name for each in text_string_to_metric_families(metrics.read_text())}
    assert {"assay_exit_code", "assay_verdicts"} <= families


@pytest.mark.parametrize(("task", "code"), [("0", 4), ("2", 1)], ids=["no-file", "no-argument"])
def test_a_task_without_a_test_fails(tmp_path: Path, task: str, code: int) -> None:
    ended, output = slurm(Runner(tmp_path, PASSES), task, TEXTFILES=str(tmp_path))
    assert ended == code, output
    assert ("name a test file" if task == "2" else "not found") in output
    assert not list(tmp_path.glob("assay-*"))


RAY = """#!/bin/sh
echo "ray $*"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.parametrize("code", [0, 1])
def test_the_fleet_of_a_slurm_job_ends_as_the_command(tmp_path: Path, code: int) -> None:
    runner = Runner(tmp_path, PASSES)
    for name, script in {
        "ray": RAY,
        "srun": '#!/bin/sh\nshift\nexec "$@"\n',
        "scontrol": "#!/bin/sh\nprintf 'n1\\nn2\\n'\n",
        "assay": f'#!/bin/sh\necho "assay $*"\nexit {code}\n',
    }.items():
        (runner.tools / name).write_text(script)
        (runner.tools / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    script = (ROOT / "docs/workflows/fleet/assay-fleet.sbatch").read_text()
    ended, output = runner.run(script, "suites", "--", "-k", "two words", **slurm)
    assert ended == code, output
    command = "assay fleet --address auto --no-upload suites -- -k two words"
    ray = f"ray symmetric-run --address n1:6379 --min-nodes 2 -- {command}"
    assert output.splitlines() == [ray, command]
