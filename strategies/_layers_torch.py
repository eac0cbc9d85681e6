"""Layer rules in PyTorch: how the rows of a layer's parameters follow from its inputs and its output's cotangent.

The loss is run with `Layers` in place of the framework's operations. Every layer puts a hook on its output; in the
backward pass the hook sees the output's cotangent and writes the layer's rows at once, into buffers that are
reused. The parameters themselves need no gradient, so autograd computes cotangents and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from harness import Batch, Gradients, Problem, Unsupported

Tensor = Any
Rule = Callable[[Tensor], None]
"""Writes rows, given the cotangent of a layer's output."""


class Handle:
    """Stands for a parameter while the loss is run: layers know what to do with it, nothing else does."""

    def __init__(self, layers: Layers, name: str, transposed: bool = False) -> None:
        self.layers, self.name, self.transposed = layers, name, transposed

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        """PyTorch calls this when one of its functions is given a handle."""
        handle = next((argument for argument in arguments if isinstance(argument, cls)), None)
        others = [argument for argument in arguments if argument is not handle]
        if handle and function in (torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__) and len(others) == 1:
            return handle.layers.add(others[0], handle)
        name = handle.name if handle else "a parameter"
        raise Unsupported(f"there is no layer rule for {getattr(function, '__name__', function)} of {name}")


class Layers:
    """The framework's operations, with a hook behind every layer.

    Attributes:
        rows: parameter -> its rows, (B, *shape), the same memory in every call.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.parameters = problem, problem.parameters
        self.rows = {name: p.new_zeros((problem.batch_size, *p.shape)) for name, p in problem.parameters.items()}
        self.handles = {name: Handle(self, name) for name in problem.parameters}
        self.written: set[str] = set()

    def gradients(self, batch: Batch) -> Gradients:
        """The rows of every instance; overwritten by the next call."""
        self.written.clear()
        self.problem.losses(self.handles, batch, ops=self).sum().backward()
        for name in self.rows.keys() - self.written:
            self.rows[name].zero_()  # it does not take part in the loss
        return self.rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem.ops, name)

    def dense(self, x: Tensor, weight: Handle, bias: Handle) -> Tensor:
        def rule(dy: Tensor) -> None:
            self._add_product(weight.name, x, dy)
            self._add(bias.name, positions_summed(dy, 1))

        return self._hooked(rule, self.problem.ops.dense(x, self.parameters[weight.name], self.parameters[bias.name]))

    def conv2d(self, x: Tensor, kernel: Handle, bias: Handle, stride: int, padding: int) -> Tensor:
        value = self.parameters[kernel.name]

        def rule(dy: Tensor) -> None:
            windows = F.unfold(x, value.shape[2:], padding=padding, stride=stride)
            self._add_product(kernel.name, dy.flatten(2).mT, windows.mT)
            self._add(bias.name, dy.sum((2, 3)))

        return self._hooked(rule, self.problem.ops.conv2d(x, value, self.parameters[bias.name], stride, padding))

    def embedding(self, ids: Tensor, table: Handle) -> Tensor:
        value = self.parameters[table.name]
        entries, width = value.shape

        def rule(dy: Tensor) -> None:
            rows = self.rows[table.name]
            if self._is_first(table.name):
                rows.zero_()
            starts = torch.arange(0, len(ids) * entries, entries, device=ids.device)
            places = ids + starts.view(-1, *(1,) * (ids.ndim - 1))
            rows.view(-1, width).index_add_(0, places.flatten(), dy.reshape(-1, width))

        return self._hooked(rule, self.problem.ops.embedding(ids, value))

    def layer_norm(self, x: Tensor, scale: Handle, offset: Handle, epsilon: float) -> Tensor:
        normed = self.problem.ops.layer_norm(x, None, None, epsilon)

        def rule(dy: Tensor) -> None:
            self._add(scale.name, positions_summed(dy * normed.detach(), 1))
            self._add(offset.name, positions_summed(dy, 1))

        return self._hooked(rule, torch.addcmul(self.parameters[offset.name], normed, self.parameters[scale.name]))

    def lstm(self, x: Tensor, input_weight: Handle, hidden_weight: Handle, bias: Handle) -> Tensor:
        """The weights are transposed: (4 width, inputs) and (4 width, width)."""
        recurrent = self.parameters[hidden_weight.name]
        projected = F.linear(x, self.parameters[input_weight.name], self.parameters[bias.name])
        outputs: list[Tensor] = []

        def rule(dy: Tensor) -> None:
            hidden = torch.stack([torch.zeros_like(outputs[0]), *outputs[:-1]], 1).detach()
            self._add_product(input_weight.name, dy, x)
            self._add_product(hidden_weight.name, dy, hidden)
            self._add(bias.name, dy.sum(1))

        projected = self._hooked(rule, projected)
        hidden = memory = x.new_zeros((len(x), recurrent.shape[1]))
        for step in projected.unbind(1):
            i, f, g, o = torch.addmm(step, hidden, recurrent.mT).chunk(4, -1)
            memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(memory)
            outputs.append(hidden)
        return torch.stack(outputs, 1)

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        if not isinstance(x, Handle):
            return self.problem.ops.transpose(x, axes)
        return Handle(self, x.name, transposed=not x.transposed)

    def matmul(self, a: Any, b: Any) -> Tensor:
        if not isinstance(b, Handle):
            return self.problem.ops.matmul(a, b)
        value = self.parameters[b.name]

        def rule(dy: Tensor) -> None:
            self._add_product(b.name, *((dy, a) if b.transposed else (a, dy)))

        return self._hooked(rule, a @ (value.mT if b.transposed else value))

    def add(self, x: Tensor, table: Handle) -> Tensor:
        """A table added to every instance."""
        value = self.parameters[table.name]
        if x.shape[-value.ndim :] != value.shape or x.ndim <= value.ndim:
            raise Unsupported(f"there is no layer rule for adding {table.name} to {tuple(x.shape)}")
        return self._hooked(lambda dy: self._add(table.name, positions_summed(dy, value.ndim)), x + value)

    def _hooked(self, rule: Rule, y: Tensor) -> Tensor:
        """The output of a layer, whose cotangent goes to the rule."""
        if not y.requires_grad:
            y.requires_grad_()
        y.register_hook(rule)
        return y

    def _is_first(self, name: str) -> bool:
        """Whether these rows have not been written in this call; from now on they have."""
        first = name not in self.written
        self.written.add(name)
        return first

    def _add(self, name: str, value: Tensor) -> None:
        rows = self.rows[name]
        if self._is_first(name):
            rows.copy_(value)
        else:
            rows.add_(value)

    def _add_product(self, name: str, x: Tensor, dy: Tensor) -> None:
        """Each instance's outer products of (B, ..., n) and (B, ..., m), summed over its positions."""
        x, rows, first = x.detach(), self.rows[name], self._is_first(name)
        if x.ndim == 2 and first:
            torch.mul(x[:, :, None], dy[:, None, :], out=rows)
        elif x.ndim == 2:
            rows.addcmul_(x[:, :, None], dy[:, None, :])
        else:
            rows = rows.view(len(x), x.shape[-1], dy.shape[-1])
            rows.baddbmm_(x.flatten(1, -2).mT, dy.flatten(1, -2), beta=0 if first else 1)


def positions_summed(x: Tensor, rank: int) -> Tensor:
    """Sum over all axes but the first and the last `rank`."""
    return x.flatten(1, -rank - 1).sum(1) if x.ndim > rank + 1 else x
