"""The built-in workloads in TensorFlow 2: a `tf.GradientTape` in a `tf.function`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from harness import Problem
from tests.accuracy import Calls
from tests.accuracy.by_hand_tensorflow import NETWORKS, dense_gradients


def calls(workload: str, problem: Problem, batch: Mapping[str, Any]) -> Calls:
    """Both as a tape in a `tf.function`."""
    through_ops = compiled(lambda p, batch: tf.reduce_sum(problem.losses(p, batch)), problem.parameters)
    by_hand = compiled(NETWORKS[workload], problem.parameters)
    return lambda: through_ops(batch), lambda: by_hand(batch)


def compiled(loss: Callable[[Any, Any], Any], parameters: Any) -> Callable[[Any], tuple[Any, Any]]:
    """(loss, gradients) as a function of the batch."""

    @tf.function
    def loss_and_gradients(batch: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            value = loss(parameters, batch)
        return value, dense_gradients(tape.gradient(value, parameters))

    return loss_and_gradients  # type: ignore[no-any-return]
