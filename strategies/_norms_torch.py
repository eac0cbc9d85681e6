"""Norms of each instance's gradient, and sums of scaled gradients, from layers at work (`_layers_torch.py`).

The squared norm of a sum of T outer products x_t dy_t is the sum of (x_t . x_s) (dy_t . dy_s) over all t and s. For
few positions that costs less than the row itself, which is then never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.grad import conv2d_weight

from pergrad import Gradients, Parameters
from strategies._layers_torch import Use, factors_of, value_of
from strategies._rows_torch import empty_rows, write_rows

Tensor = Any


def norms(uses: Sequence[Use], parameters: Parameters) -> Tensor:
    """The L2 norm of every instance's whole gradient, (B,)."""
    squares = []
    for name, parameter in parameters.items():
        mine = [use for use in uses if use.name == name]
        if len(mine) == 1:
            squares.append(_squares(mine[0], parameter.shape))
        elif mine:  # the contributions of several layers add up before they are squared
            squares.append(_squares_of_rows(mine, parameter.shape))
    return torch.stack(squares).sum(0).sqrt()


def scaled_sum(uses: Sequence[Use], factors: Tensor, parameters: Parameters) -> Gradients:
    """The sum over the instances of factor x gradient, `{name: shape}`; one product for the batch per layer."""
    found = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for use in uses:
        total = found[use.name]
        if use.kind in ("scale", "offset", "channels"):
            total += torch.tensordot(factors, value_of(use, total.ndim), 1)
            continue
        scaled = use._replace(dy=use.dy * factors.view(-1, *(1,) * (use.dy.ndim - 1)))
        if use.kind == "lookup":
            total.index_add_(0, use.x.flatten(), scaled.dy.reshape(-1, total.shape[1]))
        elif use.kind == "convolution":
            total += conv2d_weight(use.x, total.shape, scaled.dy, use.stride, use.padding)
        else:
            a, b = factors_of(scaled, total.shape)
            total.addmm_(a.flatten(0, 1).mT, b.flatten(0, 1))
    return found


def _squares(use: Use, shape: torch.Size) -> Tensor:
    """The squared norm of every instance's row of one parameter that is used once, (B,)."""
    if use.kind in ("scale", "offset", "channels"):
        return _sum_of_squares(value_of(use, len(shape)))
    if use.kind == "lookup":
        return _squares_of_lookup(use)
    a, b = factors_of(use, shape)
    if a.shape[1] == 1:
        return _sum_of_squares(a) * _sum_of_squares(b)
    if 2 * a.shape[1] ** 2 > shape.numel():
        return _sum_of_squares(a.mT @ b)
    return ((a @ a.mT) * (b @ b.mT)).sum((1, 2))


def _squares_of_lookup(use: Use) -> Tensor:
    """Cotangents of one instance that go to the same entry of the table are added up before they are squared."""
    ids, dy = use.x.reshape(len(use.x), -1), use.dy.flatten(0, -2)
    instance = torch.arange(len(ids), device=ids.device)[:, None]
    places, inverse = torch.unique(instance * (ids.max() + 1) + ids, return_inverse=True)
    sums = dy.new_zeros((len(places), dy.shape[1])).index_add_(0, inverse.flatten(), dy)
    owners = torch.div(places, ids.max() + 1, rounding_mode="floor")
    return dy.new_zeros(len(ids)).index_add_(0, owners, sums.square().sum(1))


def _squares_of_rows(uses: Sequence[Use], shape: torch.Size) -> Tensor:
    rows = empty_rows(uses[0].dy.new_empty(shape), len(uses[0].dy))
    for number, use in enumerate(uses):
        write_rows(use, rows, shape, first=number == 0)
    return _sum_of_squares(rows)


def _sum_of_squares(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows.flatten(1), dim=1).square()
