"""The built-in workloads in TensorFlow 1: placeholders, `tf.gradients` and a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from harness.core.problem import GraphProblem
from tests.accuracy import Calls
from tests.accuracy.by_hand_tensorflow import NETWORKS, dense_gradients


def calls(workload: str, problem: GraphProblem, batch: Mapping[str, Any]) -> Calls:
    """Both as a fetch from one graph, which holds the parameters once."""
    with problem.graph.as_default():
        placeholders = problem.placeholders(problem.batch_size)
        loss = tf.reduce_sum(problem.losses(problem.parameters, placeholders))
        through_ops = (loss, gradients(loss, problem.parameters))
        loss = NETWORKS[workload](problem.parameters, placeholders)
        by_hand = (loss, gradients(loss, problem.parameters))
        session = problem.session()
    feed = problem.feed(placeholders, batch)
    return lambda: session.run(through_ops, feed), lambda: session.run(by_hand, feed)


def gradients(loss: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those with respect to every parameter, by name."""
    found = tf.gradients(loss, list(parameters.values()))
    return dense_gradients(dict(zip(parameters, found, strict=True)))
