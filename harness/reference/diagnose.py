"""Name the likely cause of a disagreement, where the pattern is a known one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.core.workload import Arrays
from harness.reference.result import Reference

Rows = np.ndarray[Any, Any]


def cause_of_shape(given: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Why an array may have another shape than expected; a phrase after a colon, or empty."""
    if given == expected[1:]:
        return ": the axis of the instances is missing, as if the rows were summed over the batch"
    if given == expected[:1] + expected[:0:-1]:
        return ": transposed"
    if len(given) == len(expected) and given[0] != expected[0] and sorted(given) == sorted(expected):
        return ": the axis of the instances is not the first"
    return ""


def cause_of_values(rows: Arrays, reference: Reference) -> str:
    """Why rows of the right shape may differ from the true ones; a phrase after a colon, or empty."""
    size = reference.batch_size
    if size > 1 and _close(rows, reference, lambda value: value * size):
        return ": every row is divided by the batch size"
    if _close(rows, reference, lambda value: value / 2):
        return ": every row is twice what it should be"
    transposed = [name for name, true in reference.rows.items() if not _alike(rows[name], true)]
    if transposed and all(_alike(_transposed(rows[name]), reference.rows[name]) for name in transposed):
        return f": {', '.join(transposed)} transposed"
    if len(reference.instances) < 2:
        return ""
    flat, true = _flat(rows), _flat(reference.rows)
    if not flat.any():
        return ": all rows are zero"
    if np.allclose(flat, flat[:1]) and not np.allclose(true, true[:1]):
        return ": all rows are equal, as if they were summed over the batch"
    zero = ~flat.any(axis=1) & true.any(axis=1)
    if zero.any():
        return f": the row of instance {reference.instances[zero.argmax()]} is zero"
    nearest = np.array([np.abs(true - row).max(axis=1).argmin() for row in flat])
    if len(set(nearest)) == len(nearest) and (nearest != np.arange(len(nearest))).any():
        return ": the rows are right but in another order"
    return ""


def _close(rows: Arrays, reference: Reference, transform: Callable[[Rows], Rows]) -> bool:
    """Whether the rows become the true ones by a transformation."""
    return all(_alike(transform(rows[name]), true) for name, true in reference.rows.items())


def _alike(values: Rows, true: Rows) -> bool:
    """Whether arrays are the same but for errors that no one would call another value."""
    return np.allclose(values, true, rtol=1e-3, atol=1e-3 * np.abs(true).max(initial=0))


def _transposed(value: Rows) -> Rows:
    """Square matrices transposed; the shape of others would have told."""
    return value.swapaxes(-1, -2) if value.ndim > 2 and value.shape[-1] == value.shape[-2] else value


def _flat(rows: Arrays) -> Rows:
    return np.concatenate([value.reshape(len(value), -1) for value in rows.values()], axis=1)
