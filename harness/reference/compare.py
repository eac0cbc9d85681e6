"""Compare a strategy's output with the reference, row by row and by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.core.records import Status
from harness.core.workload import Arrays
from harness.reference.diagnose import cause_of_shape, cause_of_values
from harness.reference.result import EPSILON, SMALLEST, Reference

FACTOR = 16
"""A strategy may err this many times as much as plain arithmetic in its dtype does on the same row ..."""

ULPS = 16
"""... plus this many units in the last place of the row's largest entry."""

FLUSHED = 2.0**14
"""... plus this many of the smallest normal numbers: hardware flushes below one, and factors of an entry are small."""

PART_VALUES = 1 << 16
"""Values of a result that are looked at together."""

SUMS = ("weighted_sum", "clipped_sum")
"""Quantities that are one array per parameter, not one per instance."""


@dataclass(frozen=True)
class Agreement:
    """The verdict on one output.

    Attributes:
        status: `ok`, `disagrees` or `nonfinite`.
        reason: what is wrong with which parameter and instance; empty if nothing is.
        broken: the requirement that is not met, a key of `harness.measure.contract.CONTRACT`; empty if all are.
        max_relative_error: largest |difference|, relative to the largest true entry of its row.
        of_tolerance: largest |difference|, relative to what is allowed there: 1 is the limit.
        worst_parameter: where that is.
        worst_instance: where that is, an index into the batch.
        rows_checked: how many rows were compared one by one (the weighted sum always covers all).
    """

    status: Status
    reason: str = ""
    max_relative_error: float | None = None
    of_tolerance: float | None = None
    worst_parameter: str = ""
    worst_instance: int | None = None
    rows_checked: int = 0
    broken: str = ""

    @property
    def digits(self) -> float | None:
        """Agreement in decimal digits, at most 17; None if nothing could be compared."""
        if self.max_relative_error is None:
            return None
        return min(17.0, max(0.0, -math.log10(max(self.max_relative_error, 1e-17))))


def check(
    output: Mapping[str, np.ndarray[Any, Any]], reference: Reference, dtype: str, quantity: str = "gradients"
) -> Agreement:
    """Compare what a step returned with the reference for its batch.

    The tolerance of a row is `FACTOR` times the error that plain arithmetic makes on it plus `ULPS` units in the
    last place of its largest entry: a tiny true gradient replaced by zero is caught, and cancellation is
    allowed for. Added are a few of the smallest normal numbers, below which hardware may flush to zero. Norms are rows
    of one value; a sum over the batch is one row.
    """
    if quantity not in SUMS:
        return _check(output, reference.for_quantity(quantity, dtype), dtype)
    verdict = _check(
        {name: value[None] for name, value in output.items()}, reference.for_quantity(quantity, dtype), dtype
    )
    reason = verdict.reason.replace(" of instance 0", "")
    return replace(verdict, reason=reason, worst_instance=None, rows_checked=0)


def _check(output: Mapping[str, np.ndarray[Any, Any]], reference: Reference, dtype: str) -> Agreement:
    if found := _contract(output, reference, dtype):
        broken, problem = found
        return Agreement(Status.DISAGREES, problem, broken=broken)
    if problem := _nonfinite(output, reference):
        return Agreement(Status.NONFINITE, problem, broken="finite")
    rows = {name: output[name][reference.instances].astype(np.float64) for name in reference.rows}
    worst = _worst(rows, reference, dtype)
    if worst is None:
        return Agreement(Status.OK, max_relative_error=0.0, of_tolerance=0.0)
    excess, own_error, name, row, error = worst
    instance, rows_checked = int(reference.instances[row]), len(reference.instances)
    verdict = Agreement(Status.OK, "", error, excess, name, instance, rows_checked)
    if excess > 1:
        reason = (
            f"{name} of instance {verdict.worst_instance} is off by {own_error:.2g} of its largest entry, "
            f"{excess:.2g} times the tolerance{cause_of_values(rows, reference)}"
        )
        return replace(verdict, status=Status.DISAGREES, reason=reason, broken="rows")
    if problem := _weighted(output, reference, dtype):
        return replace(verdict, status=Status.DISAGREES, reason=problem, broken="sum of rows")
    return verdict


