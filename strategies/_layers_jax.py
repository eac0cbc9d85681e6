"""Layers in JAX: what each one was given, and the cotangent of what it returned.

The loss is run with `Layers` in place of the framework's operations. Zeros are added to every layer's output; the
gradient by these zeros is the cotangent of that output, and the compiler drops the addition. Nothing is
differentiated by the parameters: how their rows follow from inputs and cotangents is below, kind by kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pergrad import Batch, Parameters, Problem, Unsupported
from strategies._handles import others_refused, own_ids

Array = Any


class Use(NamedTuple):
    """One layer at work with one of its parameters.

    Attributes:
        kind: `product`, `transposed` product, `convolution`, `lookup`, `scale` or `offset`.
        name: the parameter.
        x: what it is applied to.
        output: the layer's number, which tells where the cotangent of its output is.
        layer: a convolution as a function of (x, kernel).
        stride: of a convolution.
        padding: of a convolution.
        dy: the cotangent of the output.
    """

    kind: str
    name: str
    x: Array
    output: int
    layer: Any = None
    stride: int = 1
    padding: int = 0
    dy: Array = None


class Handle:
    """Stands for a parameter while the loss is run: layers know what to do with it, nothing else does."""

    def __init__(self, layers: Layers, name: str, transposed: bool = False) -> None:
        self.layers, self.name, self.transposed = layers, name, transposed

    def __add__(self, x: Array) -> Array:
        return self.layers.add(x, self)

    __radd__ = __add__


def rows_of(problem: Problem, parameters: Parameters, batch: Batch) -> dict[str, Array]:
    """The rows of every instance, `{name: (B, *shape)}`."""
    found: dict[str, Array] = {}
    for use in sorted(uses(problem, parameters, batch), key=lambda use: use.kind == "lookup"):
        found[use.name] = add_rows(use, found.get(use.name), parameters[use.name].shape)
    size = problem.batch_size
    return {name: found.get(name, jnp.zeros((size, *p.shape), p.dtype)) for name, p in parameters.items()}


def uses(problem: Problem, parameters: Parameters, batch: Batch) -> list[Use]:
    """Every layer at work in the losses of a batch; of these the cotangents are meant."""
    plan = Layers(problem, parameters)
    jax.eval_shape(plan.total, batch)

    def total(zeros: Sequence[Array]) -> tuple[Array, list[Array]]:
        layers = Layers(problem, parameters, zeros)
        return layers.total(batch), [use.x for use in layers.uses]

    zeros = [jnp.zeros(shape.shape, shape.dtype) for shape in plan.outputs]
    cotangents, inputs = jax.grad(total, has_aux=True)(zeros)
    return [use._replace(x=x, dy=cotangents[use.output]) for use, x in zip(plan.uses, inputs)]


def add_rows(use: Use, so_far: Array | None, shape: tuple[int, ...]) -> Array:
    """The rows that follow from one use of a parameter of that shape, added to those from others."""
    x, dy = use.x, use.dy
    if use.kind == "lookup":
        instance = jnp.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
        base = jnp.zeros((len(x), *shape), dy.dtype) if so_far is None else so_far
        return base.at[instance, x].add(dy)
    if use.kind == "product":
        found = outer(x, dy)
    elif use.kind == "transposed":
        found = outer(dy, x)
    elif use.kind == "convolution":
        found = outer(windows(use, shape), dy).reshape(len(x), *shape)
    else:
        found = dy * x if use.kind == "scale" else dy
        found = found.sum(tuple(range(1, dy.ndim - len(shape))))
    return found if so_far is None else so_far + found


def outer(x: Array, dy: Array) -> Array:
    """Each instance's outer products of (B, ..., inputs) and (B, ..., outputs), summed over its positions."""
    if x.ndim == 2:
        return x[:, :, None] * dy[:, None, :]
    return jnp.einsum("bti,bto->bio", positions(x), positions(dy))


def positions(x: Array) -> Array:
    """(B, ..., n) -> (B, positions, n)."""
    return x.reshape(len(x), -1, x.shape[-1])


