"""A program on the toolchain of one release: compiled or run there by ``probe.py``, read here."""

import ast
import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import packaging

from assay.frameworks.failures import of_compiler, shortened
from assay.hlo.assignment import memory_stats
from assay.hlo.schema import split, wrap
from assay.hlo.summary import read
from assay.model.evidence import Evidence, Failure, FailureKind, Memory, Toolchain
from assay.model.rerun import Side
from assay.model.target import Unavailable
from assay.store.files import decode_json, read_file
from assay.targets import Target
from assay.targets import environment as process_environment
from assay.targets.devices import topology_options
from assay.toolchains import probe
from assay.toolchains.cache import root, shrink
from assay.toolchains.environments import CannotMake, Environment, WrongVersions
from assay.toolchains.pairs import Halted, Launch, RerunError, child_of, decoded, link_assay
from assay.toolchains.releases import Release

SCRIPT: Final = Path(probe.__file__)
_ASSAY: Final = SCRIPT.parents[1]
_LEDGER: Final = ("known_defects", "upstream_issue")
_MODULE: Final = "module.hlo.pb.gz"
_ASSAY_ONLY: Final = "assay-only"
_PACKAGES: Final = (
    *("jax", "jaxlib", "libtpu", "numpy", "scipy", "torch", "torch_xla"),
    *("jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"),
)
# Before 0.7 a compile-only GPU client stops at the first kernel that it would have to time.
_GPU_OPTIONS: Final = {"xla_gpu_autotune_level": 0}
# The caller's settings must not decide what another release does.
_DROPPED: Final = ("JAX_", "XLA_", "LIBTPU_", "PYTHON", "VIRTUAL_ENV", "__PYVENV")
_READ: Final = ("JAX_", "XLA_", "TPU_", "LIBTPU_", "CUDA_", "TF_", "NVIDIA_")
_FRESH: Final = {
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "PYTHONNOUSERSITE": "1",
}


