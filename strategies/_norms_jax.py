"""Norms of each instance's gradient, and sums of scaled gradients, from what every layer was given and its cotangents.

The squared norm of a sum of T outer products x_t dy_t is the sum of (x_t . x_s) (dy_t . dy_s) over all t and s. For
few positions that costs less than the row itself, which is then never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from harness import Gradients, Parameters
from strategies._layers_jax import Use, add_rows, outer, positions, windows

Array = Any


def norms(uses: Sequence[Use], parameters: Parameters) -> Array:
    """The L2 norm of every instance's whole gradient, (B,)."""
    squares: list[Array] = []
    names = [use.name for use in uses]
    for name, parameter in parameters.items():
        mine = sorted((use for use in uses if use.name == name), key=lambda use: use.kind == "lookup")
        if names.count(name) == 1:
            squares.append(_squares(mine[0], parameter.shape))
        elif mine:  # the contributions of several layers add up before they are squared
            found = None
            for use in mine:
                found = add_rows(use, found, parameter.shape)
            squares.append(_sum_of_squares(found))
    return jnp.sqrt(jnp.stack(squares).sum(0))


def scaled_sum(uses: Sequence[Use], factors: Array, parameters: Parameters) -> Gradients:
    """The sum over the instances of factor x gradient, `{name: shape}`; one product for the batch per layer."""
    found = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    for use in uses:
        x, shape = use.x, parameters[use.name].shape
        dy = use.dy * factors.reshape(-1, *(1,) * (use.dy.ndim - 1))
        if use.kind == "lookup":
            found[use.name] = found[use.name].at[x].add(dy)
        elif use.kind == "convolution":
            _, back = jax.vjp(lambda kernel, use=use: use.layer(use.x, kernel), found[use.name])
            found[use.name] += back(dy)[0]
        elif use.kind in ("product", "transposed"):
            a, b = (x, dy) if use.kind == "product" else (dy, x)
            found[use.name] += a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1])
        else:
            dy = dy * x if use.kind == "scale" else dy
            found[use.name] += dy.sum(tuple(range(dy.ndim - len(shape))))
    return found


def _squares(use: Use, shape: tuple[int, ...]) -> Array:
    """The squared norm of every instance's row of one parameter that is used once, (B,)."""
    x, dy = use.x, use.dy
    if use.kind == "lookup":
        count = x[0].size
        if 2 * count**2 > shape[0] * shape[1]:
            return _sum_of_squares(add_rows(use, None, shape))
        ids, dy = x.reshape(len(x), -1), positions(dy)
        same = ids[:, :, None] == ids[:, None, :]
        return (jnp.einsum("btn,bsn->bts", dy, dy) * same).sum((1, 2))
    if use.kind not in ("product", "transposed", "convolution"):
        return _sum_of_squares(add_rows(use, None, shape))
    x, dy = positions(windows(use, shape) if use.kind == "convolution" else x), positions(dy)
    if x.shape[1] == 1:
        return _sum_of_squares(x) * _sum_of_squares(dy)
    if 2 * x.shape[1] ** 2 > x.shape[2] * dy.shape[2]:
        return _sum_of_squares(outer(x, dy))
    return (jnp.einsum("btn,bsn->bts", x, x) * jnp.einsum("btn,bsn->bts", dy, dy)).sum((1, 2))


def _sum_of_squares(rows: Array) -> Array:
    return jnp.square(rows.reshape(len(rows), -1)).sum(1)