def _contract(output: Mapping[str, np.ndarray[Any, Any]], reference: Reference, dtype: str) -> tuple[str, str] | None:
    """What is wrong with names, shapes or dtypes: which of them, and a sentence."""
    missing = sorted(set(reference.rows) - set(output))
    extra = sorted(set(output) - set(reference.rows))
    if missing or extra:
        parts = [f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("unknown", extra)) if names]
        return "names", f"parameters {'; '.join(parts)}"
    for name, true in reference.rows.items():
        expected = (reference.batch_size, *true.shape[1:])
        given = output[name]
        if given.shape != expected:
            return (
                "shape",
                f"{name} has shape {given.shape}, expected {expected}{cause_of_shape(given.shape, expected)}",
            )
        if given.dtype.name != dtype:
            return "dtype", f"{name} has dtype {given.dtype.name}, expected {dtype}"
    return None


def _nonfinite(output: Mapping[str, np.ndarray[Any, Any]], reference: Reference) -> str:
    for name in reference.rows:
        for start, values in _parts(output[name], np.float32):
            bad = ~np.isfinite(values).all(axis=1)
            if bad.any():
                row = int(bad.argmax())
                flat = values[row]
                return f"{name} of instance {start + row} contains {flat[~np.isfinite(flat)][0]}"
    return ""


def _worst(rows: Arrays, reference: Reference, dtype: str) -> tuple[float, float, str, int, float] | None:
    """(times the tolerance, relative error, parameter, row) where that is largest, and the largest relative error.

    An error is relative to the largest entry of its row and parameter; of the whole row where that entry is itself
    nothing but rounding, as for a bias that a softmax cancels.
    """
    largest = {name: _rowmax(true) for name, true in reference.rows.items()}
    overall = np.max(list(largest.values()), axis=0) if largest else np.zeros(0)
    worst: tuple[float, float, str, int] | None = None
    error = 0.0
    for name, true in reference.rows.items():
        difference = _rowmax(rows[name] - true)
        tolerance = FACTOR * reference.row_errors[name] + ULPS * EPSILON[dtype] * largest[name]
        tolerance = tolerance + FLUSHED * SMALLEST[dtype]
        excess = difference / tolerance
        known = largest[name] > reference.row_errors[name]
        base = np.where(known, largest[name], np.where(overall > 0, overall, 1.0))
        if not len(excess):
            continue
        error = max(error, float((difference / base).max()))
        row = int(excess.argmax())
        if worst is None or excess[row] > worst[0]:
            worst = (float(excess[row]), float(difference[row] / base[row]), name, row)
    return worst and (*worst, error)


def _weighted(output: Mapping[str, np.ndarray[Any, Any]], reference: Reference, dtype: str) -> str:
    """The weighted sum of all rows must be the gradient of the weighted loss: covers rows outside the sample."""
    for name, true in reference.weighted.items():
        found = np.zeros(true.size)
        for start, values in _parts(output[name], np.float64):
            found += reference.weights[start : start + len(values)] @ values
        largest = float(_rowmax(reference.rows[name]).max(initial=0))
        tolerance = FACTOR * reference.weighted_error[name] + FLUSHED * SMALLEST[dtype] * reference.batch_size
        tolerance = tolerance + ULPS * EPSILON[dtype] * largest * np.abs(reference.weights).sum()
        difference = float(np.abs(found - true.ravel()).max(initial=0))
        if difference > tolerance:
            return (
                f"{name}: a random weighted sum of the rows differs from the gradient of the weighted loss by "
                f"{difference:.2g}, {difference / tolerance:.2g} times the tolerance"
            )
    return ""


def _parts(values: np.ndarray[Any, Any], dtype: type) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """A result a few rows at a time, as (first row, (rows, values in each) in `dtype`).

    A part fits into a cache: a copy of the whole would take memory that some machines hand out more slowly than the
    strategy computes.
    """
    rows = max(1, PART_VALUES // max(1, values[0].size)) if len(values) else 1
    for start in range(0, len(values), rows):
        part = values[start : start + rows]
        yield start, part.reshape(len(part), -1).astype(dtype, copy=False)


def _rowmax(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Largest |entry| of every row."""
    result: np.ndarray[Any, Any] = np.abs(values.reshape(len(values), -1)).max(axis=1, initial=0)
    return result