class Wanted(Enum):
    """What a probe does with the program."""

    COMPILE = "compile"
    RUN = "run"
    TIME = "time"
    """Run it on request, see ``assay.toolchains.pairs``."""
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

    def moved(self, old: Path, new: Path) -> "Subject":
        """The subject with the folder ``old`` of its paths replaced by ``new``."""

        def there(path: Path) -> Path:
            return new / path.relative_to(old) if path.is_relative_to(old) else path

        return replace(
            self,
            file=self.file and there(self.file),
            search_path=tuple(str(there(Path(each))) for each in self.search_path),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The program as one release compiled or ran it.

    ``evidence`` holds the compiler's numbers. ``compiles`` counts compilations of a run,
    ``returned`` is the one number that the function returned, ``folder`` holds the files.
    ``drops_placement``: the program moves something to host memory, and this release drops that.
    """

    release: Release
    evidence: Evidence
    compiles: int | None = None
    returned: float | None = None
    folder: Path | None = None
    drops_placement: bool = False

    @property
    def module(self) -> bytes | None:
        """The dumped HloProto, or None."""
        return _module(self.folder) if self.folder else None


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``probe.py``, as its cached file holds it."""

    failure: Failure | None = None
    unavailable: Unavailable | None = None
    memory: Memory | None = None
    has_buffers: bool = False
    compiles: int | None = None
    returned: float | None = None
    host_memory: bool = False
    moves_to_host: bool = False
    device_count: int = 1
    crash: str = ""
    versions: dict[str, str] = {}
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """Probes one subject on one target; results are cached in the user's cache folder.

    With an ``executor`` the probes run there, also on other machines.
    """

    subject: Subject
    target: Target
    wanted: Wanted
    timeout_seconds: float
    python: str = ""
    executor: Executor | None = None

    def probe(self, release: Release, made: Environment | Unavailable | None = None) -> Probed:
        """The program on the release. If it cannot be measured, the evidence says why.

        ``made`` is the environment of the release, or why there is none, if that is known.

        Raises:
            RerunError: the probe itself failed.
        """
        if self.executor is not None:
            alone = replace(self, executor=None)
            return _kept(*self.executor.submit(probed_there, alone, release, Path.cwd()).result())
        made = made or made_for(release, self.python)
        if isinstance(made, Unavailable):
            versions = {release.component: release.version}
            return self._read(release, None, _Result(unavailable=made, versions=versions))
        place = root() / "probes" / self._key(made.folder.name)
        stored = _stored(place)
        probed = self._read(release, place, stored or self._run(made.interpreter, place))
        return replace(probed, evidence=replace(probed.evidence, cached=stored is not None))

    def launch(self, interpreter: Path, folder: Path, side: Side = Side.NEW) -> Launch:
        """A process of the probe, whose files go to ``folder``."""
        if self.subject.workload and not (folder / _ASSAY_ONLY).exists():
            (folder / _ASSAY_ONLY).mkdir()
            link_assay(folder / _ASSAY_ONLY)
            # The one package that claims import and jax does not.
            here = folder / _ASSAY_ONLY / packaging.__name__
            here.symlink_to(Path(packaging.__file__).parent)
        return Launch(
            side=side,
            command=(str(interpreter), "-P", str(SCRIPT)),
            environment=self.environment(folder),
            program=json.dumps(self.request(folder)).encode(),
            timeout_seconds=self.timeout_seconds,
        )

    @property
    def settings(self) -> dict[str, str]:
        """The variables that the target's compiler and jax need."""
        variables = process_environment([self.target.name], {})
        count = next(iter(self.target.name.topology), 1) if self.target.platform == "cpu" else 1
        if count > 1:
            variables["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
        return {**variables, **_FRESH}

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables of a probe's process."""
        kept = {name: each for name, each in os.environ.items() if not name.startswith(_DROPPED)}
        variables = {**self.settings, **kept}
        if self.subject.workload:
            # Assay alone, without the packages that are installed next to it.
            paths = [*self.subject.search_path, str(folder / _ASSAY_ONLY)]
            variables["PYTHONPATH"] = os.pathsep.join(paths)
        return variables

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
        # Of the variables, those that a compiler or a framework reads.
        read = {k: v for k, v in self.environment(place).items() if k.startswith(_READ)}
        parts = [SCRIPT.read_text(), environment, self.request(place), read]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return f"{environment[:40]}-{digest[:16]}"

    def _run(self, interpreter: Path, place: Path) -> _Result:
        """Measure, and store the result unless the process was ended.

        Raises:
            RerunError: the probe did not start, or failed itself.
        """
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".probing-") as text:
            folder = Path(text)
            launch = self.launch(interpreter, folder)
            try:
                with child_of(launch) as ask:
                    answer = ask(launch.program)
            except Halted as halted:
                if isinstance(halted.end, Failure):
                    return _Result(failure=halted.end)
                return _Result(unavailable=halted.end)
            result = decoded(answer, _Result, "the probe")
            if result.crash:
                raise RerunError(f"the probe failed: {result.crash}")
            (folder / "result.json").write_bytes(answer)
            _store(folder, place)
            return result

    def _read(self, release: Release, place: Path | None, result: _Result) -> Probed:
        memory, module, model = result.memory, None, self.target.model
        if place is not None and (dumped := _module(place)) is not None:
            proto, buffers = split(dumped if result.has_buffers else wrap(dumped))
            module = read(proto, buffers, platform=self.target.platform)
            memory = memory_stats(buffers) if buffers else memory
        memory = memory.of_module(module) if memory else None
        end = result.unavailable or result.failure
        if isinstance(end, Failure) and end.kind is FailureKind.COMPILER:
            end = of_compiler(replace(end, message=shortened(end.message)), end.message)
        has_host_memory = self.target.platform != "cpu" and result.host_memory
        evidence = Evidence(
            workload=self.subject.text,
            variant=self.subject.text,
            target=str(self.target.name),
            toolchain=Toolchain(versions=result.versions),
            separate_host_memory=has_host_memory,
            device_count=result.device_count,
            device_memory_bytes=model.memory_bytes if model else None,
            on_chip_memory_bytes=model.on_chip_memory_bytes if model else 0,
            memory=memory,
            module=module,
            failure=end if isinstance(end, Failure) else None,
            unavailable=end if isinstance(end, Unavailable) else None,
        )
        return Probed(
            release=release,
            evidence=evidence,
            compiles=result.compiles,
            returned=result.returned,
            folder=place,
            drops_placement=result.moves_to_host
            and self.target.platform != "cpu"
            and not has_host_memory,
        )


def probed_there(prober: Prober, release: Release, folder: Path) -> tuple[Probed, dict[str, bytes]]:
    """What ``prober`` measures in this process, and the files of the result.

    ``folder`` is where the caller works, which has the files of the subject; this process works in
    that folder or in a copy of it.
    """
    subject = prober.subject.moved(folder, Path.cwd())
    probed = replace(prober, subject=subject).probe(release)
    files = probed.folder.iterdir() if probed.folder and probed.folder.exists() else ()
    return probed, {file.name: file.read_bytes() for file in files if file.is_file()}


def _kept(probed: Probed, files: Mapping[str, bytes]) -> Probed:
    """What another machine probed, with its files in the cache of this machine."""
    if probed.folder is None:
        return probed
    place = root() / "probes" / probed.folder.name
    if files and not place.exists():
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                (Path(folder) / name).write_bytes(data)
            _store(Path(folder), place)
    return replace(probed, folder=place)


def made_for(release: Release, python: str) -> Environment | Unavailable:
    """The environment of the release, or why there is none."""
    try:
        return release.environment(python)
    except CannotMake as refused:
        return Unavailable(reason=refused.reason, remedy=refused.remedy)
    except WrongVersions as wrong:
        return Unavailable(reason=str(wrong))


def _module(folder: Path) -> bytes | None:
    file = folder / _MODULE
    return gzip.decompress(file.read_bytes()) if file.exists() else None


def _store(folder: Path, place: Path) -> None:
    """Copy the files of a result to their place in the cache; the last writer wins."""
    module = folder / "module.hlo.pb"
    if module.exists():
        (folder / _MODULE).write_bytes(gzip.compress(module.read_bytes(), mtime=0))
        module.unlink()
    for name in ("dump", _ASSAY_ONLY):
        shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    shrink("probes")


def _stored(place: Path) -> _Result | None:
    """A result stored there, unless a file that decides it has changed.

    Assay's own files decide nothing, because the probe alone measures. The text of the probe and
    the environment, which is in the cache, are parts of the key.
    """
    try:
        result: _Result = decode_json(read_file(place / "result.json"), _Result)
        changed: list[str] = []
        same: list[str] = []
        for name, digest in result.files:
            if not any(map(Path(name).is_relative_to, (_ASSAY, root()))):
                is_same = hashlib.sha256(Path(name).read_bytes()).hexdigest() == digest
                (same if is_same else changed).append(name)
        if not all(is_ledger(name, same) for name in changed):
            return None
        os.utime(place)
    except (OSError, SyntaxError, ValueError):  # A file's name may hold a zero byte.
        return None
    return result


def is_ledger(file: str, others: Iterable[str]) -> bool:
    """Whether the others use that module only as the ledger of a workload.

    Known defects and the upstream issue decide verdicts. They change nothing that a compiler gives.
    """
    module = Path(file).stem
    uses = [use for other in others for use in _uses(Path(other).read_text(), module)]
    return bool(uses) and all(uses)


@lru_cache(maxsize=256)
def _uses(source: str, module: str) -> tuple[bool, ...]:
    """For each import of the module, whether its names are only given as ``known_defects=`` …."""
    return tuple(_ledger_uses(ast.parse(source), module))


def _ledger_uses(tree: ast.Module, module: str) -> Iterator[bool]:
    nodes = tuple(ast.walk(tree))
    given = [each.value for each in nodes if isinstance(each, ast.keyword) and each.arg in _LEDGER]
    harmless = {name for value in given for name in ast.walk(value)}
    names = [each for each in nodes if isinstance(each, ast.Name)]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _last(node.module or "") == module:
            bound = {each.asname or each.name for each in node.names}
            used = (name for name in names if name.id in bound)
            yield "*" not in bound and all(name in harmless for name in used)
        elif isinstance(node, ast.Import | ast.ImportFrom) and any(
            _last(each.name) == module for each in node.names
        ):
            yield False


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
