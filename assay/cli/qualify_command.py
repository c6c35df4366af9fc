"""The command ``assay qualify``: decide the features of a target, or check a certificate."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer import Option

from assay.cli import completion
from assay.judge.qualification import demanded, dropped, exit_code, later, qualify
from assay.model.blame import WrongValue
from assay.model.qualification import Environment, Qualification, RulesUsed
from assay.model.verdict import ExitCode, Record
from assay.model.workload import Level
from assay.report.labels import toolchain_versions
from assay.report.qualification import demands, pages, print_qualification, print_verification
from assay.store import certificate, evidence, records, rules, signature
from assay.store.shipped import BASELINES, SUITES, home, pytest_options
from assay.targets import resolve

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from assay.targets import Target

_File = Path | None
_Target = Annotated[
    str,
    Option(help="The target to qualify, such as gpu-h100:8.", autocompletion=completion.targets),
]
_Level = Annotated[
    int, Option(min=1, max=4, help="1: a minute; 2: minutes; 3: timings on a device; 4: soak.")
]
_Rules = Annotated[_File, Option("--rules", help="Rules of your own in place of Assay's.")]
_Looser = Annotated[
    bool, Option("--allow-looser-rules", help="Accept less strict rules; the certificate says so.")
]
_From = Annotated[
    _File, Option("--from", help="Use the records of this run; do not run the suites.")
]
_Workers = Annotated[str, Option("-n", "--workers", help="pytest-xdist workers: a number or auto.")]
_Suites = Annotated[
    _File, Option(help="The folder of suites to run; default: suites, else those of Assay.")
]
_Baselines = Annotated[
    _File, Option(help="The folder of baselines; default: baselines, else those of Assay.")
]
_SignKey = Annotated[_File, Option(help="Sign with this Ed25519 private key (PEM).")]
_Verify = Annotated[
    _File, Option(help="Check this certificate and the run's files next to it; run nothing.")
]
_PublicKey = Annotated[_File, Option(help="With --verify: the key that must have signed (PEM).")]


def qualify_target(  # noqa: PLR0913 -- typer takes a parameter for each option.
    *,
    target: _Target = "",
    level: _Level = 1,
    suites: _Suites = None,
    results_dir: Annotated[Path, Option(help="The folder for results.")] = Path("results"),
    baselines_dir: _Baselines = None,
    rules_file: _Rules = None,
    allow_looser_rules: _Looser = False,
    from_run: _From = None,
    workers: _Workers = "0",
    sign_key: _SignKey = None,
    verify: _Verify = None,
    public_key: _PublicKey = None,
) -> None:
    """Decide for one target, feature by feature: passed, failed, unsupported or inconclusive.

    Writes a certificate with the hashes of all evidence; --verify checks one.
    """
    place = home(Path.cwd()) if suites is None else None
    suites = suites or (place or Path()) / SUITES
    baselines_dir = baselines_dir or (place or Path()) / BASELINES
    if verify is not None:
        raise typer.Exit(_verify(verify, public_key, suites).value)
    if public_key is not None:
        raise WrongValue("got --public-key without --verify, wanted both; sign with --sign-key")
    key = signature.private_key(sign_key) if sign_key else None
    found = _usable(target, level)
    used = rules.load(rules_file or rules.PACKAGED)
    compared = _compared(used, found, level, allow_looser=allow_looser_rules)
    run = from_run or _run(used, found, level, suites, [results_dir, baselines_dir], workers)
    folder = run if run.is_dir() else run.parent
    reached = records.load(run)
    records.check_count(folder / records.FILE_NAME, reached, records.invocation_of(folder).ending)
    seen = [each for each in reached if each.target == str(found.name)]
    if not seen:
        raise WrongValue(f"got {run} without a record of {found.name}, wanted a run on it")
    decided = _decided(seen, used, found, level, folder)
    with_numbers = sorted({each.suite for each in seen if each.baseline})
    qualification = replace(
        decided,
        rules=compared,
        producer=certificate.producer(suites),
        evidence=certificate.keep_evidence(
            folder, used, baselines_dir, decided.target, with_numbers
        ),
        public_key=key.public_key().public_bytes_raw().hex() if key else "",
    )
    _write(folder, qualification, key)
    raise typer.Exit(qualification.exit_code.value)


def _decided(
    seen: Sequence[Record], used: rules.Rules, target: "Target", level: int, folder: Path
) -> Qualification:
    """The decisions on the records of a run, without the rules, producer, evidence and key."""
    timed, _ = evidence.TIMES.load_all(folder)
    machines = {
        str(each.machine): None
        for each in timed
        if each.machine and each.target == str(target.name)
    }
    place: dict[str, Any] = {"target": str(target.name), "level": level}
    features = qualify(seen, used.features, **place)
    return Qualification(
        **place,
        executes=target.executes,
        run=", ".join(dict.fromkeys(each.run for each in seen)),
        command=("assay", "qualify", "--target", place["target"], "--level", str(level)),
        exit_code=exit_code(features, records.invocation_of(folder).ending),
        environment=Environment(
            toolchain=toolchain_versions(seen),
            platform=platform.platform(),
            python=platform.python_version(),
            date=datetime.now(UTC).date().isoformat(),
            machine="; ".join(machines),
        ),
        features=features,
        later=later(used.features, **place),
        verdicts=len(seen),
        cached=sum(each.cached for each in seen),
    )


def _usable(target: str, level: int) -> "Target":
    """The target. Raises WrongValue if it cannot be qualified at the level on this machine."""
    if not target:
        raise WrongValue("got no --target, wanted one such as gpu-h100:8, or --verify FILE")
    found = resolve(target)
    if level >= Level.DEVICE and not found.executes:
        raise WrongValue(
            f"got --level {level} for {found.name}, which is compiled for and runs nothing, wanted "
            "level 1 or 2; levels 3 and 4 need a live target: cpu, gpu or tpu"
        )
    if missing := found.unavailable():
        raise WrongValue(f"got --target {found.name}: {missing.reason}; {missing.remedy}")
    return found


def _compared(used: rules.Rules, target: "Target", level: int, *, allow_looser: bool) -> RulesUsed:
    """The rules compared with Assay's. Raises WrongValue for looser ones that are not allowed."""
    base = rules.load(rules.PACKAGED)
    place, sides = str(target.name), (base.features, used.features)
    gone = dropped(*sides, target=place, level=level)
    if gone and not allow_looser:
        listed = "\n  ".join(demands(gone))
        raise WrongValue(
            f"got rules that are less strict than those of Assay:\n  {listed}\n"
            "wanted rules at least as strict; --allow-looser-rules accepts them, and the "
            "certificate then says so"
        )
    return RulesUsed(
        sha256=used.sha256,
        packaged_sha256=base.sha256,
        dropped=gone,
        added=dropped(*reversed(sides), target=place, level=level),
    )


