"""Workloads: a program family, its variants, and their scopes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any

from assay.model.blame import WrongType, WrongValue, check_name
from assay.model.defect import KnownDefect, UpstreamIssue
from assay.model.evidence import FailureKind, Steps
from assay.model.suggestion import suggestion, wanted_one_of
from assay.model.target import LIVE_MODELS


class Level(IntEnum):
    """How much is run; each level includes the ones before it."""

    QUICK = 1
    FULL = 2
    DEVICE = 3
    SOAK = 4

    @classmethod
    def parse(cls, text: str) -> "Level":
        """The level of that name, or WrongValue."""
        if text.upper() not in cls.__members__:
            names = [level.name.lower() for level in cls]
            raise WrongValue(f"got level {text!r}, {wanted_one_of(text, names)}")
        return cls[text.upper()]


class Role(IntEnum):
    """The role of a variant. A negative control runs only for the claims that it must fail."""

    CONTROL = 1
    POLICY = 2
    DEFECT = 3
    REMEDY = 4
    NEGATIVE_CONTROL = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A loop over buffers of two or more lengths, with the same number of iterations for each.

    ``build(length)`` returns the jittable function and a function that makes its concrete
    arguments. The cost of an iteration must not grow with the length unless the iteration touches
    the whole buffer.

    With ``traced`` the length is the number of parts of a program. Its tracing is timed, without
    caches, and its arguments may be shapes.
    """

    lengths: tuple[int, ...]
    # The arguments are the framework's own values, hence Any.
    build: Callable[[int], tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]]
    donate_argnums: tuple[int, ...] = ()
    traced: bool = False

    def __post_init__(self) -> None:
        growing = all(before < after for before, after in pairwise((0, *self.lengths)))
        if not growing or len(self.lengths) < 2:  # noqa: PLR2004  (growth takes two)
            raise ValueError(
                f"got lengths {self.lengths}, wanted two or more, each longer than the one before"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One jittable function with the shapes, shardings and values to compile and run it.

    - ``function`` is compiled for ``arguments`` (pytrees of arrays or ``ShapeDtypeStruct``; for
      PyTorch/XLA, tensors on the meta device) with the given shardings.
    - ``make_arguments`` replaces ``arguments``: a function that returns them. Assay traces and
      compiles this function to read their shapes and shardings, and does not run it.
    - ``differentiated`` is a scalar function of the same arguments whose residuals are measured.
    - ``values`` makes concrete arguments, and ``observe`` maps them to the results by which
      variants are compared.
    - ``steps`` is a training loop to run. A program with neither values nor steps is not executed.
    - ``growth`` is a loop that is timed at several lengths.
    - ``context`` returns a context manager for tracing (a mesh, logical axis rules).
    """

    # Arguments, results and shardings are the framework's own values, hence Any.
    function: Callable[..., Any] | None = None
    arguments: tuple[Any, ...] = ()
    make_arguments: Callable[[], tuple[Any, ...]] | None = None
    in_shardings: Any = None
    out_shardings: Any = None
    donate_argnums: tuple[int, ...] = ()
    static_argnums: tuple[int, ...] = ()
    differentiated: Callable[..., Any] | None = None
    values: Callable[[], tuple[Any, ...]] | None = None
    observe: Callable[..., Any] | None = None
    growth: Growth | None = None
    steps: Steps | None = None
    context: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        functions = ("function", "make_arguments", "differentiated", "values", "observe", "context")
        wanted: dict[str, tuple[Any, str]] = {
            "arguments": (tuple | list, "a tuple of one value for each argument"),
            "growth": (Growth | None, "a Growth"),
            "steps": (Steps | None, "a Steps"),
            **dict.fromkeys(functions, (Callable | None, "a function")),
        }
        for name, (types, words) in wanted.items():
            given = getattr(self, name)
            if not isinstance(given, types):
                got = type(given).__name__
                raise WrongType(f"got {got} for Program({name}=…), wanted {words}")
        if self.make_arguments and (self.arguments or self.differentiated):
            raise WrongValue(
                "got Program(make_arguments=…) with arguments= or differentiated=, wanted it "
                "alone; give the arguments as ShapeDtypeStructs"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to write a workload's program.

    ``program(devices)`` returns the program to compile for the target's devices. ``reference``
    names the variant that this one is compared with. ``names`` are the ``checkpoint_name`` names
    that its policy uses. ``fails_with`` is the stage at which a negative control must fail, if it
    must not compile or run.
    """

    name: str
    role: Role
    program: Callable[[Sequence[Any]], Program]
    reference: str = ""
    names: tuple[str, ...] = ()
    fails_with: FailureKind | None = None

    def __post_init__(self) -> None:
        check_name("a variant", self.name)
        role: object = self.role
        expected: object = self.fails_with
        if not callable(self.program):
            raise WrongType(
                f"{self.name}: got program={type(self.program).__name__}, wanted a function of the "
                "target's devices that returns a Program; write lambda devices: Program(…)"
            )
        if not isinstance(role, Role):
            raise WrongType(f"{self.name}: got role={role!r}, wanted one such as Role.CONTROL")
        if not isinstance(expected, FailureKind | None):
            raise WrongType(
                f"{self.name}: got fails_with={expected!r}, wanted one such as "
                "FailureKind.OUT_OF_MEMORY"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedVariant(Variant):
    """A program at one of several sizes; ``family`` names the same program at the other sizes."""

    size: int
    family: tuple[str, ...] = ()

    @classmethod
    def at(
        cls,
        sizes: Sequence[int],
        *,
        name: str,
        role: Role,
        program: Callable[[int, Sequence[Any]], Program],
    ) -> tuple["SizedVariant", ...]:
        """The program at each size; the largest has the name, the others ``name-at-size``."""
        names = {size: name if size == max(sizes) else f"{name}-at-{size}" for size in sizes}
        return tuple(
            cls(
                name=names[size],
                role=role,
                program=partial(program, size),
                size=size,
                family=tuple(names[other] for other in sizes if other != size),
            )
            for size in sizes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which variants run on which targets (shell patterns), from which level."""

    level: Level
    targets: tuple[str, ...]
    variants: tuple[str, ...] = ("*",)

    def holds(self, variant: str, target: str, level: Level) -> bool:
        """Whether the scope includes the variant on the target at that level."""
        # gpu-h100 is short for gpu-h100:1, unlike a live target.
        names = [target] if ":" in target or target in LIVE_MODELS else [target, f"{target}:1"]
        return (
            self.level <= level
            and any(matches_any(name, self.targets) for name in names)
            and matches_any(variant, self.variants)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A program family with the sizes that formulas of its claims read.

    ``upstream_issue`` is in the summary of a run.
    """

    suite: str
    name: str
    variants: tuple[Variant, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    framework: str = "jax"
    scopes: tuple[Scope, ...] = (Scope(level=Level.QUICK, targets=("*",)),)
    known_defects: tuple[KnownDefect, ...] = ()
    upstream_issue: UpstreamIssue | None = None

    def __post_init__(self) -> None:
        check_name("a suite", self.suite)
        check_name("a workload", self.name)
        sizes: Mapping[str, object] = self.sizes
        for name, size in sizes.items():
            if not isinstance(size, Integral):
                raise WrongType(
                    f"{self.name}: got {size!r}, {type(size).__name__}, for size {name!r}, wanted "
                    "a whole number; write it without quotes or a fraction"
                )
        names = [variant.name for variant in self.variants]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{self.name}: got several variants named {repeated}; name each once")
        if missing := sorted({variant.reference for variant in self.variants} - {"", *names}):
            near = suggestion(missing[0], names)
            raise ValueError(
                f"{self.name}: got references to {missing}, wanted one of {names}{near}"
            )

    def variant(self, name: str) -> Variant:
        """The variant of that name, or LookupError."""
        known = {variant.name: variant for variant in self.variants}
        if name not in known:
            raise LookupError(f"{self.name}: got variant {name!r}, {wanted_one_of(name, known)}")
        return known[name]

    def key(self, variant: str, target: str) -> tuple[str, str, str, str]:
        """The identity of a program: suite, workload, variant and target."""
        return (self.suite, self.name, variant, target)

    def tries(self, variant: Variant, target: str, level: Level) -> bool:
        """Whether the variant runs on the target at that level."""
        return variant.role is not Role.NEGATIVE_CONTROL and any(
            scope.holds(variant.name, target, level) for scope in self.scopes
        )


def matches_any(text: str, patterns: Sequence[str]) -> bool:
    """Whether any of the shell patterns matches the whole text."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)
