"""Norms of each instance's gradient, and sums of scaled gradients, from what every layer was given and its cotangents.

The squared norm of a sum of T outer products x_t dy_t is the sum of (x_t . x_s) (dy_t . dy_s) over all t and s. For
few positions that costs less than the row itself, which is then never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from pergrad import Gradients, Parameters
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
        return _squares_of_lookup(x.reshape(len(x), -1), positions(dy))
    if use.kind not in ("product", "transposed", "convolution"):
        return _sum_of_squares(add_rows(use, None, shape))
    x, dy = positions(windows(use, shape) if use.kind == "convolution" else x), positions(dy)
    if x.shape[1] == 1:
        return _sum_of_squares(x) * _sum_of_squares(dy)
    if 2 * x.shape[1] ** 2 > x.shape[2] * dy.shape[2]:
        return _sum_of_squares(outer(x, dy))
    return (jnp.einsum("btn,bsn->bts", x, x) * jnp.einsum("btn,bsn->bts", dy, dy)).sum((1, 2))


def _squares_of_lookup(ids: Array, dy: Array) -> Array:
    """Cotangents of one instance that go to the same entry of the table are added up before they are squared."""
    count = ids.shape[1]
    order = jnp.argsort(ids, axis=1)
    ids = jnp.take_along_axis(ids, order, axis=1)
    entry = jnp.cumsum(jnp.diff(ids, axis=1, prepend=ids[:, :1]) != 0, axis=1)  # of each instance: 0, 0, 1, 2, 2 ...
    entry += count * jnp.arange(len(ids))[:, None]
    dy = jnp.take_along_axis(dy, order[:, :, None], axis=1).reshape(-1, dy.shape[-1])
    sums = jax.ops.segment_sum(dy, entry.reshape(-1), len(ids) * count, indices_are_sorted=True)
    return _sum_of_squares(sums.reshape(len(ids), -1))


def _sum_of_squares(rows: Array) -> Array:
    return jnp.square(rows.reshape(len(rows), -1)).sum(1)
