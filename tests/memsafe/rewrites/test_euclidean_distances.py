"""Sums of squared differences of pairs of points become one product."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memsafe.rewrites import euclidean_distances, redundant
from tests.memsafe.rewrites.reading import largest, names, outputs, program

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((6, 4)), RANDOM.standard_normal((5, 4))
BATCH_X, BATCH_Y = RANDOM.standard_normal((3, 6, 4)), RANDOM.standard_normal((3, 5, 4))


def both(closed: Any) -> Any:
    return euclidean_distances(redundant(closed).program)


FORMS = {
    "power": lambda x, y: jnp.sum((x[:, None, :] - y[None, :, :]) ** 2, -1),
    "square": lambda x, y: jnp.square(x[:, None] - y).sum(2),
    "product": lambda x, y: ((d := x[:, None] - y[None]) * d).sum(-1),
    "the same difference twice": lambda x, y: ((x[:, None] - y) * (x[:, None] - y)).sum(-1),
    "transposed result": lambda x, y: jnp.sum((x[None] - y[:, None]) ** 2, -1),
    "coordinates first": lambda x, y: jnp.sum((x.T[:, :, None] - y.T[:, None]) ** 2, 0),
    "coordinates in the middle": lambda x, y: jnp.sum((x[:, :, None] - y.T[None]) ** 2, 1),
    "reshape": lambda x, y: jnp.sum((x.reshape(6, 1, 4) - y.reshape(1, 5, 4)) ** 2, -1),
    "broadcast in full": lambda x, y: jnp.sum(
        (jnp.broadcast_to(x[:, None], (6, 5, 4)) - jnp.broadcast_to(y, (6, 5, 4))) ** 2, -1
    ),
    "extra dimension of one": lambda x, y: jnp.sum((x[:, None, None] - y[:, None]) ** 2, (2, 3)),
    "kept dimension": lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1, keepdims=True),
    "one set of points": lambda x, y: jnp.sum((x[:, None] - x) ** 2, -1) + y[0, 0],
    "norm": lambda x, y: jnp.linalg.norm(x[:, None] - y, axis=-1) ** 2,
    "vmap": jax.vmap(lambda x, y: jnp.sum((x - y) ** 2, -1), (0, None)),
    "vmap of inner products": jax.vmap(
        jax.vmap(lambda x, y: (x - y) @ (x - y), (None, 0)), (0, None)
    ),
}


def assert_close(closed: Any, after: Any, *arguments: Any) -> None:
    """Assert equality to within 1e-13 of the squared norms, the rounding of the product."""
    for ours, theirs in zip(outputs(after, *arguments), outputs(closed, *arguments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13 * 40)
        assert (ours >= 0).all()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_becomes_a_product_of_the_same_values(form: Any) -> None:
    with jax.enable_x64(new_val=True):
        before = program(form, X, Y)
        after = both(before)
        assert_close(redundant(before).program, after.program, X, Y)
        assert before.out_avals == after.program.out_avals
    assert len(after.notes) == 1
    assert "dot_general" in names(after.program)
    assert np.prod(largest(after.program)) <= 36
    assert np.prod(largest(before)) >= 120


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(jax.vmap(lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1)), id="batch first"),
        pytest.param(
            jax.vmap(lambda x, y: jnp.sum((x[:, None] - y) ** 2, -1), out_axes=2), id="batch last"
        ),
        pytest.param(
            lambda x, y: jnp.sum((x[:, None, :, None] - y[None, :, None]) ** 2, (-1, 0, 1)),
            id="summed over the batch of each",
        ),
    ],
)
def test_batches_of_points_are_products_with_a_batch_or_stay(form: Any) -> None:
    with jax.enable_x64(new_val=True):
        before = program(form, BATCH_X, BATCH_Y)
        after = both(before)
        assert_close(before, after.program, BATCH_X, BATCH_Y)
    paired = "dot_general" in names(after.program)
    assert paired == bool(after.notes)
    assert paired == (before.out_avals[0].ndim == 3)


def test_two_coordinates_dimensions_are_summed_as_one() -> None:
    def distances(x: Any, y: Any) -> Any:
        return jnp.sum((x[:, None] - y[None]) ** 2, (2, 3))

    x, y = RANDOM.standard_normal((6, 3, 2)), RANDOM.standard_normal((5, 3, 2))
    with jax.enable_x64(new_val=True):
        before = program(distances, x, y)
        after = euclidean_distances(before)
        assert_close(before, after.program, x, y)
    assert "dot_general" in names(after.program)


def test_the_product_is_asked_for_in_full_precision() -> None:
    after = euclidean_distances(program(FORMS["power"], X, Y)).program
    (product,) = [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert set(product.params["precision"]) == {jax.lax.Precision.HIGHEST}


def test_points_far_from_the_origin_have_no_negative_distance() -> None:
    x = (RANDOM.standard_normal((50, 4)) * 1e-3 + 1000).astype(np.float32)
    after = euclidean_distances(program(lambda x: jnp.sum((x[:, None] - x) ** 2, -1), x)).program
    (distances,) = outputs(after, x)
    assert (distances >= 0).all()
    assert "dot_general" in names(after)


def test_the_note_says_that_rounding_changes() -> None:
    (note,) = euclidean_distances(program(FORMS["power"], X, Y)).notes
    place, text = note.split(": ", 1)
    assert "test_euclidean_distances.py:" in place
    assert text == "squared distances [6, 5] as |x|² + |y|² − 2xy, with other rounding"


def in_its_own_type(x: Any, y: Any) -> Any:
    """Squared distances without `jnp.sum`, which would add values of 16 bits in 32."""
    return jax.lax.reduce_sum((x[:, None] - y) ** 2, (2,))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "complex64", "float32"])
def test_only_real_types_of_32_bits_or_more_are_rewritten(dtype: Any) -> None:
    before = program(in_its_own_type, X.astype(dtype), Y.astype(dtype))
    assert (euclidean_distances(before).program is not before) == (dtype == "float32")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, _: jnp.sum((x - x[::-1]) ** 2, -1), id="paired one by one"),
        pytest.param(lambda x, y: jnp.sum((x - y[0]) ** 2, -1), id="to one point"),
        pytest.param(lambda x, _: jnp.sum((x - 1.0) ** 2, -1), id="to a constant"),
        pytest.param(lambda x, y: jnp.sum((x[:, None] - y) ** 2, 1), id="summed over points"),
        pytest.param(lambda x, y: jnp.sum((x[:, None] - y) ** 3, -1), id="cubed"),
        pytest.param(lambda x, y: jnp.sum((x[:, None] + y) ** 2, -1), id="a sum"),
        pytest.param(lambda x, y: jnp.sum(jnp.abs(x[:, None] - y), -1), id="not squared"),
        pytest.param(lambda x, y: jnp.max((x[:, None] - y) ** 2, -1), id="not summed"),
        pytest.param(
            lambda x, y: jnp.sum((x[:, None, :1] - y[:, :1]) ** 2, -1), id="of one coordinate"
        ),
        pytest.param(
            lambda x, y: jnp.sum((x[:, None] - y) * (x[:, None] - 2 * y), -1), id="two differences"
        ),
    ],
)
def test_what_is_no_distance_of_pairs_stays(function: Any) -> None:
    before = program(function, X, Y)
    assert euclidean_distances(before).program is before
