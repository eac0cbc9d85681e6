"""Layers in TensorFlow: what each one was given, and the cotangent of what it returned.

The loss is run with `Layers` in place of the framework's operations. TensorFlow differentiates by any tensor, so the
cotangents are the gradients by the layers' outputs; nothing is differentiated by the parameters themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from pergrad import Batch, Problem, Unsupported
from strategies._handles import others_refused, own_ids

Tensor = Any


class Use(NamedTuple):
    """One layer at work with one of its parameters.

    Attributes:
        kind: `product`, `transposed` product, `convolution`, `lookup`, `scale` or `offset`.
        name: the parameter.
        x: what it is applied to; of a convolution, padded; None for an offset.
        y: the output.
        stride: of a convolution.
        dy: the cotangent of the output.
    """

    kind: str
    name: str
    x: Tensor
    y: Tensor
    stride: int = 1
    dy: Tensor = None


class Handle:
    """Stands for a parameter while the loss is run: layers know what to do with it, nothing else does."""

    def __init__(self, layers: Layers, name: str, transposed: bool = False) -> None:
        self.layers, self.name, self.transposed = layers, name, transposed

    def __add__(self, x: Tensor) -> Tensor:
        return self.layers.add(x, self)

    __radd__ = __add__


def uses(problem: Problem, batch: Batch) -> list[Use]:
    """Every layer at work in the losses of a batch."""
    with others_refused(), tf.GradientTape(watch_accessed_variables=False) as tape:
        layers = Layers(problem, tape.watch)
        total = tf.reduce_sum(problem.losses(layers.handles, batch, ops=layers))
    found = layers.uses
    cotangents = tape.gradient(total, [use.y for use in found], unconnected_gradients="zero")
    return [use._replace(dy=dy) for use, dy in zip(found, cotangents)]


class Layers:
    """The framework's operations; the output of every layer is watched."""

    def __init__(self, problem: Problem, watch: Callable[[Tensor], None]) -> None:
        self.ops, self.watch, self.batch_size = problem.ops, watch, problem.batch_size
        self.parameters = {name: tf.convert_to_tensor(value) for name, value in problem.parameters.items()}
        self.handles = {name: Handle(self, name) for name in problem.parameters}
        self.uses: list[Use] = []

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.ops, name)

        def checked(*arguments: Any, **keywords: Any) -> Any:
            for argument in (*arguments, *keywords.values()):
                if isinstance(argument, Handle):
                    raise Unsupported(f"there is no layer rule for {name} of {argument.name} here")
            return operation(*arguments, **keywords)

        return checked

    def dense(self, x: Tensor, weight: Handle, bias: Handle) -> Tensor:
        y = self.ops.dense(x, self.parameters[weight.name], self.parameters[bias.name])
        return self._used(y, ("product", weight, x), ("offset", bias, None))

    def conv2d(self, x: Tensor, kernel: Handle, bias: Handle, stride: int, padding: int) -> Tensor:
        y = self.ops.conv2d(x, self.parameters[kernel.name], self.parameters[bias.name], stride, padding)
        padded = tf.pad(x, [[0, 0], [padding, padding], [padding, padding], [0, 0]])
        return self._used(y, ("convolution", kernel, padded, stride), ("offset", bias, None))

    def embedding(self, ids: Tensor, table: Handle) -> Tensor:
        own_ids(ids.shape, self.batch_size, table.name)
        return self._used(self.ops.embedding(ids, self.parameters[table.name]), ("lookup", table, ids))

    def layer_norm(self, x: Tensor, scale: Handle, offset: Handle, epsilon: float) -> Tensor:
        factor, shift = self.parameters[scale.name], self.parameters[offset.name]
        normed = self.ops.layer_norm(x, tf.ones_like(factor), tf.zeros_like(shift), epsilon)
        return self._used(normed * factor + shift, ("scale", scale, normed), ("offset", offset, None))

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        if not isinstance(x, Handle):
            return self.ops.transpose(x, axes)
        return Handle(self, x.name, transposed=not x.transposed)

    def matmul(self, a: Any, b: Any) -> Tensor:
        if not isinstance(b, Handle):
            return self.ops.matmul(a, b)
        value = self.parameters[b.name]
        y = tf.tensordot(a, tf.transpose(value) if b.transposed else value, 1)
        return self._used(y, ("transposed" if b.transposed else "product", b, a))

    def add(self, x: Tensor, table: Handle) -> Tensor:
        """A table added to every instance."""
        value = self.parameters[table.name]
        if x.shape[1:] != value.shape:
            raise Unsupported(f"there is no layer rule for adding {table.name} to {x.shape}")
        return self._used(x + value, ("offset", table, None))

    def _used(self, y: Tensor, *uses: Any) -> Tensor:
        """The output of a layer, watched, and a note of what was used for it: (kind, parameter, x, stride)."""
        self.watch(y)
        self.uses += [Use(kind, handle.name, x, y, *stride) for kind, handle, x, *stride in uses]
        return y


def factors_of(use: Use, shape: Any) -> tuple[Tensor, Tensor]:
    """Two factors (B, positions, n), (B, positions, m) whose products, summed over positions, are a weight's rows."""
    x = use.x
    if use.kind == "convolution":
        stride = use.stride
        x = tf.image.extract_patches(x, (1, shape[0], shape[1], 1), (1, stride, stride, 1), (1, 1, 1, 1), "VALID")
    x, dy = positions(x), positions(use.dy)
    return (dy, x) if use.kind == "transposed" else (x, dy)


def positions(x: Tensor) -> Tensor:
    """(B, ..., n) -> (B, positions, n)."""
    count = x.shape[1:-1].num_elements()
    return tf.reshape(x, (-1, count, x.shape[-1]))


def rows_of(use: Use, shape: Any) -> Tensor:
    """The rows that follow from one use of a parameter of that shape, (B, *shape)."""
    if use.kind == "lookup":
        size = int(use.x.shape[0])
        instance = tf.broadcast_to(tf.range(size, dtype=use.x.dtype)[:, None], use.x.shape)
        return tf.scatter_nd(tf.stack([instance, use.x], -1), use.dy, (size, *shape))
    if use.kind in ("scale", "offset"):
        dy = use.dy if use.x is None else use.dy * use.x
        return tf.reduce_sum(dy, tuple(range(1, dy.shape.rank - len(shape))))
    a, b = factors_of(use, shape)
    return tf.reshape(tf.matmul(a, b, transpose_a=True), (-1, *shape))
