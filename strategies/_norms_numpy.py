"""Norms of each instance's gradient, and sums of scaled gradients, from layers at work (`_layers_numpy.py`).

The squared norm of a sum of T outer products x_t dy_t is the sum of (x_t . x_s) (dy_t . dy_s) over all t and s. For
few positions that costs less than the row itself, which is then never written. A lookup is a product with rows that
have a single one, whose products are 1 where two ids are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pergrad import Gradients, Parameters
from strategies._layers_numpy import Use

Array = Any


def norms(uses: Sequence[Use]) -> Array:
    """The L2 norm of every instance's whole gradient, (B,)."""
    return np.sqrt(np.sum([_squares(use) for use in uses], axis=0))


def scaled_sum(uses: Sequence[Use], factors: Array, parameters: Parameters) -> Gradients:
    """The sum over the instances of factor x gradient, `{name: shape}`; one product for the batch per layer."""
    found = {name: np.zeros_like(value) for name, value in parameters.items()}
    for use in uses:
        dy = use.dy * factors[:, None, None]
        if use.kind == "lookup":
            np.add.at(found[use.name], use.x, dy)
        elif use.kind == "offset":
            dy.sum((0, 1), out=found[use.name])
        else:
            product = use.x.reshape(-1, use.x.shape[2]).T @ dy.reshape(-1, dy.shape[2])
            found[use.name] = product.reshape(parameters[use.name].shape)
    return found


def _squares(use: Use) -> Array:
    """The squared norm of every instance's row of one parameter, (B,)."""
    x, dy = use.x, use.dy
    if use.kind == "offset":
        return np.square(dy.sum(1)).sum(1)
    if use.kind == "lookup":
        return ((x[:, :, None] == x[:, None, :]) * (dy @ dy.swapaxes(1, 2))).sum((1, 2))
    if x.shape[1] == 1:
        return np.square(x).sum((1, 2)) * np.square(dy).sum((1, 2))
    if 2 * x.shape[1] ** 2 > x.shape[2] * dy.shape[2]:
        return np.square(x.swapaxes(1, 2) @ dy).sum((1, 2))
    return ((x @ x.swapaxes(1, 2)) * (dy @ dy.swapaxes(1, 2))).sum((1, 2))