def _run(
    used: rules.Rules,
    target: "Target",
    level: int,
    suites: Path,
    folders: Sequence[Path],
    workers: str,
) -> Path:
    """Judge what the rules name on the target, and nothing else. Returns the run's folder."""
    from assay.cli.checkups import need_suites
    from assay.plugin.collection import collect
    from assay.plugin.session import launch

    if not suites.is_dir():
        raise WrongValue(f"got no folder {suites}, wanted one with suites; name it with --suites")
    of_wheel = pytest_options([suites])
    if of_wheel:
        need_suites()
    name, words = str(target.name), Level(level).name.lower()
    wanted = {
        (rule.suite, cell.workload, cell.claim, variant)
        for rule in used.features
        for cell, needed in demanded(rule, name, level).items()
        for variant in (cell.variant, *needed.claims[cell.claim])
    }
    chosen = [
        each.nodeid
        for each in collect([suites], targets=[name], level=words)
        for trial in [each.trial]
        if (trial.workload.suite, trial.workload.name, trial.check.claim.name, trial.variant.name)
        in wanted
    ]
    if not chosen:
        raise WrongValue(
            f"got {suites} without any check that the rules name for {name} at level {level}, "
            "wanted some; try a higher level, or name other suites or rules"
        )
    results_dir, baselines_dir = (str(each.resolve()) for each in folders)
    arguments = [
        *of_wheel,
        *dict.fromkeys(chosen),
        "--assay-target",
        name,
        "--assay-level",
        words,
    ]
    arguments += [f"--assay-results-dir={results_dir}", f"--assay-baselines-dir={baselines_dir}"]
    # Above level 1 every program is compiled in this run.
    arguments += ["--assay-no-cache"] if level > 1 else []
    arguments += ["-n", workers] if workers != "0" else []
    code, directory = launch(arguments)
    if directory is None:
        raise typer.Exit(code or ExitCode.CRASHED.value)
    return directory


def _write(folder: Path, qualification: Qualification, key: "Ed25519PrivateKey | None") -> None:
    made = pages(qualification, certificate.number(qualification))
    sealed = certificate.seal(qualification, made, key)
    console = Console()
    print_qualification(console, qualification)
    for path in certificate.write(folder, sealed, made):
        console.print(f"written: {path}", soft_wrap=True)


def _verify(path: Path, public_key: Path | None, suites: Path) -> ExitCode:
    key = signature.public_key(public_key) if public_key else ""
    known, number, mismatches, authentic = certificate.verify(path, key)
    here = certificate.producer(suites)
    print_verification(Console(), known, number, mismatches, here=here, authentic=authentic)
    return ExitCode.FAILED if mismatches else ExitCode.PASSED