def windows(use: Use, shape: tuple[int, ...]) -> Array:
    """What a kernel of that shape sees at each output pixel: (B, height, width, inputs of the kernel).

    First rows, then columns are cut out: fewer and longer pieces than one for every pixel of the kernel.
    """
    (height, width), stride, padding = shape[:2], use.stride, use.padding
    last_row, last_column = (stride * (side - 1) + 1 for side in use.dy.shape[1:3])
    x = jnp.pad(use.x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    x = jnp.stack([x[:, i : i + last_row : stride] for i in range(height)], axis=3)
    x = jnp.stack([x[:, :, j : j + last_column : stride] for j in range(width)], axis=4)
    return x.reshape(*use.dy.shape[:3], -1)  # (B, rows, columns, height x width x channels)


class Layers:
    """The framework's operations, with zeros added to the output of every layer.

    Attributes:
        uses: every layer at work so far, without the cotangents.
        outputs: the outputs of all layers so far; what counts is their shapes.
    """

    def __init__(self, problem: Problem, parameters: Parameters, zeros: Sequence[Array] = ()) -> None:
        self.problem, self.ops, self.parameters, self.zeros = problem, problem.ops, parameters, zeros
        self.handles = {name: Handle(self, name) for name in parameters}
        self.uses: list[Use] = []
        self.outputs: list[Array] = []

    def total(self, batch: Batch) -> Array:
        """The sum of the losses."""
        with others_refused():
            return self.problem.losses(self.handles, batch, ops=self).sum()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.ops, name)

        def checked(*arguments: Any, **keywords: Any) -> Any:
            for argument in (*arguments, *keywords.values()):
                if isinstance(argument, Handle):
                    raise Unsupported(f"there is no layer rule for {name} of {argument.name}")
            return operation(*arguments, **keywords)

        return checked

    def dense(self, x: Array, weight: Handle, bias: Handle) -> Array:
        y = self.ops.dense(x, self.parameters[weight.name], self.parameters[bias.name])
        return self._used(y, ("product", weight, x), ("offset", bias, ()))

    def conv2d(self, x: Array, kernel: Handle, bias: Handle, stride: int, padding: int) -> Array:
        def layer(x: Array, kernel: Array) -> Array:
            return self.ops.conv2d(x, kernel, jnp.zeros((), x.dtype), stride, padding)

        y = layer(x, self.parameters[kernel.name]) + self.parameters[bias.name]
        return self._used(y, ("convolution", kernel, x, layer, stride, padding), ("offset", bias, ()))

    def embedding(self, ids: Array, table: Handle) -> Array:
        own_ids(ids.shape, self.problem.batch_size, table.name)
        return self._used(self.ops.embedding(ids, self.parameters[table.name]), ("lookup", table, ids))

    def layer_norm(self, x: Array, scale: Handle, offset: Handle, epsilon: float) -> Array:
        factor, shift = self.parameters[scale.name], self.parameters[offset.name]
        normed = self.ops.layer_norm(x, jnp.ones_like(factor), jnp.zeros_like(shift), epsilon)
        return self._used(normed * factor + shift, ("scale", scale, normed), ("offset", offset, ()))

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        if not isinstance(x, Handle):
            return self.ops.transpose(x, axes)
        if tuple(axes) != (1, 0):
            raise Unsupported(f"there is no layer rule for a transpose of {x.name} by {axes}")
        return Handle(self, x.name, transposed=not x.transposed)

    def matmul(self, a: Any, b: Any) -> Array:
        if not isinstance(b, Handle):
            return self.ops.matmul(a, b)
        value = self.parameters[b.name]
        y = self.ops.matmul(a, value.T if b.transposed else value)
        return self._used(y, ("transposed" if b.transposed else "product", b, a))

    def add(self, x: Array, table: Handle) -> Array:
        """A table added to every instance."""
        value = self.parameters[table.name]
        if x.shape[-value.ndim :] != value.shape or x.ndim <= value.ndim:
            raise Unsupported(f"there is no layer rule for adding {table.name} to {x.shape}")
        return self._used(x + value, ("offset", table, ()))

    def lstm(self, x: Array, input_weight: Handle, hidden_weight: Handle, bias: Handle) -> Array:
        projected = self.dense(x, input_weight, bias)
        y = lstm_cells(projected, self.parameters[hidden_weight.name])
        before = jnp.pad(y[:, :-1], ((0, 0), (1, 0), (0, 0)))
        self.uses.append(Use("product", hidden_weight.name, before, len(self.outputs) - 1))
        return y

    def _used(self, y: Array, *uses: Any) -> Array:
        """The output of a layer plus zeros, and a note of what was used for it: (kind, parameter, x, ...)."""
        output = len(self.outputs)
        self.outputs.append(y)
        self.uses += [Use(kind, handle.name, x, output, *convolution) for kind, handle, x, *convolution in uses]
        return y + self.zeros[output] if self.zeros else y


def lstm_cells(projected: Array, weight: Array) -> Array:
    """An LSTM whose inputs have been multiplied and biased already: (B, T, 4 width) -> (B, T, width)."""

    def cell(carry: Any, projected: Array) -> Any:
        hidden, memory = carry
        i, f, g, o = jnp.split(projected + hidden @ weight, 4, axis=-1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    start = jnp.zeros((projected.shape[0], weight.shape[0]), projected.dtype)
    _, outputs = jax.lax.scan(cell, (start, start), jnp.swapaxes(projected, 0, 1))
    return jnp.swapaxes(outputs, 0, 1)
