"""A model as an `nn.Module`, for packages that differentiate modules: the user's own, or one made of `ops`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pergrad import Batch, Gradients, Problem, Unsupported
from strategies._modules_torch import Network


@dataclass(frozen=True)
class Own:
    """A module with its loss. `loss(model(*inputs(batch)), batch)` has shape (B,).

    Attributes:
        owners: parameter's name -> (the module's parameter that holds it, whether that is its transpose).
    """

    model: nn.Module
    inputs: Callable[[Batch], tuple[Any, ...]]
    loss: Callable[[Any, Batch], Any]
    owners: Mapping[str, tuple[nn.Parameter, bool]]

    def take(self, attribute: str) -> Gradients:
        """What a package left in that attribute of every parameter, which is empty for the next call then."""
        found = {}
        for name, (owner, transposed) in self.owners.items():
            value = getattr(owner, attribute, None)
            if value is None:
                raise Unsupported(f"{name} has no {attribute}: there is no rule for {self._layer(owner)}")
            found[name] = value.mT if transposed else value
            setattr(owner, attribute, None)
            owner.grad = None
        return found

    def used_twice(self, example: Batch) -> list[str]:
        """Parameters that two layers share, or whose layer is called twice."""
        uses: Counter[int] = Counter()

        def count(module: nn.Module, _: Any) -> None:
            uses.update(id(value) for value in module.parameters(recurse=False))

        hooks = [module.register_forward_pre_hook(count) for module in self.model.modules()]
        with torch.no_grad():
            self.model(*self.inputs(example))
        for hook in hooks:
            hook.remove()
        return [name for name, (owner, _) in self.owners.items() if uses[id(owner)] > 1]

    def _layer(self, owner: nn.Parameter) -> str:
        modules = (m for m in self.model.modules() if any(value is owner for value in m.parameters(recurse=False)))
        return type(next(modules)).__name__


def own_module(problem: Problem) -> Own:
    """The module of a problem.

    Raises:
        Unsupported: if the workload is for PyTorch alone and gives no module, or a parameter belongs to no layer.
    """
    if problem.module is not None:
        model = problem.module.model()
        owners = {name: (value, False) for name, value in model.named_parameters() if value.requires_grad}
        return Own(model, problem.module.inputs, problem.module.loss, owners)
    if not problem.through_ops:
        raise Unsupported(
            "this package differentiates modules: give `model` and `loss` in the workload's file instead of `losses`"
        )
    network = Network(problem)
    return Own(network, lambda batch: (batch,), lambda losses, batch: losses, network.owners)
