"""What the user's functions give (a program, its values, its loop), checked at the call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.model.blame import WrongType, line_of
from assay.model.steps import Loop, Steps
from assay.model.workload import Growth, Program, Variant


def built(variant: Variant, devices: Sequence[Any]) -> Program:
    """The variant's program; every function of it says so where it gives a wrong type.

    Raises:
        WrongType: what ``Variant.program`` returned is no program. Any other exception is its own.
    """
    program: Program = _Giving(
        variant.program,
        Program,
        f"program(devices) of variant {variant.name!r}",
        "Program(function=…, …)",
    )(devices)
    return replace(
        program,
        values=_checked(program.values, (tuple, list), "Program.values()", "(first argument, …)"),
        steps=_steps(program.steps),
        growth=_growth(program.growth),
    )


def _steps(steps: Steps | None) -> Steps | None:
    if steps is None:
        return None
    build = _Giving(steps.build, Loop, "Steps.build()", "Loop(step=…)")

    def build_loop() -> Loop:
        loop: Loop = build()
        return replace(loop, step=_Giving(loop.step, Mapping, "Loop.step()", "{name: result}"))

    return replace(steps, build=build_loop)


def _growth(growth: Growth | None) -> Growth | None:
    if growth is None:
        return None
    build = _Giving(growth.build, tuple, "Growth.build(length)", "(function, make_arguments)")
    return replace(growth, build=build)


def _checked(
    function: Callable[..., Any] | None, wanted: type | tuple[type, ...], what: str, do: str
) -> Callable[..., Any] | None:
    return _Giving(function, wanted, what, do) if function is not None else None


@dataclass(frozen=True, slots=True)
class _Giving:
    """The user's function, which gives one of the wanted types or raises ``WrongType``."""

    function: Callable[..., Any]
    wanted: type | tuple[type, ...]
    what: str
    do: str

    def __call__(self, *arguments: Any) -> Any:
        given = self.function(*arguments)
        if not isinstance(given, self.wanted):
            line = line_of(self.function)
            types = self.wanted if isinstance(self.wanted, tuple) else (self.wanted,)
            names = " or ".join(each.__name__ for each in types)
            raise WrongType(
                f"{f'{line}: ' if line else ''}got {type(given).__name__} from {self.what}, "
                f"wanted {names}; return {self.do}"
            )
        return given
