"""Arrays on a mesh with explicit axes, as `jax.make_mesh` makes: their types have shardings.

With explicit axes, jax derives the sharding of each result by rules of its own. Where no rule
applies, as for a slice of a divided dimension, the program must state the sharding. A plan leaves
shardings to the compiler: it is made and run with automatic axes. Its results then get the
shardings in the types of the function's own results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from memsafe.errors import BudgetError
from memsafe.jax_internals import InternalsMoved
from memsafe.placement import are_traced, at_hand, sharding_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Automatic", "Axes", "ByType", "NoAxes", "explicit_mesh"]


def explicit_mesh(values: Iterable[Any]) -> AbstractMesh | None:
    """The mesh with explicit axes that one of `values` lies on, or None, as inside `shard_map`."""
    meshes: Iterable[AbstractMesh] = (jax.typeof(value).sharding.mesh for value in values)
    return next((each for each in meshes if _is_explicit(each)), None)


class Axes(Protocol):
    """How the explicit axes of a function's arguments are handled when it is planned and run."""

    def run(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """The results of `function`, which are arrays, in their final shardings."""
        ...

    def see(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """What `function` returns for `arrays`: no arrays, but for example a plan."""
        ...


class NoAxes:
    """No argument has explicit axes."""

    def run(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """The results of `function`."""
        return function(*arrays)

    see = run


class ByType:
    """Explicit axes stay: the function sets shardings itself and cannot be traced without them."""

    def run(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """The results of `function`; raises ValueError if jax refuses the plan."""
        try:
            return function(*arrays)
        except (AssertionError, BudgetError, InternalsMoved, jax.errors.JaxRuntimeError):
            raise
        except Exception as error:
            refusal = str(error).partition("\n")[0]
            raise ValueError(
                "got a function on explicit axes that sets shardings itself (out_sharding, reshard "
                f"or shard_map) or closes over arrays there, and jax refuses its plan ({refusal}); "
                "wanted a function that leaves shardings to the compiler; do this: use "
                "jax.lax.with_sharding_constraint, or memsafe inside shard_map, and pass such "
                "arrays as arguments"
            ) from error

    see = run


@dataclass(frozen=True, slots=True, kw_only=True)
class Automatic:
    """Explicit axes become automatic.

    Attributes:
        mesh: The mesh with explicit axes.
        places: The sharding of each result, in the tree of the results.
    """

    mesh: AbstractMesh
    places: Any

    @classmethod
    def of(
        cls, function: Callable[..., Any], leaves: Sequence[Any], mesh: AbstractMesh
    ) -> Automatic:
        """With the shardings that jax derives for the results of `function` on `leaves`."""

        def place(result: jax.ShapeDtypeStruct) -> NamedSharding:
            known: Any = result.sharding
            is_placed = isinstance(known, NamedSharding) and not known.mesh.empty
            return NamedSharding(mesh, known.spec if is_placed else PartitionSpec())

        return cls(mesh=mesh, places=jax.tree.map(place, jax.eval_shape(function, *leaves)))

    def run(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """The results of `function` in their shardings; concrete arguments are not copied."""
        there = next((each.sharding.mesh for each in arrays if _is_there(each)), None)
        if there is None or not at_hand(arrays):
            return self._called(function, arrays, self.places)
        places = jax.tree.map(lambda place: NamedSharding(there, place.spec), self.places)
        return jax.device_put(self._on_automatic(function, arrays), places)

    def see(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """What `function` returns for `arrays` on automatic axes."""
        if not are_traced(arrays):
            return self._on_automatic(function, arrays)
        said = []

        def listened(*automatic: Any) -> tuple[()]:
            said.append(function(*automatic))
            return ()

        self._called(listened, arrays, ())
        return said[-1]

    def _on_automatic(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        with jax.sharding.use_abstract_mesh(_automatic(self.mesh)):
            return function(*map(_as_automatic, arrays))

    def _called(self, function: Callable[..., Any], arrays: Sequence[Any], places: Any) -> Any:
        kinds = zip(self.mesh.axis_names, self.mesh.axis_types, strict=True)
        axes = tuple(name for name, kind in kinds if kind is AxisType.Explicit)
        with jax.sharding.use_abstract_mesh(self.mesh):
            return jax.sharding.auto_axes(function, axes=axes, out_sharding=places)(*arrays)


def _is_there(each: Any) -> bool:
    """Whether this is an array, or stands for one, on devices with explicit axes."""
    sharding = sharding_of(each)
    return isinstance(sharding, NamedSharding) and _is_explicit(sharding.mesh)


def _as_automatic(each: Any) -> Any:
    """`each` with automatic axes; an array shares the memory of the original."""
    if not _is_there(each):
        return each
    sharding = NamedSharding(_automatic(each.sharding.mesh), each.sharding.spec)
    if not isinstance(each, jax.ShapeDtypeStruct):
        return jax.device_put(each, sharding)
    return jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type, sharding=sharding)


def _is_explicit(mesh: Any) -> bool:
    return AxisType.Explicit in mesh.axis_types and AxisType.Manual not in mesh.axis_types


def _automatic(mesh: Any) -> Any:
    """`mesh` with automatic axes in place of explicit ones."""
    kinds = (AxisType.Auto if kind is AxisType.Explicit else kind for kind in mesh.axis_types)
    of = mesh.axis_sizes if isinstance(mesh, AbstractMesh) else mesh.devices
    return type(mesh)(of, mesh.axis_names, axis_types=tuple(kinds))
