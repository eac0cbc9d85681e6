"""A workload's network as `torch.nn` modules, for packages that know the gradients of modules only.

Nothing is written by hand for a workload: its loss is run with operations that put an `nn.Linear`, `nn.Conv2d`,
`nn.Embedding` or `nn.LayerNorm` wherever a layer uses parameters.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from pergrad import Batch, Problem, Unsupported
from strategies._handles import others_refused


class Handle:
    """Stands for a parameter while the loss is run: layers know what to do with it, nothing else does."""

    def __init__(self, network: Network, name: str, transposed: bool = False) -> None:
        self.network, self.name, self.transposed = network, name, transposed

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        """PyTorch calls this when one of its functions is given a handle."""
        handle = next((argument for argument in arguments if isinstance(argument, cls)), None)
        if handle is None:
            raise Unsupported("a parameter is used outside of a layer")
        others = [argument for argument in arguments if argument is not handle]
        if function in (torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__) and len(others) == 1:
            return handle.network.add_table(others[0], handle)
        raise Unsupported(f"{handle.name} is used outside of a layer, where only modules have gradients")


class Network(nn.Module):
    """The losses of a problem as a module: `network(batch)` has shape (B,).

    Attributes:
        owners: parameter -> (the module's parameter that holds it, whether that is its transpose).
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self.layers = nn.ModuleDict()
        self.owners: dict[str, tuple[nn.Parameter, bool]] = {}
        self.handles = {name: Handle(self, name) for name in problem.parameters}
        layers = ("dense", "conv2d", "embedding", "layer_norm", "transpose", "matmul", "lstm")
        self.ops = SimpleNamespace(**{**vars(problem.ops), **{name: getattr(self, name) for name in layers}})
        with others_refused():
            self(problem.example)  # creates the modules
        if unused := problem.parameters.keys() - self.owners.keys():
            raise Unsupported(f"{', '.join(sorted(unused))} belongs to no layer")

    def forward(self, batch: Batch) -> Any:
        """The loss of every instance."""
        return self.problem.losses(self.handles, batch, ops=self.ops)

    def dense(self, x: Any, weight: Handle, bias: Handle) -> Any:
        shape = self.problem.parameters[weight.name].shape
        return self._layer(lambda: nn.Linear(*shape), weight, bias, transposed=True)(x)

    def conv2d(self, x: Any, kernel: Handle, bias: Handle, stride: int, padding: int) -> Any:
        outputs, inputs, *size = self.problem.parameters[kernel.name].shape
        return self._layer(lambda: nn.Conv2d(inputs, outputs, size, stride, padding), kernel, bias)(x)

    def embedding(self, ids: Any, table: Handle) -> Any:
        layer = self._layer(lambda: nn.Embedding(*self.problem.parameters[table.name].shape), table)
        # The rules of BackPACK and Opacus expect an axis beside that of the instances.
        return layer(ids) if ids.ndim > 1 else layer(ids[:, None])[:, 0]

    def layer_norm(self, x: Any, scale: Handle, offset: Handle, epsilon: float) -> Any:
        return self._layer(lambda: nn.LayerNorm(x.shape[-1], epsilon), scale, offset)(x)

    def lstm(self, x: Any, input_weight: Handle, hidden_weight: Handle, bias: Handle) -> Any:
        raise Unsupported("the LSTM has one bias; nn.LSTM has two, and computes in one fused operation")

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        return Handle(self, x.name, transposed=True) if isinstance(x, Handle) else torch.permute(x, axes)

    def matmul(self, a: Any, b: Any) -> Any:
        """A product with a transposed table is a linear layer that shares its weight."""
        if not isinstance(b, Handle) or not b.transposed:
            return torch.matmul(a, b)
        outputs, inputs = self.problem.parameters[b.name].shape
        return self._layer(lambda: nn.Linear(inputs, outputs, bias=False), b, key="product")(a)

    def add_table(self, x: Any, table: Handle) -> Any:
        """A table that is added to every instance is an embedding of the positions."""
        shape = self.problem.parameters[table.name].shape
        if len(shape) != 2 or x.shape[1:] != shape:
            raise Unsupported(
                f"{table.name} is added to {tuple(x.shape)}, and only a table (positions, width) is a module"
            )
        length, width = shape
        positions = torch.arange(length, device=x.device).expand(len(x), length)
        return x + self._layer(lambda: nn.Embedding(length, width), table)(positions)

    def _layer(
        self, make: Any, weight: Handle, bias: Handle | None = None, transposed: bool = False, key: str = "layer"
    ) -> nn.Module:
        """The module of these parameters, made at its first use."""
        key = f"{key}_{weight.name}".replace(".", "_")
        if key not in self.layers:
            module = make()
            module.weight = self._owner(weight.name, transposed)
            if bias is not None:
                module.bias = self._owner(bias.name, False)
            self.layers[key] = module
        return self.layers[key]

    def _owner(self, name: str, transposed: bool) -> nn.Parameter:
        if name not in self.owners:
            value = self.problem.parameters[name]
            value = value.mT.contiguous() if transposed else value.clone()
            self.owners[name] = nn.Parameter(value), transposed
        return self.owners[name][0]
