"""Layers in PyTorch: what each one was given, and the cotangent of what it returned.

The loss is run with `Layers` in place of the framework's operations. Every layer puts a hook on its output; in the
backward pass the hook sees the output's cotangent and reports the layer at work. The parameters themselves need no
gradient, so autograd computes cotangents and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from pergrad import Batch, Problem, Unsupported
from strategies._handles import others_refused, own_ids

Tensor = Any


class Use(NamedTuple):
    """One layer at work with one of its parameters.

    Attributes:
        kind: `product`, `transposed` product, `convolution`, `lookup`, `scale` or `offset`.
        name: the parameter.
        x: what it is applied to; None for an offset.
        dy: the cotangent of the output.
        stride: of a convolution.
        padding: of a convolution.
        memory: for what the kernel sees of x, see `windows`.
    """

    kind: str
    name: str
    x: Tensor
    dy: Tensor
    stride: int = 1
    padding: int = 0
    memory: Tensor = None


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
    """The framework's operations, with a hook behind every layer."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.ops, self.parameters = problem, problem.ops, problem.parameters
        self.handles = {name: Handle(self, name) for name in problem.parameters}
        self.memory: dict[str, Tensor] = {}
        self.report: Callable[[Use], None]

    def run(self, batch: Batch, report: Callable[[Use], None]) -> None:
        """Forwards and backwards through the sum of the losses; each use is reported as soon as it is known."""
        self.report = report
        with others_refused():
            total = self.problem.losses(self.handles, batch, ops=self).sum()
        total.backward()

    def uses(self, batch: Batch) -> list[Use]:
        """Every layer at work in the losses of a batch, the last one first."""
        found: list[Use] = []
        self.run(batch, found.append)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def dense(self, x: Tensor, weight: Handle, bias: Handle) -> Tensor:
        y = self.ops.dense(x, self.parameters[weight.name], self.parameters[bias.name])
        return self._used(y, ("product", weight.name, x), ("offset", bias.name, None))

    def conv2d(self, x: Tensor, kernel: Handle, bias: Handle, stride: int, padding: int) -> Tensor:
        value = self.parameters[kernel.name]
        x = x.contiguous(memory_format=torch.channels_last)  # pooling and `windows` are several times faster so
        y = self.ops.conv2d(x, value, self.parameters[bias.name], stride, padding)
        y = y.contiguous(memory_format=torch.channels_last)
        if kernel.name not in self.memory:
            self.memory[kernel.name] = y.new_empty((len(y), y[0, 0].numel(), value[0].numel()))
        used = ("convolution", kernel.name, x, stride, padding, self.memory[kernel.name])
        return self._used(y, used, ("channels", bias.name, None))

    def embedding(self, ids: Tensor, table: Handle) -> Tensor:
        own_ids(ids.shape, self.problem.batch_size, table.name)
        return self._used(self.ops.embedding(ids, self.parameters[table.name]), ("lookup", table.name, ids))

    def layer_norm(self, x: Tensor, scale: Handle, offset: Handle, epsilon: float) -> Tensor:
        normed = self.ops.layer_norm(x, None, None, epsilon)
        y = torch.addcmul(self.parameters[offset.name], normed, self.parameters[scale.name])
        return self._used(y, ("scale", scale.name, normed), ("offset", offset.name, None))

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        if not isinstance(x, Handle):
            return self.ops.transpose(x, axes)
        return Handle(self, x.name, transposed=not x.transposed)

    def matmul(self, a: Any, b: Any) -> Tensor:
        if not isinstance(b, Handle):
            return self.ops.matmul(a, b)
        value = self.parameters[b.name]
        y = torch.matmul(a, value.mT if b.transposed else value)
        return self._used(y, ("transposed" if b.transposed else "product", b.name, a))

    def add(self, x: Tensor, table: Handle) -> Tensor:
        """A table added to every instance."""
        value = self.parameters[table.name]
        if x.shape[-value.ndim :] != value.shape or x.ndim <= value.ndim:
            raise Unsupported(f"there is no layer rule for adding {table.name} to {tuple(x.shape)}")
        return self._used(x + value, ("offset", table.name, None))

    def lstm(self, x: Tensor, input_weight: Handle, hidden_weight: Handle, bias: Handle) -> Tensor:
        """Step by step, because the fused LSTM does not tell cotangents; the weights are transposed."""
        recurrent = self.parameters[hidden_weight.name]
        projected = F.linear(x, self.parameters[input_weight.name], self.parameters[bias.name])
        hidden = memory = x.new_zeros((len(x), recurrent.shape[1]))
        before = x.new_zeros((len(x), x.shape[1], recurrent.shape[1]))
        weights = ("transposed", input_weight.name, x), ("transposed", hidden_weight.name, before)
        outputs = []
        for time, step in enumerate(self._used(projected, *weights, ("offset", bias.name, None)).unbind(1)):
            before[:, time] = hidden.detach()
            i, f, g, o = torch.addmm(step, hidden, recurrent.mT).chunk(4, -1)
            memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(memory)
            outputs.append(hidden)
        return torch.stack(outputs, 1)

    def _used(self, y: Tensor, *used: Any) -> Tensor:
        """The output of a layer; once its cotangent is known, what was used is reported: (kind, name, x, ...)."""
        if not y.requires_grad:
            y.requires_grad_()

        def tell(dy: Tensor) -> None:
            for kind, name, x, *convolution in used:
                self.report(Use(kind, name, None if x is None else x.detach(), dy, *convolution))

        y.register_hook(tell)
        return y


def value_of(use: Use, rank: int) -> Tensor:
    """The rows of a scale or an offset whose shape has that rank."""
    if use.kind == "channels":
        return use.dy.flatten(2).sum(2)
    dy = use.dy if use.x is None else use.dy * use.x
    return dy.flatten(1, -rank - 1).sum(1) if dy.ndim > rank + 1 else dy


def factors_of(use: Use, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Two factors (B, positions, n), (B, positions, m) whose products, summed over positions, are a weight's rows."""
    if use.kind == "convolution":
        return use.dy.flatten(2).mT, windows(use, *shape[2:])
    x, dy = (value.unsqueeze(1) if value.ndim == 2 else value.flatten(1, -2) for value in (use.x, use.dy))
    return (x, dy) if use.kind == "product" else (dy, x)


def windows(use: Use, height: int, width: int) -> Tensor:
    """What a kernel of that size sees at each output pixel: (B, pixels, height x width x channels), channels last."""
    x = F.pad(use.x, (use.padding,) * 4) if use.padding else use.x
    seen = x.unfold(2, height, use.stride).unfold(3, width, use.stride)  # (B, channels, rows, columns, height, width)
    seen = seen.permute(0, 2, 3, 4, 5, 1)
    use.memory.view(seen.shape).copy_(seen)
    return use.memory
