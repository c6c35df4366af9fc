"""The suite's own soundness: its checks, its defects, and the figures that it stands for."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from assay import Case, Check, KnownDefect, Level, Role
from assay.claims.values import largest_difference
from assay.model.evidence import Evidence, Memory, Tensor, Toolchain
from assay.model.workload import matches_any
from memsafe.plan import Loop
from memsafe.planner import Planner
from memsafe.programs import flattened
from suites.tensor_splitting import executed, workloads
from suites.tensor_splitting.attention import AttentionSizes, attention_problem
from suites.tensor_splitting.chains import ChainSizes, chain_problem
from suites.tensor_splitting.formulas import BUDGET, LIKE_CUDNN, LIKE_FLASH, SplitWorkload
from suites.tensor_splitting.kernels import KernelSizes, by_differences, by_products, kernel_problem
from suites.tensor_splitting.known_defects import KNOWN_DEFECTS
from suites.tensor_splitting.neighbours import (
    NeighbourSizes,
    cosine,
    l1,
    l2,
    l2_by_products,
    nearest,
    neighbour_problem,
)
from suites.tensor_splitting.problems import Problem, array, with_gradients
from suites.tensor_splitting.sized import encoder, gradients
from suites.tensor_splitting.sparse_gp import RegressionSizes, regression_problem
from suites.tensor_splitting.variants import PLAIN

SUITE = Path(__file__).parents[2] / "suites" / "tensor_splitting"
SPLIT = (*workloads.COMPILED, *executed.EXECUTED, *executed.TIMED)
WORKLOADS = (*SPLIT, *executed.GROWN, executed.PLANNED)
DOUBLE = np.float64


def _modules() -> Iterator[ModuleType]:
    for path in sorted(SUITE.glob("test_*.py")):
        yield import_module(f"suites.tensor_splitting.{path.stem}")


CHECKS = [
    pytest.param(check, id=name)
    for module in _modules()
    for name, check in vars(module).items()
    if isinstance(check, Check)
]


def _named(name: str) -> SplitWorkload:
    return next(workload for workload in SPLIT if workload.name == name)


def _seen(temp_bytes: int) -> Evidence:
    memory = Memory(
        temp_bytes=temp_bytes, argument_bytes=0, output_bytes=0, alias_bytes=0, host_temp_bytes=0
    )
    return Evidence(
        workload="", variant="", target="", toolchain=Toolchain(versions={}), memory=memory
    )


def test_there_are_checks_to_be_sound() -> None:
    assert len(CHECKS) >= 9


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_has_a_control_in_all_its_workloads(check: Check) -> None:
    for workload in check.workloads:
        assert {workload.variant(control).role for control in check.negative_controls} == {
            Role.NEGATIVE_CONTROL
        }


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_is_put_to_a_variant_of_each_of_its_workloads(check: Check) -> None:
    for workload in check.workloads:
        targets = [target for scope in workload.scopes for target in scope.targets]
        assert any(
            check.covers(variant.name)
            and workload.tries(variant, target.replace("*", ":8"), Level.FULL)
            for variant in workload.variants
            for target in targets
        ), workload.name


def test_every_workload_is_checked() -> None:
    checked = {
        workload.name
        for parameter in CHECKS
        for workload in parameter.values[0].workloads  # type: ignore[union-attr]
    }
    assert checked == {workload.name for workload in WORKLOADS}


def test_no_two_workloads_share_a_name() -> None:
    names = [workload.name for workload in WORKLOADS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("defect", KNOWN_DEFECTS, ids=lambda defect: defect.reason[:40])
def test_a_known_defect_speaks_of_variants_claims_and_workloads_that_exist(
    defect: KnownDefect,
) -> None:
    variants = {variant.name for workload in WORKLOADS for variant in workload.variants}
    names = {workload.name for workload in WORKLOADS}
    claims = {parameter.values[0].claim.name for parameter in CHECKS}  # type: ignore[union-attr]
    assert all(
        any(matches_any(variant, [pattern]) for variant in variants) for pattern in defect.variants
    )
    assert all(any(matches_any(name, [pattern]) for name in names) for pattern in defect.workloads)
    assert set(defect.expects) <= claims


def test_no_known_defect_excuses_memsafe() -> None:
    assert not any(matches_any("memsafe", defect.variants) for defect in KNOWN_DEFECTS)


@pytest.mark.parametrize(
    ("name", "target", "budget_bytes"),
    [
        ("encoder-gradient-65536", "tpu-v5e:2x4", 15.5 * 2**30),
        ("encoder-gradient-131072", "gpu-h100:8", 80e9),
        ("sgpr-gradient", "gpu-h100:8", 8e9),
        ("sgpr-gradient", "cpu:8", 8e9),
        ("sgpr-value", "gpu-h100:8", 8e9),
        ("sgpr-value", "cpu:8", 8e9),
    ],
)
def test_the_budget_is_the_figure_of_the_readme(
    name: str, target: str, budget_bytes: float
) -> None:
    workload = _named(name)
    case = Case(workload=workload, variant=workload.variant("memsafe"), evidence=_seen(0))
    assert BUDGET.of(case).value == budget_bytes
    assert workload.tries(workload.variant("memsafe"), target, Level.FULL)


def test_rivals_kernels_are_scaled_to_the_same_width() -> None:
    workload = _named("attention-cudnn")
    others = {"flash": _seen(100), "cudnn": _seen(100)}
    case = Case(
        workload=workload, variant=workload.variant("memsafe"), evidence=_seen(0), others=others
    )
    assert LIKE_FLASH.of(case).value == pytest.approx(120)
    assert LIKE_CUDNN.of(case).value == 400
    assert LIKE_CUDNN.needs(case.variant) == ("cudnn",)


PROBLEMS = {
    "kernel": lambda: kernel_problem(
        KernelSizes(points=37, others=29, rows=8, dtype=DOUBLE), by_differences
    ),
    "kernel by products": lambda: kernel_problem(
        KernelSizes(points=37, others=29, rows=8, dtype=DOUBLE), by_products
    ),
    "l2": lambda: _neighbours(l2),
    "l2 by products": lambda: _neighbours(l2_by_products),
    "l1": lambda: _neighbours(l1),
    "cosine": lambda: _neighbours(cosine),
    "chain": lambda: chain_problem(ChainSizes(rows=9, inner=4, columns=7, dtype=DOUBLE)),
    "regression": lambda: with_gradients(
        lambda: regression_problem(RegressionSizes(data=53, inducing=7, rows=16)),
        (0,),
        squared=False,
    ),
}


def _neighbours(distances: Any) -> Problem:
    sizes = NeighbourSizes(points=41, queries=19, dimensions=3, dtype=DOUBLE)
    return neighbour_problem(sizes, distances)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_by_hand_is_the_problem_as_written(name: str) -> None:
    problem = PROBLEMS[name]()
    with jax.enable_x64(problem.is_double):
        plain = _tensors(problem.plain(*problem.values()))
        for way in problem.ways.values():
            assert largest_difference(_tensors(way(*problem.values())), plain, 1e-9).ratio < 1e-9


@pytest.mark.exhaustive
@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_hand_and_by_jax_is_attention_as_written(*, causal: bool) -> None:
    sizes = AttentionSizes(sequence=24, heads=2, head_width=8, rows=5, causal=causal)
    problem = attention_problem(sizes)
    plain = _tensors(problem.plain(*problem.values()))
    for name in ("lax-map", "dot-product-attention"):
        way = problem.ways[name]
        assert largest_difference(_tensors(way(*problem.values())), plain, 1e-5).ratio < 1e-5


@pytest.mark.exhaustive
def test_the_bound_is_the_likelihood_where_every_point_is_inducing() -> None:
    problem = regression_problem(RegressionSizes(data=12, inducing=12))
    with jax.enable_x64(problem.is_double):
        parameters, x, y = problem.values()
        bound = problem.plain(parameters | {"inducing": x}, x, y)
    lengthscales = np.exp(parameters["log_lengthscales"])
    gaps = ((x[:, None] - x[None]) / lengthscales) ** 2
    covariance = np.exp(parameters["log_variance"] - 0.5 * gaps.sum(-1))
    covariance += np.exp(parameters["log_noise"]) * np.eye(12)
    _, log_determinant = np.linalg.slogdet(covariance)
    fit = float(y[:, 0] @ np.linalg.solve(covariance, y[:, 0]))
    likelihood = -0.5 * (fit + log_determinant + 12 * np.log(2 * np.pi))
    assert float(bound) == pytest.approx(likelihood, abs=0.01)  # the jitter is 1e-4


def test_the_nearest_neighbour_of_a_point_is_itself() -> None:
    points = np.random.default_rng(0).standard_normal((30, 3), dtype=np.float32)
    found, indices = nearest(l1, points, points)
    assert list(np.asarray(indices)[:, 0]) == list(range(30))
    assert not np.asarray(found)[:, 0].any()


def test_least_bytes_are_arguments_and_results() -> None:
    problem = Problem(
        plain=lambda x: x[:2].sum(), ways={}, arguments=(array(5, dtype=DOUBLE),), values=tuple
    )
    assert problem.least_bytes == 5 * 8 + 8


def test_the_plain_variant_is_the_truth_of_all_others() -> None:
    for workload in SPLIT:
        assert all(
            variant.reference == PLAIN for variant in workload.variants if variant.name != PLAIN
        )


def _tensors(results: Any) -> tuple[Tensor, ...]:
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(results))
    return tuple(
        Tensor(
            path=jax.tree_util.keystr(path),
            dtype=str(leaf.dtype),
            shape=leaf.shape,
            data=np.asarray(leaf).tobytes(),
        )
        for path, leaf in leaves
    )


def test_an_encoders_gradient_has_a_loop_for_each_attention_and_for_each_derivative() -> None:
    """All between the last attention and its derivative in one loop is much more to compile."""
    layers = 3
    problem = gradients(encoder(1, 1024, layers=layers), 0)()
    closed = flattened(jax.make_jaxpr(problem.plain)(*problem.arguments))
    plan = Planner(slice_bytes=16e6).plan(closed, 100e6)
    loops = [step for step in plan.steps if isinstance(step, Loop)]
    assert len(loops) == 2 * layers
    assert max(len(loop.region.factors) for loop in loops) < 40
    assert plan.predicted <= 100e6
