"""What a strategy is given: your losses and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Array = Any
Parameters = Mapping[str, Array]
Batch = Mapping[str, Array]
Gradients = Mapping[str, Array] | Sequence[Mapping[str, Array]]
Step = Callable[[Batch], Gradients]


class Unsupported(Exception):
    """What this way to compute gradients cannot do."""


@dataclass
class Problem:
    """Your model: `losses(parameters, batch)` has shape (B,), and the parameters are arrays by name."""

    losses: Callable[..., Array]
    parameters: Parameters
    batch_size: int
    weights: Array = None  # for weighted sums, one for every instance
    clip_norm: float = 1.0  # for clipped sums
    device: Any = None
    ops: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    def loss(self, parameters: Parameters, instance: Batch) -> Array:
        """The loss of one instance, which has no axis for the batch."""
        return self.losses(parameters, {name: value[None] for name, value in instance.items()})[0]
