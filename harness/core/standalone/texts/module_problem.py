"""What a strategy for modules is given: your module and its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from strategies._own_torch import Own

Array = Any
Batch = Mapping[str, Array]
Gradients = Mapping[str, Array] | Sequence[Mapping[str, Array]]
Step = Callable[[Batch], Gradients]


class Unsupported(Exception):
    """What this way to compute gradients cannot do."""


@dataclass
class Problem:
    """Your model: `loss(model(*inputs(batch)), batch)` has shape (B,)."""

    model: nn.Module
    inputs: Callable[[Batch], tuple[Any, ...]]
    loss: Callable[[Any, Batch], Array]
    batch_size: int
    example: Batch  # a batch of one instance
    clip_norm: float = 1.0  # for clipped sums


def own_module(problem: Problem) -> Own:
    """Your module, and its parameters by name."""
    owners = {name: (value, False) for name, value in problem.model.named_parameters() if value.requires_grad}
    return Own(problem.model, problem.inputs, problem.loss, owners)
