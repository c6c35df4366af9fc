"""Help that teaches: examples that parse, names that are suggested, and what a shell completes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from assay import Check, cli
from assay.cli import app, completion
from assay.cli.examples import EXAMPLES
from assay.model.blame import WrongValue
from assay.model.suggestion import nearest, wanted_one_of
from tests.plugin.project import PREAMBLE, Project

HOST_MEMORY_AND_BYTES = (
    "suites.scan_offload.test_host_memory",
    "suites.scan_offload.test_policies",
)
COMMAND = typer.main.get_command(app)
ALL = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
SUITE = (
    PREAMBLE
    + """
W = workload(variant("double", double))
test_compiles = Check(claim=claims.Compiles(), workloads=(W,))
"""
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("help"), {"mysuites/test_small.py": SUITE})
    project.pytest("mysuites")
    return project


def invoked(arguments: list[str], variables: Mapping[str, str] | None = None) -> str:
    """What the command line prints."""
    return CliRunner().invoke(app, arguments, env=variables, prog_name="assay").output


def parse(example: str) -> None:
    """Parse a line of a shell against the command line, and run nothing."""
    program, *words = shlex.split(example)
    assert program == "assay"
    context = COMMAND.make_context(program, words[:1])
    _, command, _ = COMMAND.resolve_command(context, words)  # type: ignore[attr-defined]
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize(("name", "example"), ALL)
def test_every_example_is_parsed_by_its_command(name: str, example: str) -> None:
    assert shlex.split(example)[1] == name
    parse(example)


@pytest.mark.parametrize(
    "example",
    ["assay inspect a.py:f --targt cpu", "assay inspct a.py:f", "assay report", "assay cache x"],
)
def test_an_example_that_does_not_parse_is_noticed(example: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing|unexpected"):
        parse(example)


def test_every_command_has_two_or_three_examples() -> None:
    assert set(COMMAND.commands) == set(EXAMPLES)  # type: ignore[attr-defined]
    assert {len(examples) for examples in EXAMPLES.values()} <= {2, 3}
    for name, examples in EXAMPLES.items():
        shown = " ".join(invoked([name, "--help"]).split())
        assert f"Examples: {' '.join(examples)}" in shown


def test_run_takes_the_suites_of_the_folder_first(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"suites/test_small.py": SUITE}).assay("run", "--", "-k", "cpu")
    assert ended.exit_code == 0, ended.output
    assert [(each.suite, each.target) for each in ended.records] == [("mine", "cpu:8")]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("run dus_remat --assay-target cpu", "assay run dus_remat --"),
        ("run dus_remat --target cpu", "assay run dus_remat --"),
        ("run -k host", "assay run SUITES --"),
        ("fleet 'my suites' --nodes 2 --assay-level full", "assay fleet 'my suites' --"),
    ],
)
def test_an_option_of_pytest_before_the_dashes_is_answered(line: str, command: str) -> None:
    found = CliRunner().invoke(app, shlex.split(line), prog_name="assay")
    assert isinstance(found.exception, WrongValue)
    assert "before --, wanted pytest's options after it" in str(found.exception)
    assert str(found.exception).endswith(f": {command} --assay-target cpu:8")


@pytest.mark.parametrize("line", ["fleet x --adress y", "fleet x --address", "fleet"])
def test_a_mistake_in_an_own_option_is_answered_as_elsewhere(line: str) -> None:
    found = CliRunner().invoke(app, shlex.split(line), prog_name="assay")
    assert found.exit_code == 2
    assert isinstance(found.exception, SystemExit)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("bisect", "assay: interrupted; what was measured is kept\n"),
        ("inspect", "assay: interrupted\n"),
        ("doctor", "assay: interrupted\n"),
    ],
)
def test_only_a_command_that_keeps_something_says_so(
    command: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise SystemExit(130)

    monkeypatch.setattr(cli, "app", interrupted)
    monkeypatch.setattr(sys, "argv", ["assay", command])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (2, words)


def test_an_example_names_a_workload_and_claims_of_a_suite() -> None:
    (example,) = [each for each in EXAMPLES["report"] if "--workload" in each]
    words = shlex.split(example)
    workload, claims = (words[words.index(each) + 1] for each in ("--workload", "--claims"))
    modules = map(import_module, HOST_MEMORY_AND_BYTES)
    checks = [each for module in modules for each in vars(module).values()]
    real = {
        (program.name, each.claim.name)
        for each in checks
        if isinstance(each, Check)
        for program in each.workloads
    }
    assert {(workload, claim) for claim in claims.split(",")} <= real


def test_a_near_name_is_suggested_and_a_far_one_is_not() -> None:
    assert nearest("FULL", ["quick", "full"]) == ("full",)
    assert wanted_one_of("ful", ["quick", "full"]) == "wanted one of quick, full; write full"
    assert wanted_one_of("x", ["quick", "full"]) == "wanted one of quick, full"
    assert wanted_one_of("--a-ful", ["quick", "full"], "--a-").endswith("--a-full; write --a-full")


MATRIX = ("matrix", "mysuites", "--release", "0.10.2", "--target", "cpu:8")
BISECT = ("bisect", "a.py:f", "--good", "0.8.0", "--bad", "0.9.0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspct", "a.py:f"), "Did you mean 'inspect'"),
        (("inspect", "a.py:f", "--targt", "cpu"), "--target"),
        (("targets", "gpu-h10"), "write gpu-h100:8"),
        ((*BISECT, "--metric", "temp_byte"), "write temp_bytes"),
        ((*BISECT, "--component", "jaxlb"), "write jaxlib"),
        ((*MATRIX, "--level", "quik"), "write quick"),
        ((*MATRIX, "--claim", "compile"), "write compiles"),
        ((*MATRIX, "--workload", "smal"), "write small"),
        (("matrix", "dus_rema", *MATRIX[2:]), "write dus_remat"),
        (("report", "results/latest", "--workload", "smal"), "write small"),
        (
            ("report", "results/latest", "--workload", "small", "--claims", "compile"),
            "write compiles",
        ),
    ],
)
def test_a_wrong_name_is_misuse_and_the_near_one_named(
    project: Project, arguments: tuple[str, ...], words: str
) -> None:
    project.write({"a.py": "def f(x):\n    return x\n\ndef example_args():\n    return (1.0,)\n"})
    ended = project.assay(*arguments)
    assert ended.exit_code == 2, ended.output
    assert words in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("option", "code", "words"),
    [
        ("--assay-targt=cpu", pytest.ExitCode.USAGE_ERROR, "write --assay-target"),
        ("--assay-level=ful", 2, "write full"),
        ("--assay-require-framework=torchxla", 2, "write torch_xla"),
        ("--assay-update-baselines=al", 2, "write all"),
    ],
)
def test_a_wrong_option_of_pytest_names_the_near_one(
    project: Project, option: str, code: int, words: str
) -> None:
    ended = project.pytest(option, "mysuites")
    assert ended.exit_code == code, ended.output
    assert words in ended.output


COMPLETED = [
    ("assay inspect --target gpu-h1", "gpu-h100:8"),
    ("assay inspect --target gpu,tpu-v5e", "gpu,tpu-v5e:2x4"),
    ("assay bisect --metric temp", "temp_bytes"),
    ("assay bisect --component jaxl", "jaxlib"),
    ("assay matrix scan_", "scan_offload"),
    ("assay matrix --level qu", "quick"),
    ("assay history host-byt", "host-bytes"),
    ("assay doc", "doctor"),
]


@pytest.mark.parametrize(("line", "word"), COMPLETED)
def test_a_shell_completes_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place = str(len(line.split()) - 1)
    variables = {"_ASSAY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
    assert invoked([], variables).splitlines() == [word]


def test_completion_offers_paths_as_suites(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    assert completion.suites("mysui") == ["mysuites/"]
    assert completion.suites("mysuites/test") == ["mysuites/test_small.py"]
    assert completion.suites("absent/") == []


def test_completion_is_installed_into_the_shell(project: Project, tmp_path: Path) -> None:
    assay = Path(sys.executable).with_name("assay")
    # A shell that is asked for one command replaces itself by it; completion looks for the shell.
    script = f"{assay} --install-completion && true"
    ended = subprocess.run(
        ["bash", "-c", script],
        env={**project.environment(), "HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (written,) = (tmp_path / ".bash_completions").iterdir()
    assert "complete -o default -F _assay_completion assay" in written.read_text()
    assert str(written) in (tmp_path / ".bashrc").read_text()


def test_a_paragraph_of_help_has_no_line_break_of_its_own() -> None:
    for command in EXAMPLES:
        text = COMMAND.commands[command].help  # type: ignore[attr-defined]
        assert "\n" not in text.replace("\n\n", ""), command
