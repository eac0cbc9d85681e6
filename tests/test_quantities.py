"""Norms, weighted sums and clipped sums: is their reference right, and is every fault in them seen?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core import find_strategies, find_workloads, strategy
from harness.core.domain import QUANTITIES
from harness.core.framework import BUILT_IN
from harness.core.plugins import PluginError
from harness.core.problem import CLIP_NORM
from harness.core.records import Status
from harness.core.workload import Arrays, cast
from harness.reference import build, compare, files
from tests.conftest import MeasureQuickly

POLICY = find_workloads.find("policy")
PARAMETERS = cast(POLICY.initial_parameters(0), "float32")
BATCH = cast(POLICY.batches(0, 8, 1)[0], "float32")
TRUTH = build.compute(POLICY, PARAMETERS, BATCH)


def flat(rows: Arrays) -> np.ndarray:  # type: ignore[type-arg]
    return np.concatenate([value.reshape(len(value), -1) for value in rows.values()], axis=1)


def true(quantity: str) -> Arrays:
    """What an honest strategy returns, in float32."""
    reference = TRUTH.for_quantity(quantity, "float32")
    rows = reference.rows if quantity in ("gradients", "norms") else {name: v[0] for name, v in reference.rows.items()}
    return cast(rows, "float32")


def verdict(output: Arrays, quantity: str) -> compare.Agreement:
    return compare.check(output, TRUTH, "float32", quantity)


def test_norms_are_those_of_whole_rows() -> None:
    np.testing.assert_allclose(true("norms")["norms"], np.linalg.norm(flat(TRUTH.rows), axis=1), rtol=1e-6)


def test_a_weighted_sum_is_that_of_the_rows() -> None:
    for name, value in true("weighted_sum").items():
        np.testing.assert_allclose(value, np.tensordot(TRUTH.weights, TRUTH.rows[name], 1), rtol=1e-4, atol=1e-6)


def test_a_clipped_sum_clips_some_rows_and_leaves_others() -> None:
    norms = np.linalg.norm(flat(TRUTH.rows), axis=1)
    assert (norms > CLIP_NORM).any()
    assert (norms < CLIP_NORM).any()
    factors = np.minimum(1, CLIP_NORM / norms)

    for name, value in true("clipped_sum").items():
        np.testing.assert_allclose(value, np.tensordot(factors, TRUTH.rows[name], 1), rtol=1e-4, atol=1e-6)


def test_a_clipped_sum_covers_rows_outside_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MOST_ROWS", 2)
    sampled = build.compute(POLICY, PARAMETERS, BATCH)

    assert len(sampled.instances) == 2
    for name, value in sampled.clipped.items():
        np.testing.assert_allclose(value, TRUTH.clipped[name], rtol=1e-9)


def test_clipped_sums_are_computed_only_if_asked_for() -> None:
    assert build.compute(POLICY, PARAMETERS, BATCH, quantities=["gradients"]).clipped == {}


@pytest.mark.parametrize("quantity", sorted(QUANTITIES))
def test_the_truth_rounded_to_float32_agrees(quantity: str) -> None:
    assert verdict(true(quantity), quantity).status is Status.OK


@pytest.mark.parametrize("quantity", sorted(QUANTITIES))
@pytest.mark.parametrize("factor", [2.0, 1 / 8, 1.001])
def test_a_wrong_scale_disagrees(quantity: str, factor: float) -> None:
    output = {name: value * np.float32(factor) for name, value in true(quantity).items()}

    assert verdict(output, quantity).status is Status.DISAGREES


@pytest.mark.parametrize("quantity", sorted(QUANTITIES))
def test_not_a_number_is_told_from_a_disagreement(quantity: str) -> None:
    output = true(quantity)
    next(iter(output.values())).flat[0] = np.nan

    assert verdict(output, quantity).status is Status.NONFINITE


@pytest.mark.parametrize(
    ("given", "claimed"),
    [("norms", "gradients"), ("weighted_sum", "clipped_sum"), ("clipped_sum", "weighted_sum"), ("gradients", "norms")],
)
def test_one_quantity_is_not_taken_for_another(given: str, claimed: str) -> None:
    assert verdict(true(given), claimed).status is Status.DISAGREES


def test_norms_without_one_parameter_disagree() -> None:
    rows = {name: value for name, value in TRUTH.rows.items() if name != "hidden1.bias"}
    output = {"norms": np.linalg.norm(flat(rows), axis=1).astype(np.float32)}

    assert verdict(output, "norms").status is Status.DISAGREES


def test_a_sum_names_no_instance() -> None:
    output = {name: value * 2 for name, value in true("weighted_sum").items()}

    found = verdict(output, "weighted_sum")

    assert found.worst_instance is None
    assert "instance" not in found.reason


def test_weights_that_move_with_their_instances_are_a_fault() -> None:
    order = np.random.default_rng(3).permutation(8)
    stays = TRUTH.permuted_under_weights(order)
    assert stays is not None
    rows = {name: value[order] for name, value in TRUTH.rows.items()}
    expected = cast({name: np.tensordot(TRUTH.weights, value, 1) for name, value in rows.items()}, "float32")

    assert compare.check(expected, stays, "float32", "weighted_sum").status is Status.OK
    assert compare.check(true("weighted_sum"), stays, "float32", "weighted_sum").status is Status.DISAGREES


def test_a_truth_survives_its_file(tmp_path: Path) -> None:
    files.save(tmp_path / "reference.npz", [TRUTH])
    (loaded,) = files.load(tmp_path / "reference.npz")

    for quantity in QUANTITIES:
        assert compare.check(true(quantity), loaded, "float32", quantity).status is Status.OK


def test_an_unknown_quantity_is_refused_with_those_there_are() -> None:
    with pytest.raises(PluginError, match=r"quantity='norm' is not one of gradients, norms"):
        strategy.strategy(framework="jax", quantity="norm")


def test_results_overwritten_by_later_calls_are_caught_unless_announced(planted: MeasureQuickly) -> None:
    (announced,) = planted("reuses_its_output", 3)
    (secret,) = planted("overwrites_its_output", 3)

    assert announced.status is Status.OK, announced.reason
    assert secret.status is Status.DISAGREES
    assert "say reuses_output=True" in secret.reason


WAYS = {
    "norms": ("ghost-norms", "norms"),
    "weighted_sum": ("batch-gradient", "weighted-sum"),
    "clipped_sum": ("ghost-clipping", "clipped-sum"),
}
"""Quantity -> (the direct way, what the name of rows first and then reduced ends in)."""

BEST_ROWS = {"jax": "layer-rules", "torch": "layer-rules", "tf2": "vectorized-map", "numpy": "outer-products"}


@pytest.mark.parametrize("quantity", sorted(WAYS))
def test_every_quantity_has_a_direct_way_in_every_framework(quantity: str) -> None:
    found = {s.name for s in find_strategies.discover().strategies if s.quantity == quantity}

    assert {f"{framework}/{WAYS[quantity][0]}" for framework in BUILT_IN} <= found


@pytest.mark.parametrize("quantity", sorted(WAYS))
def test_beside_the_direct_way_stand_the_best_rows_reduced(quantity: str) -> None:
    found = {s.name for s in find_strategies.discover().strategies if s.quantity == quantity}

    assert {f"{framework}/{rows}-{WAYS[quantity][1]}" for framework, rows in BEST_ROWS.items()} <= found
