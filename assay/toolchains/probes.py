"""A program on the toolchain of one release: compiled or run there by ``probe.py``, read here."""

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from assay.hlo.assignment import memory_stats
from assay.hlo.schema import split, wrap
from assay.hlo.summary import read
from assay.model.evidence import Evidence, Failure, FailureKind, Memory, Toolchain
from assay.model.target import Unavailable
from assay.targets import Target
from assay.targets import environment as process_environment
from assay.targets.devices import topology_options
from assay.toolchains import probe
from assay.toolchains.cache import root, shrink
from assay.toolchains.environments import CannotMake, WrongVersions
from assay.toolchains.releases import Release

SCRIPT: Final = Path(probe.__file__)
_FAILURES: Final = {
    "build": FailureKind.BUILD,
    "lowering": FailureKind.LOWERING,
    "compile": FailureKind.COMPILER,
    "run": FailureKind.EXECUTION,
}
_STDERR_CHARACTERS: Final = 400
_PACKAGES: Final = (
    *("jax", "jaxlib", "libtpu", "numpy", "scipy", "torch", "torch_xla"),
    *("jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"),
)
# Before 0.7 a compile-only GPU client stops at the first kernel that it would have to time.
_GPU_OPTIONS: Final = {"xla_gpu_autotune_level": 0}
# The caller's settings must not decide what another release does.
_DROPPED: Final = ("JAX_", "XLA_", "LIBTPU_", "PYTHON", "VIRTUAL_ENV", "__PYVENV")
_FRESH: Final = {
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Wanted(Enum):
    """What a probe does with the program."""

    COMPILE = "compile"
    RUN = "run"
    CALL = "call"
    """Call the function without arguments; it returns the number itself and need not be jax's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A function of a file, or a workload's variant as (module, workload, variant)."""

    text: str
    file: Path | None = None
    function: str = ""
    workload: tuple[str, str, str] | None = None
    search_path: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders whose files belong to the subject: a change there makes a result stale."""
        return (str(self.file.parent),) if self.file else self.search_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What one release made of the program.

    ``evidence`` holds the compiler's numbers. ``compiles`` counts compilations of a run,
    ``returned`` is the one number that the function returned, ``folder`` holds the files.
    """

    release: Release
    evidence: Evidence
    compiles: int | None = None
    returned: float | None = None
    folder: Path | None = None

    @property
    def module(self) -> bytes | None:
        """The dumped HloProto, or None."""
        file = self.folder / "module.hlo.pb.gz" if self.folder else None
        return gzip.decompress(file.read_bytes()) if file and file.exists() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """Probes one subject on one target; results are cached in the user's cache folder."""

    subject: Subject
    target: Target
    wanted: Wanted
    timeout_seconds: float
    python: str = ""

    def probe(self, release: Release) -> Probed:
        """The program on the release. What cannot be measured says why in the evidence."""
        try:
            made = release.environment(self.python)
        except CannotMake as refused:
            return self._unavailable(release, refused.reason, refused.remedy)
        except WrongVersions as wrong:
            return self._unavailable(release, str(wrong))
        place = root() / "probes" / self._key(made.folder.name)
        if (result := _stored(place)) is None:
            result = self._run(str(made.interpreter), place)
        return self._read(release, place, result)

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables of a probe's process, which has ``folder`` for its temporary files."""
        kept = {name: each for name, each in os.environ.items() if not name.startswith(_DROPPED)}
        variables = process_environment([self.target.name], kept)
        count = next(iter(self.target.name.topology), 1) if self.target.platform == "cpu" else 1
        if count > 1:
            variables["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
        if self.subject.workload:
            # Assay alone, without the packages that are installed next to it.
            paths = [*self.subject.search_path, str(folder / "assay-only")]
            variables["PYTHONPATH"] = os.pathsep.join(paths)
        return {**variables, **_FRESH, "TMPDIR": str(folder)}

    def request(self, folder: Path) -> dict[str, Any]:
        """What the script is asked for; its files go to ``folder``."""
        model, executes = self.target.model, self.target.executes
        topology = topology_options(self.target.name, model) if model and not executes else None
        return {
            "folder": str(folder),
            "wanted": self.wanted.value,
            "file": str(self.subject.file or ""),
            "function": self.subject.function,
            "workload": self.subject.workload,
            "roots": self.subject.roots,
            "platform": self.target.platform,
            "topology": topology,
            "options": _GPU_OPTIONS if topology and self.target.platform == "cuda" else {},
            "packages": _PACKAGES,
        }

    def _key(self, environment: str) -> str:
        place = Path()
        parts = [SCRIPT.read_text(), environment, self.request(place), self.environment(place)]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return f"{environment[:40]}-{digest[:16]}"

    def _run(self, interpreter: str, place: Path) -> dict[str, Any]:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".probing-") as text:
            folder = Path(text)
            if self.subject.workload:
                (folder / "assay-only").mkdir()
                (folder / "assay-only/assay").symlink_to(Path(__file__).parents[1])
            request = folder / "request.json"
            request.write_text(json.dumps(self.request(folder)))
            ended = self._ended([interpreter, "-P", str(SCRIPT), str(request)], folder)
            written = folder / "result.json"
            if written.exists():
                result: dict[str, Any] = json.loads(written.read_text())
            else:
                result = {"failure": {"stage": "process", "unsupported": False, **ended}}
                written.write_text(json.dumps(result))
            if ended.get("type") != "TIMEOUT":
                _keep(folder, place)
                shrink("probes")
            return result

    def _ended(self, command: list[str], folder: Path) -> dict[str, str]:
        with (folder / "stderr.txt").open("wb") as words:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=self.environment(folder),
                cwd=folder,
                start_new_session=True,
            )
            try:
                code = process.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired:
                limit = f"no result within {self.timeout_seconds:g} s"
                return {"type": "TIMEOUT", "message": limit}
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        tail = " ".join((folder / "stderr.txt").read_text(errors="replace").split())
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        message = f"the process ended by {cause}; stderr tail: {tail[-_STDERR_CHARACTERS:]}"
        return {"type": "CRASH", "message": message}

    def _read(self, release: Release, place: Path, result: Mapping[str, Any]) -> Probed:
        memory, module, failure, missing = None, None, None, None
        ended = result.get("failure")
        if ended and ended["unsupported"]:
            missing = Unavailable(
                reason=f"{ended['type']}: {ended['message']}", remedy=_remedy(ended)
            )
        elif ended:
            kinds = {"TIMEOUT": FailureKind.TIMEOUT, "CRASH": FailureKind.CRASH}
            kind = kinds.get(ended["type"]) or _FAILURES[ended["stage"]]
            failure = Failure(kind=kind, message=f"{ended['type']}: {ended['message']}")
        if stats := result.get("memory"):
            memory = Memory(**{f"{name}_bytes": value for name, value in stats.items()})
        file = place / "module.hlo.pb.gz"
        if file.exists():
            dumped = gzip.decompress(file.read_bytes())
            proto, buffers = split(dumped if result["has_buffers"] else wrap(dumped))
            module = read(proto, buffers)
            memory = memory_stats(buffers) if buffers else memory
        evidence = Evidence(
            workload=self.subject.text,
            variant=self.subject.text,
            target=str(self.target.name),
            toolchain=Toolchain(versions=result.get("versions", {})),
            separate_host_memory=self.target.platform != "cpu",
            device_memory_bytes=self.target.model.memory_bytes if self.target.model else None,
            memory=memory,
            module=module,
            failure=failure,
            unavailable=missing,
        )
        return Probed(
            release=release,
            evidence=evidence,
            compiles=result.get("compiles"),
            returned=result.get("returned"),
            folder=place,
        )

    def _unavailable(self, release: Release, reason: str, remedy: str = "") -> Probed:
        evidence = Evidence(
            workload=self.subject.text,
            variant=self.subject.text,
            target=str(self.target.name),
            toolchain=Toolchain(versions={release.component: release.version}),
            separate_host_memory=False,
            unavailable=Unavailable(reason=reason, remedy=remedy),
        )
        return Probed(release=release, evidence=evidence)


def _remedy(failure: Mapping[str, Any]) -> str:
    name = str(failure["message"]).partition("No module named ")[2].strip("'\" ").split(".")[0]
    return f"add --with {name}" if name and name != "jax" else ""


def _keep(folder: Path, place: Path) -> None:
    """Store the result's files where they are found again; the last writer wins."""
    module = folder / "module.hlo.pb"
    if module.exists():
        (folder / "module.hlo.pb.gz").write_bytes(gzip.compress(module.read_bytes(), mtime=0))
        module.unlink()
    shutil.rmtree(folder / "dump", ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns("assay-only"))


def _stored(place: Path) -> dict[str, Any] | None:
    """A result stored there, unless one of the files that it was made from has changed."""
    try:
        result: dict[str, Any] = json.loads((place / "result.json").read_text())
        for name, digest in result.get("files", ()):
            if hashlib.sha256(Path(name).read_bytes()).hexdigest() != digest:
                return None
        os.utime(place)
    except (OSError, ValueError):
        return None
    return result
