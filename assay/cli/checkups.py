"""What ``assay doctor`` checks: each part of an installation and of its machine, separately."""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from assay.frameworks.installed import CUDA_PLUGINS, installed_version
from assay.isolate.memory import LEAST_MACHINE_BYTES, machine_bytes
from assay.model.blame import WrongValue
from assay.model.installation import DISTRIBUTION, HERE, install_command
from assay.model.target import Unavailable
from assay.model.units import format_bytes
from assay.plugin.settings import SettingsError, check_folder
from assay.targets import Target, survey
from assay.targets.presence import NO_GPU_PLUGIN, PLATFORM, missing_device, missing_platform
from assay.toolchains import cache
from assay.toolchains.environments import CannotMake, find_uv

SUITES: Final = "extra suites"
_EXTRAS: Final = {
    "suites": "the programs of the suites: assay run, assay qualify",
    "torch_xla": "the suites of PyTorch/XLA",
    "fleet": "assay fleet",
    "sign": "assay qualify --sign-key",
    "postgresql": "a history on a PostgreSQL server",
}
"""Extras that only some commands need, and those commands."""
_CHECK_SECONDS: Final = 600.0  # All targets of a family; each takes seconds.
_CHANGES_RESULTS: Final = ("JAX_", "XLA_", "LIBTPU_")
_COLLECTS_NOTHING: Final = (
    *("--assay-level=quick", "--collect-only", "--quiet"),
    *("--ignore-glob=*", "-p", "no:cacheprovider"),
)
_NO_TESTS: Final = 5  # pytest's exit code.
_DRIVER: Final = Path("/proc/driver/nvidia/version")


