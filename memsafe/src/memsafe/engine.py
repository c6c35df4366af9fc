"""Runs traced programs within a budget: compiled, inside a trace, batched, differentiated."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from memsafe.fit import Fit, fitted
from memsafe.jax_internals import under_named_axes, without_constants
from memsafe.measure import Place
from memsafe.programs import evaluate, signature, unplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from jax import Array, Device
    from jax.extend.core import ClosedJaxpr

    from memsafe.options import Options

__all__ = ["Engine"]


@dataclass(slots=True, kw_only=True)
class Engine:
    """Programs made to fit by one set of options, each once.

    A program has no constants of its own: they are its first arguments.
    """

    options: Options
    fits: dict[Hashable, Fit] = field(default_factory=dict)
    jitted: dict[int, Callable[..., list[Array]]] = field(default_factory=dict)
    fitted: list[ClosedJaxpr] = field(default_factory=list)  # Their constants' ids are in keys.
    known: WeakKeyDictionary[ClosedJaxpr, dict[Place, Fit]] = field(
        default_factory=WeakKeyDictionary
    )

    def run(
        self, program: ClosedJaxpr, inputs: Sequence[Array], donated: Sequence[int] = ()
    ) -> list[Array]:
        """The results of `program`, by its compiled form where `inputs` are at hand."""
        if _at_hand(inputs):
            return self._executed(program, inputs, donated)
        if program.effects:
            return self.fit(program).program(*inputs)
        return list(self._differentiable(program)(*inputs))

    def fit(
        self, program: ClosedJaxpr, inputs: Sequence[Any] = (), donated: Sequence[int] = ()
    ) -> Fit:
        """How `program` fits; `inputs`, where given, say where its arguments lie."""
        place = Place(
            device=self._device(inputs),
            pinned=self.options.device is not None or any(map(_is_committed, inputs)),
            donated=tuple(donated),
            shardings=_shardings(inputs),
            alone=not under_named_axes(),
        )
        known = self.known.setdefault(program, {})  # A signature takes longer than a call.
        if place not in known:
            key = (signature(program), place)
            if key not in self.fits:
                self.fits[key] = fitted(program, self.options, place)
                self.fitted.append(program)
            known[place] = self.fits[key]
        return known[place]

    def _device(self, inputs: Sequence[Any]) -> Device:
        if self.options.device is not None:
            return self.options.device
        for each in inputs:
            if isinstance(each, jax.Array):
                return min(each.devices(), key=lambda device: device.id)
        return jax.devices()[0]

    def _executed(
        self, program: ClosedJaxpr, inputs: Sequence[Array], donated: Sequence[int] = ()
    ) -> list[Array]:
        fit = self.fit(program, inputs, donated)
        here = self.options.device is None or self.options.device in jax.devices()
        if here and fit.result is not None and fit.result.compiled is not None:
            return list(fit.result.compiled(*inputs))
        if id(fit) not in self.jitted:
            self.jitted[id(fit)] = jax.jit(fit.program, donate_argnums=tuple(donated))
        return list(self.jitted[id(fit)](*inputs))

    def _batchable(self, program: ClosedJaxpr) -> Callable[..., Any]:
        """`program` inside a trace; batched, it is planned anew, for the batch counts too."""

        @jax.custom_batching.custom_vmap
        def run(*inputs: Array) -> list[Array]:
            return self.fit(program).program(*inputs)

        @run.def_vmap
        def _(axis_size: int, batched: Sequence[bool], *inputs: Array) -> Any:
            axes = [0 if each else None for each in batched]
            whole = jax.vmap(partial(evaluate, program), in_axes=(axes,), axis_size=axis_size)
            results = self._traced_and_run(lambda *arguments: whole(list(arguments)), inputs)
            return results, [True] * len(results)

        return run

    def _differentiable(self, program: ClosedJaxpr) -> Callable[..., Any]:
        """`program` with a backward pass that recomputes, and keeps the budget itself."""

        @jax.custom_vjp
        def run(*inputs: Array) -> list[Array]:
            if _at_hand(inputs):
                return self._executed(program, inputs)
            return list(self._batchable(program)(*inputs))

        def forward(*inputs: Array) -> tuple[list[Array], tuple[Array, ...]]:
            return run(*inputs), inputs

        mesh = jax.sharding.get_abstract_mesh()

        def backward(inputs: tuple[Array, ...], cotangents: Sequence[Array]) -> tuple[Any, ...]:
            # It is traced when the call is over, and with it the mesh that the call was on.
            with jax.sharding.use_abstract_mesh(mesh):
                return self._pulled_back(program, inputs, cotangents)

        run.defvjp(forward, backward)
        return run

    def _pulled_back(
        self, program: ClosedJaxpr, inputs: tuple[Array, ...], cotangents: Sequence[Array]
    ) -> tuple[Any, ...]:
        """The cotangents of `inputs`, computed within the budget."""
        smooth = [at for at, each in enumerate(inputs) if _is_inexact(each)]
        wanted = [at for at, v in enumerate(program.jaxpr.outvars) if _is_inexact(v.aval)]

        def pull(*arguments: Array) -> list[Array]:
            given, pulled = list(arguments[: len(inputs)]), arguments[len(inputs) :]

            def primal(*varied: Array) -> list[Array]:
                for at, value in zip(smooth, varied, strict=True):
                    given[at] = value
                results = evaluate(program, given)
                return [results[at] for at in wanted]

            _, pullback = jax.vjp(primal, *(given[at] for at in smooth))
            return list(pullback(list(pulled)))

        arguments = [*inputs, *(cotangents[at] for at in wanted)]
        found = dict(zip(smooth, self._traced_and_run(pull, arguments), strict=True))
        return tuple(
            found[at] if at in found else np.zeros(jnp.shape(each), jax.dtypes.float0)
            for at, each in enumerate(inputs)
        )

    def _traced_and_run(self, function: Callable[..., Any], inputs: Sequence[Array]) -> list[Array]:
        closed = jax.make_jaxpr(function)(*map(unplaced, inputs))
        return self.run(without_constants(closed), [*closed.consts, *inputs])


def _at_hand(inputs: Sequence[Any]) -> bool:
    return not any(isinstance(each, jax.core.Tracer) for each in inputs) and not under_named_axes()


def _is_inexact(each: Any) -> bool:
    return bool(jnp.issubdtype(each.dtype, jnp.inexact))


def _shardings(inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """Where the arguments lie, if on several devices."""
    found = tuple(each.sharding if _is_committed(each) else None for each in inputs)
    if any(each is not None and len(each.device_set) > 1 for each in found):
        return found
    return None


def _is_committed(each: Any) -> bool:
    """Whether an argument was placed by the user."""
    return isinstance(each, jax.Array) and bool(getattr(each, "committed", True))
