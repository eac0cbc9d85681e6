"""What is true of one batch: its rows, and how far honest arithmetic may be away from each of them.

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


@dataclass(frozen=True)
class Truth:
    """What is true of one batch.

    Attributes:
        instances: indices of the rows that are checked, ascending, (n,); all of them unless the batch is large.
        rows: true gradients of these instances, `{name: (n, *parameter.shape)}`, float64.
        yardstick: largest error that plain arithmetic in the dtype under test makes in such a row, `{name: (n,)}`.
        norms_yardstick: largest error that plain arithmetic makes in the norm of such a row, (n,).
        weights: a random weight for every instance of the batch, (B,), float64; what a problem has as `weights`.
        weighted: gradient of the sum of weights x losses over all B instances, `{name: parameter.shape}`.
        weighted_yardstick: largest error that plain arithmetic makes in it, `{name: scalar}`.
        clipped: sum over all B instances of the gradients, each scaled to a norm of at most `CLIP_NORM`; empty
            if it was not asked for.
        clipped_yardstick: largest error that plain arithmetic makes in it, `{name: scalar}`.
        inputs: digest of the parameters and the batch it is about.
        engine: what all this was computed with.
    """

    instances: np.ndarray[Any, Any]
    rows: Arrays
    yardstick: Arrays
    norms_yardstick: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    weighted: Arrays = field(default_factory=dict)
    weighted_yardstick: Arrays = field(default_factory=dict)
    clipped: Arrays = field(default_factory=dict)
    clipped_yardstick: Arrays = field(default_factory=dict)
    inputs: str = ""
    engine: str = "HIPS autograd on NumPy, float64, one instance at a time"

    @property
    def batch_size(self) -> int:
        """Number of instances in the batch, checked or not."""
        return len(self.weights)

    def of(self, quantity: str, dtype: str) -> Truth:
        """The truth about another quantity, as if its result were rows: norms (B,), or one row that is a sum.

        To the yardstick of a sum is added what rounding its terms to `dtype` does where they cancel, and to that of
        a norm what adding up the squares of n values does: about sqrt(n) roundings, in float32 at least. A term of a
        clipped sum carries the error of its norm.
        """
        norms = norms_of(self.rows)
        values = sum(rows[0].size for rows in self.rows.values()) if len(norms) else 0
        roundings = values**0.5 * min(EPSILON[dtype], EPSILON["float32"])
        if quantity == "norms":
            yardstick = {"norms": self.norms_yardstick + roundings / 16 * norms}
            return replace(self, rows={"norms": norms}, yardstick=yardstick, weighted={})
        if quantity == "gradients":
            return self
        largest = {name: np.abs(value).max(initial=0) for name, value in self.rows.items()}
        if quantity == "weighted_sum":
            total, errors, each = self.weighted, self.weighted_yardstick, EPSILON[dtype]
            terms = {name: np.abs(self.weights).sum() * value for name, value in largest.items()}
        else:
            total, errors, each = self.clipped, self.clipped_yardstick, EPSILON[dtype] + roundings / 16
            terms = {name: self.batch_size * min(value, CLIP_NORM) for name, value in largest.items()}
        return Truth(
            instances=np.zeros(1, int),
            rows={name: value[None] for name, value in total.items()},
            yardstick={name: np.atleast_1d(error + each * terms[name]) for name, error in errors.items()},
            norms_yardstick=np.zeros(1),
            weights=np.ones(1),
            weighted={},
            weighted_yardstick={},
            engine=self.engine,
        )

    def permuted(self, order: np.ndarray[Any, Any]) -> Truth:
        """The truth about the batch whose instance k is this batch's instance `order[k]`, with its weights permuted."""
        return replace(self, instances=np.argsort(order)[self.instances], weights=self.weights[order])

    def permuted_under_weights(self, order: np.ndarray[Any, Any]) -> Truth | None:
        """The same with weights that stay where they are; None if not all rows are known."""
        if len(self.instances) < self.batch_size:
            return None
        weights = self.weights[np.argsort(order)]
        return replace(
            self.permuted(order),
            weights=self.weights,
            weighted={name: np.tensordot(weights, rows, axes=1) for name, rows in self.rows.items()},
            weighted_yardstick={name: np.abs(weights) @ error for name, error in self.yardstick.items()},
        )

    def without(self, instance: int) -> Truth:
        """The truth about the rows of all instances but one, when that one was exchanged in the batch."""
        kept = self.instances != instance
        return replace(
            self,
            instances=self.instances[kept],
            rows={name: value[kept] for name, value in self.rows.items()},
            yardstick={name: value[kept] for name, value in self.yardstick.items()},
            norms_yardstick=self.norms_yardstick[kept],
            weighted={},
        )


def norms_of(rows: Arrays) -> np.ndarray[Any, Any]:
    """The L2 norm of each instance's whole gradient, (n,)."""
    squares = [np.square(value.reshape(len(value), -1)).sum(axis=1) for value in rows.values()]
    norms: np.ndarray[Any, Any] = np.sqrt(np.sum(squares, axis=0))
    return norms