class State(Enum):
    """The result of a check. ``missing`` is what the check of any program may need."""

    OK = "ok"
    MISSING = "missing"
    OPTIONAL = "optional"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What a check found, and the command that fixes it, empty if there is nothing to fix."""

    name: str
    state: State
    found: str
    fix: str = ""


def checkups(targets: Sequence[str], results: Path) -> Iterator[Checkup]:
    """Every check, each as soon as it is done. Without targets, all known ones are checked."""
    yield python(platform.python_version())
    yield from packages()
    yield from compilers(targets)
    yield from devices()
    yield from extras()
    yield uv()
    yield memory()
    yield disk()
    yield results_folder(results)
    yield pytest_plugin(os.environ)
    yield from environment(os.environ)


def python(version: str) -> Checkup:
    """Whether Assay supports and tests this Python."""
    try:
        about = metadata(DISTRIBUTION)
    except PackageNotFoundError:
        return Checkup(name="python", state=State.NOTE, found=version)
    wanted, prefix = about["Requires-Python"], "Programming Language :: Python :: "
    classes = about.get_all("Classifier", [])
    tested = [each.removeprefix(prefix) for each in classes if each.startswith(prefix)]
    newest = f"uv venv --python {tested[-1]}"
    if not SpecifierSet(wanted).contains(version, prereleases=True):
        words = f"{version} is not supported, wanted {wanted}"
        return Checkup(name="python", state=State.MISSING, found=words, fix=newest)
    if version.rpartition(".")[0] not in tested:
        words = f"{version} is not tested; tested are {', '.join(tested)}"
        return Checkup(name="python", state=State.NOTE, found=words, fix=newest)
    return Checkup(name="python", state=State.OK, found=version)


def packages() -> Iterator[Checkup]:
    """Whether the packages that Assay and jax require are there, in versions that they accept."""
    wanted = [*_requirements(DISTRIBUTION), *_requirements("jax")]
    faults = [(each, words) for each in wanted if (words := _fault(each))]
    if not installed_version(DISTRIBUTION):
        words = f"no distribution {DISTRIBUTION} is installed; Assay is at {HERE}"
        yield Checkup(name="packages", state=State.MISSING, found=words, fix=install_command())
    elif not faults:
        versions = ", ".join(f"{each} {installed_version(each)}" for each in ("jax", "jaxlib"))
        words = f"{DISTRIBUTION} {installed_version(DISTRIBUTION)}, {versions}"
        yield Checkup(name="packages", state=State.OK, found=words)
    for requirement, words in faults:
        fix = f"pip install {shlex.quote(_plain(requirement))}"
        yield Checkup(name="packages", state=State.MISSING, found=words, fix=fix)
    jaxlib = installed_version("jaxlib")
    others = {each: installed_version(each) for each in CUDA_PLUGINS}
    if wrong := {each: found for each, found in others.items() if found not in ("", jaxlib)}:
        words = ", ".join(f"{name} {found}" for name, found in wrong.items())
        pins = " ".join(f"{name}=={jaxlib}" for name in wrong)
        yield Checkup(
            name="packages",
            state=State.MISSING,
            found=f"{words}, wanted the version of jaxlib, {jaxlib}; jax does not use another one",
            fix=f"pip install {pins}",
        )


def compilers(targets: Sequence[str]) -> Iterator[Checkup]:
    """Whether each family of targets compiles, in a process of its own."""
    kinds = {word: kind for kind, word in PLATFORM.items()}
    families: dict[str, list[tuple[Target, Unavailable | None]]] = {}
    for target, missing in survey(targets):
        kind = kinds.get(target.platform, str(target.name))
        # A device that nobody asked for and that is not there is no fault: see `devices`.
        if targets or kind == "cpu" or not (target.executes and missing):
            families.setdefault(kind, []).append((target, missing))
    for kind, found in sorted(families.items()):
        names = [str(target.name) for target, _ in found]
        causes = [missing for _, missing in found if missing]
        causes = causes or [
            Unavailable(row["why"], row["fix"]) for row in _checked(names) if row["why"]
        ]
        # A target of another package is not one of the suites'.
        state = State.MISSING if targets or kind in PLATFORM else State.OPTIONAL
        name, works = f"compiler {kind}", f"compiles for {', '.join(names)}"
        if causes:
            fix = _command(causes[0])
            yield Checkup(name=name, state=state, found=causes[0].reason, fix=fix)
        else:
            yield Checkup(name=name, state=State.OK, found=works)


def devices() -> Iterator[Checkup]:
    """The accelerators of this machine, with their driver."""
    for kind in ("gpu", "tpu"):
        if missing := missing_device(kind):
            words = f"{missing.reason}; compile-only targets need none"
            yield Checkup(name=f"device {kind}", state=State.OPTIONAL, found=words)
            continue
        (row,) = _checked([kind])
        if row["why"]:
            fix = _command(Unavailable(row["why"], row["fix"]))
            yield Checkup(name=f"device {kind}", state=State.MISSING, found=row["why"], fix=fix)
            continue
        count, driver = len(row["devices"]), _driver() if kind == "gpu" else ""
        words = f"{count} x {row['devices'][0]}" + (f", driver {driver}" if driver else "")
        yield Checkup(name=f"device {kind}", state=State.OK, found=words)


def extras() -> Iterator[Checkup]:
    """The packages that only some commands need."""
    yield from (_extra(name, purpose) for name, purpose in _EXTRAS.items())


def need_suites() -> None:
    """Raise WrongValue unless everything is there that the suites of a wheel import."""
    found = _extra("suites", _EXTRAS["suites"])
    if found.state is not State.OK:
        raise WrongValue(f"{found.found}; do this: {found.fix}")


def uv() -> Checkup:
    """Whether uv is there, which makes environments of other releases."""
    try:
        words = f"{find_uv().command}, for assay bisect, assay matrix and --assay-against"
    except CannotMake as missing:
        words = f"{missing.reason}; assay bisect, assay matrix and --assay-against need it"
        return Checkup(name="uv", state=State.OPTIONAL, found=words, fix="pip install uv")
    return Checkup(name="uv", state=State.OK, found=words)


def memory() -> Checkup:
    """Whether a program gets its share of this machine's memory."""
    total = machine_bytes()
    if total is None:
        words = "this system does not tell the memory of a process: programs have no memory limit"
        return Checkup(name="memory", state=State.NOTE, found=words)
    if total < LEAST_MACHINE_BYTES:
        least = format_bytes(LEAST_MACHINE_BYTES, decimals=1)
        words = f"{format_bytes(total, decimals=1)}, wanted {least} or more"
        return Checkup(name="memory", state=State.NOTE, found=words, fix="pytest -n 0")
    return Checkup(
        name="memory", state=State.OK, found=f"{format_bytes(total, decimals=1)} for all programs"
    )


def disk() -> Checkup:
    """Whether the cache folder can hold the compiled programs."""
    folder, limit = cache.root(), cache.MOST_BYTES["compiled"]
    other = f"export XDG_CACHE_HOME={tempfile.gettempdir()}/cache"
    try:
        check_folder("cache", folder, written=True)
    except SettingsError:
        words = f"{folder} cannot be written to, so that every run compiles everything"
        return Checkup(name="cache", state=State.NOTE, found=words, fix=other)
    free = shutil.disk_usage(_existing(folder)).free
    words = f"{folder}, {format_bytes(free, decimals=1)} free"
    if free < limit:
        words += f", wanted {format_bytes(limit)} or more for compiled programs"
        return Checkup(name="cache", state=State.NOTE, found=words, fix="assay cache --clear")
    return Checkup(name="cache", state=State.OK, found=words)


