"""Layer rules on NumPy with HIPS autograd: rows from a layer's inputs and its output's cotangent.

The loss is run with `Layers` in place of NumPy's operations. Every layer passes its output through `tap`, which is
the identity forwards; backwards it sees the cotangent of the output and writes the layer's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from harness import Batch, Problem, Unsupported

Array = Any


@primitive
def tap(anchor: float, y: Array, rule: Callable[[Array], None]) -> Array:
    """A layer's output as it is. The anchor is differentiated, so that autograd comes back through every layer."""
    return y


def _write(rule: Callable[[Array], None], dy: Array) -> float:
    rule(dy)
    return 0.0


defvjp(tap, lambda _, anchor, y, rule: lambda dy: _write(rule, dy), lambda _, anchor, y, rule: lambda dy: dy)


class Handle:
    """Stands for a parameter while the loss is run: layers know what to do with it, nothing else does."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __radd__(self, x: Array) -> Array:
        raise Unsupported(f"there is no layer rule for adding {self.name} here")

    __add__ = __radd__


class Layers:
    """The operations of `autograd.numpy`, with a tap behind every layer.

    Attributes:
        rows: parameter -> its rows, (B, *shape), the same memory in every call.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.ops, self.parameters = problem, problem.ops, problem.parameters
        size = problem.batch_size
        self.rows = {name: np.empty((size, *value.shape), value.dtype) for name, value in problem.parameters.items()}
        self.handles = {name: Handle(name) for name in problem.parameters}
        self.anchor: Any = 0.0
        self.used: set[str] = set()

    def gradients(self, batch: Batch) -> dict[str, Array]:
        """The rows of every instance; overwritten by the next call."""

        def total(anchor: float) -> Array:
            self.anchor = anchor
            self.used.clear()
            return self.ops.sum(self.problem.losses(self.handles, batch, ops=self), 0)

        grad(total)(0.0)
        return self.rows

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.ops, name)

        def checked(*arguments: Any, **keywords: Any) -> Any:
            for argument in arguments:
                if isinstance(argument, Handle):
                    raise Unsupported(f"there is no layer rule for {name} of {argument.name} here")
            return operation(*arguments, **keywords)

        return checked

    def dense(self, x: Array, weight: Handle, bias: Handle) -> Array:
        inputs, rows, offsets = getval(x), self._rows(weight), self._rows(bias)

        def rule(dy: Array) -> None:
            if dy.ndim == 2:
                np.einsum("bi,bo->bio", inputs, dy, out=rows)
            else:
                np.matmul(inputs.swapaxes(1, 2), dy, out=rows)
            offsets[:] = dy.reshape(len(dy), -1, dy.shape[-1]).sum(1)

        return tap(self.anchor, self.ops.dense(x, self.parameters[weight.name], self.parameters[bias.name]), rule)

    def conv2d(self, x: Array, kernel: Handle, bias: Handle, stride: int, padding: int) -> Array:
        inputs, rows, offsets = getval(x), self._rows(kernel), self._rows(bias)
        size = rows.shape[1]

        def rule(dy: Array) -> None:
            padded = np.pad(inputs, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
            seen = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))[:, ::stride, ::stride]
            seen = seen.transpose(0, 1, 2, 4, 5, 3).reshape(len(dy), dy[0, ..., 0].size, -1)
            flat = dy.reshape(len(dy), -1, dy.shape[-1])
            np.matmul(seen.swapaxes(1, 2), flat, out=rows.reshape(len(rows), -1, rows.shape[-1]))
            offsets[:] = flat.sum(1)

        y = self.ops.conv2d(x, self.parameters[kernel.name], self.parameters[bias.name], stride, padding)
        return tap(self.anchor, y, rule)

    def embedding(self, ids: Array, table: Handle) -> Array:
        rows = self._rows(table)

        def rule(dy: Array) -> None:
            rows.fill(0)
            np.add.at(rows, (np.arange(len(ids))[:, None], ids), dy)

        return tap(self.anchor, self.ops.embedding(ids, self.parameters[table.name]), rule)

    def _rows(self, handle: Handle) -> Array:
        if handle.name in self.used:
            raise Unsupported(f"two layers use {handle.name}, and their rows would have to be added up")
        self.used.add(handle.name)
        return self.rows[handle.name]
