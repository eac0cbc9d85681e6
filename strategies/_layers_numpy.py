"""Layers on NumPy with HIPS autograd: what each one was given, and the cotangent of what it returned.

The loss is run with `Layers` in place of NumPy's operations. Every layer passes its output through `tap`, which is
the identity forwards; backwards it sees the cotangent of the output, from which rows, norms and sums follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from pergrad import Batch, Problem, Unsupported
from strategies._handles import others_refused, own_ids

Array = Any


class Use(NamedTuple):
    """One layer at work with one of its parameters.

    Attributes:
        kind: `product`, `lookup` or `offset`; a convolution is a product over its windows.
        name: the parameter.
        x: what it is applied to, (B, positions, n), of a lookup (B, positions); None for an offset.
        dy: the cotangent of the output, (B, positions, m).
    """

    kind: str
    name: str
    x: Array
    dy: Array


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
    """The operations of `autograd.numpy`, with a tap behind every layer."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.ops, self.parameters = problem, problem.ops, problem.parameters
        self.handles = {name: Handle(name) for name in problem.parameters}
        self.anchor: Any = 0.0
        self.used: set[str] = set()
        self.report: Callable[[Use], None]

    def run(self, batch: Batch, report: Callable[[Use], None]) -> None:
        """Forwards and backwards through the sum of the losses; each use is reported as soon as it is known."""
        self.report = report

        def total(anchor: float) -> Array:
            self.anchor = anchor
            self.used.clear()
            with others_refused():
                return self.ops.sum(self.problem.losses(self.handles, batch, ops=self), 0)

        grad(total)(0.0)

    def uses(self, batch: Batch) -> list[Use]:
        """Every layer at work in the losses of a batch, the last one first."""
        found: list[Use] = []
        self.run(batch, found.append)
        return found

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.ops, name)

        def checked(*arguments: Any, **keywords: Any) -> Any:
            for argument in arguments:
                if isinstance(argument, Handle):
                    raise Unsupported(f"there is no layer rule for {name} of {argument.name} here")
            return operation(*arguments, **keywords)

        return checked

    def dense(self, x: Array, weight: Handle, bias: Handle) -> Array:
        inputs, weight_name, bias_name = getval(x), self._name(weight), self._name(bias)

        def rule(dy: Array) -> None:
            dy = positions(dy)
            self.report(Use("product", weight_name, positions(inputs), dy))
            self.report(Use("offset", bias_name, None, dy))

        return tap(self.anchor, self.ops.dense(x, self.parameters[weight_name], self.parameters[bias_name]), rule)

    def conv2d(self, x: Array, kernel: Handle, bias: Handle, stride: int, padding: int) -> Array:
        inputs, kernel_name, bias_name = getval(x), self._name(kernel), self._name(bias)
        value = self.parameters[kernel_name]

        def rule(dy: Array) -> None:
            dy = positions(dy)
            self.report(Use("product", kernel_name, windows(inputs, value.shape[:2], stride, padding), dy))
            self.report(Use("offset", bias_name, None, dy))

        return tap(self.anchor, self.ops.conv2d(x, value, self.parameters[bias_name], stride, padding), rule)

    def embedding(self, ids: Array, table: Handle) -> Array:
        name = self._name(table)
        own_ids(ids.shape, self.problem.batch_size, name)

        def rule(dy: Array) -> None:
            self.report(Use("lookup", name, ids.reshape(len(ids), -1), positions(dy)))

        return tap(self.anchor, self.ops.embedding(ids, self.parameters[name]), rule)

    def _name(self, handle: Handle) -> str:
        if handle.name in self.used:
            raise Unsupported(f"two layers use {handle.name}, and what follows from each would have to be added up")
        self.used.add(handle.name)
        return handle.name


class Rows:
    """The rows of every parameter, (B, *shape), in memory that stays the same from call to call."""

    def __init__(self, problem: Problem) -> None:
        size = problem.batch_size
        self.rows = {name: np.zeros((size, *value.shape), value.dtype) for name, value in problem.parameters.items()}
        self.layers = Layers(problem)

    def of(self, batch: Batch) -> dict[str, Array]:
        """The rows of a batch; overwritten by the next call."""
        self.layers.run(batch, self.write)
        return self.rows

    def write(self, use: Use) -> None:
        """Write the rows that follow from one use of a parameter."""
        x, dy, rows = use.x, use.dy, self.rows[use.name]
        if use.kind == "lookup":
            rows.fill(0)
            np.add.at(rows, (np.arange(len(x))[:, None], x), dy)
        elif use.kind == "offset":
            np.sum(dy, axis=1, out=rows)
        else:
            products = rows.reshape(len(rows), x.shape[2], dy.shape[2])
            if x.shape[1] == 1:  # one position: an outer product, which einsum writes fastest
                np.einsum("bi,bo->bio", x[:, 0], dy[:, 0], out=products)
            else:
                np.matmul(x.swapaxes(1, 2), dy, out=products)


def positions(x: Array) -> Array:
    """(B, ..., n) -> (B, positions, n)."""
    return x.reshape(len(x), -1, x.shape[-1])


def windows(x: Array, size: tuple[int, ...], stride: int, padding: int) -> Array:
    """What a kernel of that height and width sees at each output pixel: (B, pixels, height x width x channels)."""
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, size, (1, 2))[:, ::stride, ::stride]
    return seen.transpose(0, 1, 2, 4, 5, 3).reshape(len(x), seen.shape[1] * seen.shape[2], -1)
