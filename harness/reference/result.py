"""Hold the reference for one batch: its rows, and the rounding error to be expected in each of them.

`harness.reference.build` computes it, `harness.reference.compare` compares an output with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.core.problem import CLIP_NORM
from harness.core.workload import Arrays

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}
"""The distance from 1 to the next larger number."""

SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126}
"""The smallest normal number; hardware may take what is below it for 0."""


@dataclass(frozen=True)
class Reference:
    """The reference for one batch.

    Attributes:
        instances: indices of the rows that are checked, ascending, (n,); all of them unless the batch is large.
        rows: true gradients of these instances, `{name: (n, *parameter.shape)}`, float64.
        row_errors: largest error that plain arithmetic in the dtype under test makes in such a row, `{name: (n,)}`.
        norms_error: largest error that plain arithmetic makes in the norm of such a row, (n,).
        weights: a random weight for every instance of the batch, (B,), float64; what a problem has as `weights`.
        weighted: gradient of the sum of weights x losses over all B instances, `{name: parameter.shape}`.
        weighted_error: largest error that plain arithmetic makes in it, `{name: scalar}`.
        clipped: sum over all B instances of the gradients, each scaled to a norm of at most `CLIP_NORM`; empty
            if it was not asked for.
        clipped_error: largest error that plain arithmetic makes in it, `{name: scalar}`.
        inputs: digest of the parameters and the batch it is about.
        computed_with: framework and precision, in words.
    """

    instances: np.ndarray[Any, Any]
    rows: Arrays
    row_errors: Arrays
    norms_error: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    weighted: Arrays = field(default_factory=dict)
    weighted_error: Arrays = field(default_factory=dict)
    clipped: Arrays = field(default_factory=dict)
    clipped_error: Arrays = field(default_factory=dict)
    inputs: str = ""
    computed_with: str = "HIPS autograd on NumPy, float64, one instance at a time"

    @property
    def batch_size(self) -> int:
        """Number of instances in the batch, checked or not."""
        return len(self.weights)

    def for_quantity(self, quantity: str, dtype: str) -> Reference:
        """The reference for another quantity, as if its result were rows: norms (B,), or one row that is a sum.

        To the error of a sum is added what rounding its terms to `dtype` does where they cancel, and to that of a norm
        what adding up the squares of n values does: about sqrt(n) roundings, in float32 at least. A term of a clipped
        sum carries the error of its norm.
        """
        if quantity == "gradients":
            return self
        norms = norms_of(self.rows)
        values = sum(rows[0].size for rows in self.rows.values()) if len(norms) else 0
        roundings = values**0.5 * min(EPSILON[dtype], EPSILON["float32"])
        if quantity == "norms":
            errors_of = {"norms": self.norms_error + roundings / 16 * norms}
            return replace(self, rows={"norms": norms}, row_errors=errors_of, weighted={})
        largest = {name: np.abs(value).max(initial=0) for name, value in self.rows.items()}
        if quantity == "weighted_sum":
            total, errors, each = self.weighted, self.weighted_error, EPSILON[dtype]
            terms = {name: np.abs(self.weights).sum() * value for name, value in largest.items()}
        else:
            total, errors, each = self.clipped, self.clipped_error, EPSILON[dtype] + roundings / 16
            terms = {name: self.batch_size * min(value, CLIP_NORM) for name, value in largest.items()}
        return Reference(
            instances=np.zeros(1, int),
            rows={name: value[None] for name, value in total.items()},
            row_errors={name: np.atleast_1d(error + each * terms[name]) for name, error in errors.items()},
            norms_error=np.zeros(1),
            weights=np.ones(1),
            weighted={},
            weighted_error={},
            computed_with=self.computed_with,
        )

    def permuted(self, order: np.ndarray[Any, Any]) -> Reference:
        """The reference for the permuted batch: its instance k, with its weight, is instance `order[k]` of this one."""
        return replace(self, instances=np.argsort(order)[self.instances], weights=self.weights[order])

    def permuted_under_weights(self, order: np.ndarray[Any, Any]) -> Reference | None:
        """The same with weights that stay where they are; None if not all rows are known."""
        if len(self.instances) < self.batch_size:
            return None
        weights = self.weights[np.argsort(order)]
        return replace(
            self.permuted(order),
            weights=self.weights,
            weighted={name: np.tensordot(weights, rows, axes=1) for name, rows in self.rows.items()},
            weighted_error={name: np.abs(weights) @ error for name, error in self.row_errors.items()},
        )

    def without(self, instance: int) -> Reference:
        """The reference for the rows of all instances but one, when that one was exchanged in the batch."""
        kept = self.instances != instance
        return replace(
            self,
            instances=self.instances[kept],
            rows={name: value[kept] for name, value in self.rows.items()},
            row_errors={name: value[kept] for name, value in self.row_errors.items()},
            norms_error=self.norms_error[kept],
            weighted={},
        )


def norms_of(rows: Arrays) -> np.ndarray[Any, Any]:
    """The L2 norm of each instance's whole gradient, (n,)."""
    squares = [np.square(value.reshape(len(value), -1)).sum(axis=1) for value in rows.values()]
    norms: np.ndarray[Any, Any] = np.sqrt(np.sum(squares, axis=0))
    return norms
