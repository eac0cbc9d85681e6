"""Does the judge see every fault, and does it leave honest rounding alone?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import find_workloads
from harness.core.records import Status
from harness.core.workload import Arrays, cast
from harness.reference import build, compare
from harness.reference.result import Reference

POLICY = find_workloads.find("policy")
PARAMETERS = cast(POLICY.initial_parameters(0), "float32")
TRUTH = build.compute(POLICY, PARAMETERS, cast(POLICY.batches(0, 8, 1)[0], "float32"))


def rows() -> Arrays:
    return cast(TRUTH.rows, "float32")


def truth_of(gradients: list[list[float]], row_errors: float = 0.0) -> Reference:
    values = np.array(gradients)
    count = len(values)
    return Reference(
        instances=np.arange(count),
        rows={"w": values},
        row_errors={"w": np.full(count, row_errors)},
        norms_error=np.full(count, row_errors),
        weights=np.ones(count),
        weighted={"w": values.sum(axis=0)},
        weighted_error={"w": np.array(row_errors * count)},
    )


def test_the_truth_rounded_to_float32_agrees_to_seven_digits() -> None:
    verdict = compare.check(rows(), TRUTH, "float32")

    assert verdict.status is Status.OK
    assert verdict.rows_checked == 8
    assert verdict.digits is not None
    assert verdict.digits > 7


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (lambda value: value * np.float32(2), "twice what it should be"),
        (lambda value: value / np.float32(8), "divided by the batch size"),
        (lambda value: value[::-1], "in another order"),
        (lambda value: np.broadcast_to(value.sum(axis=0), value.shape), "summed over the batch"),
    ],
    ids=["times two", "divided by B", "rows reversed", "summed"],
)
def test_a_known_pattern_is_named_as_the_likely_cause(fault, cause: str) -> None:  # type: ignore[no-untyped-def]
    verdict = compare.check({name: fault(value) for name, value in rows().items()}, TRUTH, "float32")

    assert verdict.status is Status.DISAGREES
    assert cause in verdict.reason


def test_one_zero_row_is_found_with_its_instance() -> None:
    output = rows()
    for value in output.values():
        value[5] = 0

    verdict = compare.check(output, TRUTH, "float32")

    assert verdict.status is Status.DISAGREES
    assert verdict.worst_instance == 5


def test_a_missing_and_an_unknown_parameter_are_named() -> None:
    output = rows()
    output["hidden.weight"] = output.pop("hidden1.weight")

    verdict = compare.check(output, TRUTH, "float32")

    assert verdict.status is Status.DISAGREES
    assert "missing: hidden1.weight" in verdict.reason
    assert "unknown: hidden.weight" in verdict.reason


def test_two_parameters_of_equal_shape_exchanged_are_found() -> None:
    output = rows()
    output["hidden1.weight"], output["hidden2.weight"] = output["hidden2.weight"], output["hidden1.weight"]

    assert compare.check(output, TRUTH, "float32").status is Status.DISAGREES


def test_a_shape_is_reported_as_given_and_expected() -> None:
    output = rows()
    output["logit.bias"] = output["logit.bias"][:, 0]

    verdict = compare.check(output, TRUTH, "float32")

    assert verdict.reason == "logit.bias has shape (8,), expected (8, 1)"


def test_a_dtype_is_reported_as_given_and_expected() -> None:
    verdict = compare.check(cast(rows(), "float64"), TRUTH, "float32")

    assert verdict.status is Status.DISAGREES
    assert "float64, expected float32" in verdict.reason


def test_not_a_number_is_reported_with_its_instance() -> None:
    output = rows()
    output["logit.weight"][3, 1] = np.nan

    verdict = compare.check(output, TRUTH, "float32")

    assert verdict.status is Status.NONFINITE
    assert "logit.weight of instance 3" in verdict.reason


def test_a_tiny_true_gradient_replaced_by_zero_is_caught() -> None:
    reference = truth_of([[1e-12, 2e-12], [1.0, 2.0]], row_errors=1e-19)
    output = {"w": np.array([[0, 0], [1, 2]], dtype=np.float32)}

    verdict = compare.check(output, reference, "float32")

    assert verdict.status is Status.DISAGREES
    assert verdict.worst_instance == 0


def test_honest_cancellation_is_not_a_disagreement() -> None:
    # The true value is a difference of numbers around 1, which float32 knows to 1e-7.
    reference = truth_of([[3e-9, 1.0]], row_errors=6e-8)
    output = {"w": np.array([[0.0, 1.0]], dtype=np.float32)}

    assert compare.check(output, reference, "float32").status is Status.OK


def test_a_fault_outside_the_checked_sample_is_caught_by_the_weighted_sum() -> None:
    sample = Reference(
        instances=TRUTH.instances[:2],
        rows={name: value[:2] for name, value in TRUTH.rows.items()},
        row_errors={name: value[:2] for name, value in TRUTH.row_errors.items()},
        norms_error=TRUTH.norms_error[:2],
        weights=TRUTH.weights,
        weighted=TRUTH.weighted,
        weighted_error=TRUTH.weighted_error,
    )
    output = rows()
    output["hidden1.weight"][7] *= 1.01

    verdict = compare.check(output, sample, "float32")

    assert verdict.status is Status.DISAGREES
    assert "weighted sum" in verdict.reason


@given(
    instance=st.integers(0, 7),
    name=st.sampled_from(sorted(TRUTH.rows)),
    relative=st.floats(1e-4, 1e4),
    sign=st.sampled_from([-1, 1]),
)
def test_any_relative_error_of_a_ten_thousandth_is_caught(instance: int, name: str, relative: float, sign: int) -> None:
    output = rows()
    output[name][instance] *= np.float32(1 + sign * relative)
    changed = np.abs(TRUTH.rows[name][instance]).max() > 0

    verdict = compare.check(output, TRUTH, "float32")

    assert (verdict.status is Status.DISAGREES) == changed


@given(st.integers(0, 2**32 - 1))
def test_rounding_errors_of_one_unit_in_the_last_place_never_disagree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    epsilon = np.float32(2.0**-23)
    output = {
        name: (value * (1 + epsilon * rng.choice([-1, 1], value.shape))).astype(np.float32)
        for name, value in rows().items()
    }

    assert compare.check(output, TRUTH, "float32").status is Status.OK


def test_values_that_hardware_flushes_to_zero_may_be_zero_and_larger_ones_may_not() -> None:
    """2e-39 has no normal number in float32; 2e-30 has one, and its row is wrong without it."""
    for size, status in ((2e-39, Status.OK), (2e-30, Status.DISAGREES)):
        reference = truth_of([[size, 3 * size], [size, size]])
        zeros = {"w": np.zeros((2, 2), np.float32)}
        assert compare.check(zeros, reference, "float32").status is status


def test_rows_that_are_all_zero_are_not_said_to_be_summed() -> None:
    zeros = {name: np.zeros_like(value) for name, value in rows().items()}

    assert compare.check(zeros, TRUTH, "float32").reason.endswith(": all rows are zero")
