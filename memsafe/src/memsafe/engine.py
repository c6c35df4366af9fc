"""Runs traced programs within a budget: compiled, or as a part of another program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax

from memsafe.compiled_plan import Fit
from memsafe.fit import fitted
from memsafe.jax_internals import (
    checks_varying_axes,
    devices_lowered_for,
    manual_axes_of,
    under_named_axes,
)
from memsafe.measure import Mapping, Place, mesh_of
from memsafe.placement import at_hand, device_for, says_more_than_a_device, sharding_of
from memsafe.primitive import Gives, as_traced, bound, computed
from memsafe.programs import evaluate, signature
from memsafe.undisturbed import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr
    from jax.stages import Compiled

    from memsafe.options import Options

__all__ = ["Engine"]


@dataclass(slots=True, kw_only=True, eq=False)
class Engine:
    """Plans and runs programs with one set of options, each program once for each place.

    A program has no constants: those of its function are its first arguments.
    """

    options: Options
    fits: dict[Hashable, Fit] = field(default_factory=dict, repr=False)
    jitted: dict[int, Callable[..., list[Array]]] = field(default_factory=dict, repr=False)
    fitted: list[ClosedJaxpr] = field(  # Kept alive: their constants' ids are in keys.
        default_factory=list, repr=False
    )
    known: WeakKeyDictionary[ClosedJaxpr, dict[Place, Fit]] = field(
        default_factory=WeakKeyDictionary, repr=False
    )
    places: WeakKeyDictionary[ClosedJaxpr, Place] = field(
        default_factory=WeakKeyDictionary, repr=False
    )

    def run(
        self, program: ClosedJaxpr, inputs: Sequence[Array], donated: Sequence[int] = ()
    ) -> list[Array]:
        """The results of `program`: computed now, or in a trace, as the results of one equation."""
        if at_hand(inputs):
            return self.executed(program, inputs, donated)
        return bound(self, program, inputs)

    def fit(
        self,
        program: ClosedJaxpr,
        inputs: Sequence[Any] = (),
        donated: Sequence[int] = (),
        *,
        runs: bool = False,
    ) -> Fit:
        """The compiled plan of `program`; `inputs`, if given, say where its arguments lie."""
        return self._fit(program, self._place(inputs, donated), runs=runs)

    def placed(
        self, program: ClosedJaxpr, inputs: Sequence[Any], donated: Sequence[int] = ()
    ) -> ClosedJaxpr:
        """A copy of `program`, to lower for arguments placed as `inputs` and donated as `donated`.

        A trace does not show where arguments lie. Without this, `program` counts as whole on one
        device.
        """
        found: ClosedJaxpr = program.replace()
        self.places[found] = self._place(inputs, donated)
        return found

    def compiled(
        self, program: ClosedJaxpr, inputs: Sequence[Any], donated: Sequence[int] = ()
    ) -> Compiled | None:
        """The executable of `program`; None if the requested device is not in `jax.devices()`."""
        here = self.options.device is None or self.options.device in jax.devices()
        return self.fit(program, inputs, donated, runs=True).result.compiled if here else None

    def executed(
        self, program: ClosedJaxpr, inputs: Sequence[Array], donated: Sequence[int] = ()
    ) -> list[Array]:
        """The results of `program` on `inputs`, which are arrays and not tracers."""
        settings: Any = jax.config
        if settings.jax_disable_jit:
            return evaluate(program, inputs)
        compiled = self.compiled(program, inputs, donated)
        if compiled is not None:
            return list(compiled(*inputs))
        fit = self.fit(program, inputs, donated)
        if id(fit) not in self.jitted:
            self.jitted[id(fit)] = jax.jit(fit.program, donate_argnums=tuple(donated))
        with as_traced(program):
            return list(self.jitted[id(fit)](*inputs))

    def lowered(self, program: ClosedJaxpr, context: Any) -> Callable[..., Iterable[Array]]:
        """The planned function that a lowering rule, given `context`, lowers for `program`."""
        if program in self.places:
            return self._fit(program, self.places[program]).program
        mesh, devices = devices_lowered_for(context)
        usual = jax.devices()[0]
        device = self.options.device or (devices[0] if devices else usual)
        pinned, mapping = device != usual, None
        if mesh is not None:
            mesh = mesh_of(mesh, device)
            axes, checked = manual_axes_of(context), checks_varying_axes()
            device = mesh.devices.flat[0]
            mapping = Mapping(mesh=mesh, axes=axes, checked=checked)
        place = Place(
            device=device, pinned=pinned, mapping=mapping, is_on_one_device=len(devices) == 1
        )
        return self._fit(program, place).program

    def inlined(
        self, operands: Sequence[Array], program: ClosedJaxpr, active: tuple[int, ...], gives: Gives
    ) -> list[Array]:
        """The results of an equation of the memsafe primitive, as a part of another program."""
        if under_named_axes():  # The program is planned with its mesh, when lowered.
            return bound(self, program, operands, active, gives)
        return list(self.fit(computed(program, active, gives)).program(*operands))

    def _fit(self, program: ClosedJaxpr, place: Place, *, runs: bool = False) -> Fit:
        known = self.known.setdefault(program, {})  # A signature takes longer than a call.
        if place not in known:
            key = (signature(program), place)
            if key not in self.fits:
                with undisturbed(), as_traced(program):
                    self.fits[key] = fitted(program, self.options, place, runs=runs)
                self.fitted.append(program)
            known[place] = self.fits[key]
        return known[place]

    def _place(self, inputs: Sequence[Any], donated: Sequence[int]) -> Place:
        shardings = tuple(map(sharding_of, inputs))
        several = any(each is not None and len(each.device_set) > 1 for each in shardings)
        named = several or any(map(says_more_than_a_device, shardings))
        return Place(
            device=self.options.device or device_for(shardings),
            pinned=self.options.device is not None or any(each is not None for each in shardings),
            donated=tuple(donated),
            shardings=shardings if named else None,
            is_on_one_device=bool(inputs) and not several,
        )
