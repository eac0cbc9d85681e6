"""What a strategy for graphs and sessions is given: your losses, variables, and what the inputs look like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow.compat.v1 as tf

Array = Any
Parameters = Mapping[str, Array]
Batch = Mapping[str, Array]
Gradients = Mapping[str, Array] | Sequence[Mapping[str, Array]]
Step = Callable[[Batch], Gradients]


class Unsupported(Exception):
    """What this way to compute gradients cannot do."""


@dataclass
class GraphProblem:
    """Your model: `losses(parameters, batch)` has shape (B,), the parameters are variables of the default graph."""

    losses: Callable[..., Array]
    parameters: Parameters
    batch_size: int
    inputs: Mapping[str, tuple[Any, tuple[int, ...]]]  # dtype and shape of one instance of each
    weights: Array = None  # for weighted sums, one for every instance
    clip_norm: float = 1.0  # for clipped sums
    ops: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    def loss(self, parameters: Parameters, instance: Batch) -> Array:
        """The loss of one instance, which has no axis for the batch."""
        return self.losses(parameters, {name: value[None] for name, value in instance.items()})[0]

    def placeholders(self, batch_size: int) -> dict[str, Array]:
        """Placeholders for a batch."""
        return {name: tf.placeholder(dtype, (batch_size, *shape)) for name, (dtype, shape) in self.inputs.items()}

    def feed(self, placeholders: Batch, batch: Batch) -> dict[Array, Array]:
        """The `feed_dict` of a batch."""
        return {placeholder: batch[name] for name, placeholder in placeholders.items()}

    def feeds(self, placeholders: Batch, batch: Batch) -> Iterator[dict[Array, Array]]:
        """One `feed_dict` per instance."""
        for i in range(self.batch_size):
            yield {placeholder: batch[name][i : i + 1] for name, placeholder in placeholders.items()}

    def session(self, *_: Any) -> Any:
        """A session with initialised variables. The graph is complete from here on."""
        initialise = tf.global_variables_initializer()
        session = tf.Session()
        session.run(initialise)
        return session
