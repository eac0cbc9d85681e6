"""Norms of each instance's gradient, and sums of scaled gradients, from layers at work (`_layers_tensorflow.py`).

The squared norm of a sum of T outer products x_t dy_t is the sum of (x_t . x_s) (dy_t . dy_s) over all t and s. For
few positions that costs less than the row itself, which is then never written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from pergrad import Gradients, Parameters
from strategies._layers_tensorflow import Use, factors_of, positions, rows_of

Tensor = Any


def norms(uses: Sequence[Use], parameters: Parameters) -> Tensor:
    """The L2 norm of every instance's whole gradient, (B,)."""
    squares = []
    for name, parameter in parameters.items():
        mine = [use for use in uses if use.name == name]
        shape = tuple(parameter.shape.as_list())
        if len(mine) == 1:
            squares.append(_squares(mine[0], shape))
        elif mine:  # the contributions of several layers add up before they are squared
            squares.append(_sum_of_squares(tf.add_n([rows_of(use, shape) for use in mine])))
    return tf.sqrt(tf.add_n(squares))


def scaled_sum(uses: Sequence[Use], factors: Tensor, parameters: Parameters) -> Gradients:
    """The sum over the instances of factor x gradient, `{name: shape}`; one product for the batch per layer."""
    found: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for use in uses:
        shape = parameters[use.name].shape
        scaled = use._replace(dy=use.dy * tf.reshape(factors, (-1, *(1,) * (use.dy.shape.rank - 1))))
        found[use.name].append(_sum_over_batch(scaled, tuple(shape.as_list())))
    return {name: tf.add_n(parts) if parts else tf.zeros_like(parameters[name]) for name, parts in found.items()}


def _sum_over_batch(use: Use, shape: tuple[int, ...]) -> Tensor:
    if use.kind == "lookup":
        ids, dy = tf.reshape(use.x, (-1,)), tf.reshape(use.dy, (-1, shape[1]))
        return tf.math.unsorted_segment_sum(dy, ids, shape[0])
    if use.kind == "convolution":
        strides = (1, use.stride, use.stride, 1)
        return tf.compat.v1.nn.conv2d_backprop_filter(use.x, shape, use.dy, strides, "VALID")
    if use.kind in ("product", "transposed"):
        a, b = (tf.reshape(factor, (-1, factor.shape[-1])) for factor in factors_of(use, shape))
        return tf.matmul(a, b, transpose_a=True)
    return tf.reduce_sum(rows_of(use, shape), 0)


def _squares(use: Use, shape: tuple[int, ...]) -> Tensor:
    """The squared norm of every instance's row of one parameter that is used once, (B,)."""
    if use.kind in ("scale", "offset"):
        return _sum_of_squares(rows_of(use, shape))
    if use.kind == "lookup":
        return _squares_of_lookup(use)
    a, b = factors_of(use, shape)
    count = int(a.shape[1])
    if count == 1:
        return _sum_of_squares(a) * _sum_of_squares(b)
    if 2 * count**2 > math.prod(shape):
        return _sum_of_squares(tf.matmul(a, b, transpose_a=True))
    return tf.reduce_sum(tf.matmul(a, a, transpose_b=True) * tf.matmul(b, b, transpose_b=True), (1, 2))


def _squares_of_lookup(use: Use) -> Tensor:
    """Cotangents of one instance that go to the same entry of the table are added up before they are squared."""
    size, count = int(use.x.shape[0]), use.x.shape[1:].num_elements()
    ids, dy = tf.reshape(use.x, (size, count)), positions(use.dy)
    order = tf.argsort(ids, axis=1)
    ids, dy = tf.gather(ids, order, batch_dims=1), tf.gather(dy, order, batch_dims=1)
    differs = tf.cast(tf.not_equal(ids[:, 1:], ids[:, :-1]), tf.int32)
    entry = tf.concat([tf.zeros((size, 1), tf.int32), tf.cumsum(differs, 1)], 1) + count * tf.range(size)[:, None]
    sums = tf.math.unsorted_segment_sum(dy, entry, size * count)
    return tf.reduce_sum(tf.reshape(tf.reduce_sum(tf.square(sums), 1), (size, count)), 1)


def _sum_of_squares(rows: Tensor) -> Tensor:
    return tf.reduce_sum(tf.square(rows), tuple(range(1, rows.shape.rank)))
