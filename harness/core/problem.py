"""What a strategy is given: one workload bound to one framework, one device and one batch size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any
"""An array of the framework at hand: `jax.Array`, `torch.Tensor`, `tf.Tensor`, `numpy.ndarray`."""

Parameters = Mapping[str, Array]
"""Parameters by name."""

Batch = Mapping[str, Array]
"""Inputs by name; the first axis of each has one entry per instance."""

Gradients = Mapping[str, Array] | Sequence[Mapping[str, Array]]
"""What a step returns; which arrays depends on the quantity, see `harness.core.strategy.QUANTITIES`.

For `gradients`: `{name: array of shape (B, *parameter.shape)}`, or one such mapping (without the B) per instance.
"""

Step = Callable[[Batch], Gradients]
"""What a strategy builds: called with a batch, it returns the per-instance gradients."""

Losses = Callable[[Any, Parameters, Batch], Array]
"""How a workload is written: `losses(ops, parameters, batch)` -> per-instance losses, shape (B,)."""

CLIP_NORM = 1.0
"""What private training usually clips to."""

WEIGHTS_SEED = 5


def weights(size: int) -> np.ndarray[Any, Any]:
    """The weight of every instance for weighted sums of gradients, (B,): standard normal, as advantages often are."""
    return np.random.default_rng([WEIGHTS_SEED, size]).standard_normal(size)


@dataclass(frozen=True)
class Module:
    """A model that its framework knows as an object, a `torch.nn.Module`, with its loss.

    Attributes:
        model: `model()` -> the module; of a problem, a new copy that holds the problem's parameters on its device.
        inputs: `inputs(batch)` -> the positional arguments of the module's call.
        loss: `loss(output, batch)` -> per-instance losses, shape (B,).
    """

    model: Callable[[], Any]
    inputs: Callable[[Batch], tuple[Any, ...]]
    loss: Callable[[Any, Batch], Array]


@dataclass(frozen=True)
class Problem:
    """One workload bound to one framework.

    Attributes:
        parameters: the workload's parameters as the framework's own arrays, on `device`.
        batch_size: number of instances B in every batch that `step` will be called with.
        device: the framework's own device object.
        ops: the framework's operations (`harness.ops`), which the loss is written with.
        weights: a known weight for every instance, (B,), for the quantity `weighted_sum`; the same in every call.
        clip_norm: the L2 norm that each instance's gradient is clipped to, for the quantity `clipped_sum`.
        example: a batch of one instance, for strategies that look at the loss while they build.
        through_ops: whether the loss is written through `ops`, so that layer rules can read it.
        module: the model as the user's own `torch.nn.Module`, where the workload gives it.
        facts: a strategy may record plain values about itself here, such as the number of threads it uses;
            they are stored with the measurement and shown in the report.
        afterwards: facts that take time to find out, as calls that are made when the case has been measured.
    """

    parameters: Parameters
    batch_size: int
    device: Any
    ops: Any
    workload_losses: Losses
    weights: Array = None
    clip_norm: float = CLIP_NORM
    example: Batch = field(default_factory=dict)
    through_ops: bool = True
    module: Module | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    afterwards: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def losses(self, parameters: Parameters, batch: Batch, ops: Any = None) -> Array:
        """The loss of every instance of `batch`: shape (B,), not divided by B.

        `ops` replaces the framework's default operations, for strategies with layer rules of their own.
        """
        return self.workload_losses(self.ops if ops is None else ops, parameters, batch)

    def loss(self, parameters: Parameters, instance: Batch) -> Array:
        """The loss of one instance, a scalar; `instance` is a batch without its first axis."""
        batch = {name: self.ops.expand_dims(value, 0) for name, value in instance.items()}
        return self.ops.squeeze(self.losses(parameters, batch), 0)


@dataclass(frozen=True)
class GraphProblem(Problem):
    """A problem of framework `tf1`: a graph, which is the default one while a strategy builds.

    `parameters` are variables of that graph; the batches that `step` receives are NumPy arrays to be fed.
    """

    graph: Any = None
    config: Any = None
    specification: Mapping[str, tuple[Any, tuple[int, ...]]] = field(default_factory=dict)
    """Dtype and shape of one instance of each input."""

    def placeholders(self, batch_size: int) -> dict[str, Array]:
        """Placeholders for a batch of `batch_size` instances, by name."""
        import tensorflow.compat.v1 as tf

        return {
            name: tf.placeholder(dtype, (batch_size, *shape)) for name, (dtype, shape) in self.specification.items()
        }

    def feed(self, placeholders: Mapping[str, Array], batch: Batch) -> dict[Array, Array]:
        """The `feed_dict` that gives `placeholders` the values of `batch`."""
        return {placeholder: batch[name] for name, placeholder in placeholders.items()}

    def feeds(self, placeholders: Mapping[str, Array], batch: Batch) -> Iterator[dict[Array, Array]]:
        """One `feed_dict` per instance of `batch`, for placeholders of batch size 1."""
        for i in range(self.batch_size):
            yield {placeholder: batch[name][i : i + 1] for name, placeholder in placeholders.items()}

    def session(self, computed: Any = None, placeholders: Mapping[str, Array] | None = None) -> Any:
        """A session with initialised variables. The graph is complete from here on.

        If the tensors that are going to be fetched are given, and what they are fed with, the time of computing them
        and fetching only the first is recorded as the fact `seconds_without_fetch`, after the case has been measured.
        """
        import tensorflow.compat.v1 as tf

        initialise = tf.global_variables_initializer()
        # One output of an operation that needs all inputs; a group of tensors that nobody fetches is not computed.
        outputs = tf.nest.flatten(computed) if computed is not None else []
        one = tf.identity_n(outputs)[0] if outputs else None
        self.graph.finalize()  # nodes added between runs would slow every later run; now they raise
        self.facts["graph_operations"] = len(self.graph.get_operations())
        session = tf.Session(graph=self.graph, config=self.config)
        session.run(initialise)
        if one is not None:
            batch = {name: value.repeat(self.batch_size, 0) for name, value in self.example.items()}
            feed = self.feed(placeholders or {}, batch)
            self.afterwards["seconds_without_fetch"] = lambda: _shortest(lambda: session.run(one, feed))
        return session


def _shortest(call: Callable[[], Any], calls: int = 4) -> float:
    """The time of the fastest of a few calls, in seconds."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)