def results_folder(folder: Path) -> Checkup:
    """Whether a run can write its results."""
    try:
        check_folder("--assay-results-dir", folder.absolute(), written=True)
    except SettingsError as error:
        other = f"pytest --assay-results-dir={tempfile.gettempdir()}/results"
        return Checkup(name="results", state=State.MISSING, found=str(error), fix=other)
    return Checkup(name="results", state=State.OK, found=f"{folder.absolute()} can be written to")


def pytest_plugin(variables: Mapping[str, str]) -> Checkup:
    """Whether pytest, started in this folder, has Assay's options."""
    command = [sys.executable, "-P", "-m", "pytest", *_COLLECTS_NOTHING]
    ended = subprocess.run(  # noqa: S603 -- it runs this Python.
        command, capture_output=True, text=True, check=False, timeout=_CHECK_SECONDS
    )
    if ended.returncode in (0, _NO_TESTS):
        return Checkup(name="pytest", state=State.OK, found="pytest has the plugin assay")
    if "--assay-level" not in ended.stderr:
        words = f"pytest does not start in this folder: {_last_line(ended.stderr)}"
        return Checkup(name="pytest", state=State.MISSING, found=words, fix="pytest --collect-only")
    fix = install_command(options="--force-reinstall --no-deps")
    for name in ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_ADDOPTS"):
        fix = f"unset {name}" if variables.get(name) else fix
    words = "pytest starts without the plugin assay"
    return Checkup(name="pytest", state=State.MISSING, found=words, fix=fix)


def environment(variables: Mapping[str, str]) -> Iterator[Checkup]:
    """The variables that change what is measured."""
    changing = [
        (name, value)
        for name, value in sorted(variables.items())
        if value and name.startswith(_CHANGES_RESULTS)
    ]
    for name, value in changing:
        state, words = State.NOTE, f"{name}={value} changes results"
        if name == "JAX_PLATFORMS" and (missing := missing_platform(value)):
            state, words = State.MISSING, missing.reason
        yield Checkup(name="environment", state=state, found=words, fix=f"unset {name}")
    if not changing:
        words = "no variable of jax or XLA is set"
        yield Checkup(name="environment", state=State.OK, found=words)


def _checked(names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of ``assay targets --check``, from a process that a compiler may end."""
    command = [sys.executable, "-P", "-m", "assay.cli", "targets", *names, "--check", "--json"]
    shown = f"assay targets {' '.join(names)} --check"
    try:
        ended = subprocess.run(  # noqa: S603 -- it runs this Python.
            command, capture_output=True, text=True, check=False, timeout=_CHECK_SECONDS
        )
    except subprocess.TimeoutExpired:
        return [{"why": f"compiling takes more than {_CHECK_SECONDS:g} s", "fix": shown}]
    if ended.returncode:
        words = f"the compiler ended its process ({ended.returncode}): {_last_line(ended.stderr)}"
        return [{"why": words, "fix": shown}]
    rows: list[dict[str, Any]] = json.loads(ended.stdout)
    return rows


def _extra(name: str, purpose: str) -> Checkup:
    """Whether the packages of an extra are there."""
    faults = [words for each in _requirements(DISTRIBUTION, name) if (words := _fault(each))]
    if not faults:
        return Checkup(name=f"extra {name}", state=State.OK, found=f"installed, for {purpose}")
    words = f"{', '.join(faults)}; needed by {purpose}"
    return Checkup(
        name=f"extra {name}", state=State.OPTIONAL, found=words, fix=install_command(name)
    )


def _requirements(distribution: str, extra: str = "") -> Iterator[Requirement]:
    """What an installed distribution requires, or what one of its extras adds to that."""
    try:
        texts = requires(distribution) or ()
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, texts):
        usual, wanted = (
            requirement.marker is None or requirement.marker.evaluate({"extra": each})
            for each in ("", extra)
        )
        if not wanted or (extra and usual):
            continue
        if requirement.name == distribution:  # An extra that names another one.
            for other in requirement.extras:
                yield from _requirements(distribution, other)
        else:
            yield requirement


def _fault(requirement: Requirement) -> str:
    """Why the installed packages do not satisfy a requirement; empty if they do."""
    found = installed_version(requirement.name)
    if not found:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(found, prereleases=True):
        return ""
    return f"{requirement.name} {found} is not supported, wanted {requirement.specifier}"


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _command(why: Unavailable) -> str:
    """The remedy as a command, with the version that it leaves open."""
    if why.remedy != NO_GPU_PLUGIN.remedy:
        return why.remedy
    jaxlib = installed_version("jaxlib")
    return f"pip install jax-cuda13-plugin=={jaxlib} jax-cuda13-pjrt=={jaxlib}"


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _driver() -> str:
    """The version of the NVIDIA driver, empty if the system does not tell it."""
    try:
        found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", _DRIVER.read_text())
    except OSError:
        return ""
    return found[0] if found else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "without a word"
