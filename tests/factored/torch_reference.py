"""Per-instance gradients by a loop of plain gradients: what `torch_cases.py` compares with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pergrad.torch import per_instance

Tensors = dict[str, Any]
Loss = Callable[[Any, Any], Any]


def rows_of(loss: Loss, parameters: Tensors, batch: Tensors) -> Tensors:
    """The rows, one `torch.autograd.grad` after the other, without `torch.func`."""
    found = []
    for i in range(len(next(iter(batch.values())))):
        leaves = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
        value = loss(leaves, {name: x[i] for name, x in batch.items()})
        gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        filled = zip(leaves.values(), gradients, strict=True)
        found.append([torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in filled])
    return {name: torch.stack(rows) for name, rows in zip(parameters, zip(*found, strict=True), strict=True)}


def norms_of(rows: Tensors) -> Any:
    """The norm of every instance's whole gradient."""
    return torch.stack([row.reshape(len(row), -1).square().sum(1) for row in rows.values()]).sum(0).sqrt()


def error(found: Tensors, wanted: Tensors) -> float:
    """The largest difference on the scale of all that is wanted."""
    assert {name: value.shape for name, value in found.items()} == {name: v.shape for name, v in wanted.items()}
    scale = max(float(value.abs().max()) for value in wanted.values()) or 1.0
    return max(float((found[name] - wanted[name]).abs().max()) for name in wanted) / scale


def worst(loss: Loss, parameters: Tensors, *batches: Tensors) -> float:
    """The largest error of any quantity, batch after batch through the same functions."""
    gradients = per_instance(loss, reuse=True)
    norms, weighted = per_instance(loss, "norms"), per_instance(loss, "weighted_sum")
    wanted = [rows_of(loss, parameters, batch) for batch in batches]
    clip = float(norms_of(wanted[0]).median()) or 1.0
    clipped = per_instance(loss, "clipped_sum", clip_norm=clip)
    errors = []
    for batch, rows in zip(batches, wanted, strict=True):
        length = norms_of(rows)
        weights = torch.linspace(-1, 2, len(length), dtype=length.dtype)
        errors += [
            error(gradients(parameters, batch), rows),
            error({"norms": norms(parameters, batch)}, {"norms": length}),
            error(clipped(parameters, batch), total(rows, clip / length.clamp(min=clip))),
            error(weighted(parameters, batch, weights), total(rows, weights)),
        ]
    return max(errors)


def total(rows: Tensors, factors: Any) -> Tensors:
    """The sum of the rows times factors."""
    return {name: torch.tensordot(factors, row, 1) for name, row in rows.items()}


class Largest(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for x in found if isinstance(found, tuple | list) else [found]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return found
