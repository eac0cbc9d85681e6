"""Workload `policy` written by hand in each framework, as its users would, without `ops`.

Each function returns two calls that compute the same plain batch gradient: through `ops`, and by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.measure import Subject

Calls = tuple[Callable[[], Any], Callable[[], Any]]


def jax(subject: Subject, batch_size: int) -> Calls:
    import jax as j
    import jax.numpy as jnp

    problem, batch = subject.bind(batch_size), subject.batches(batch_size, 1)[0]

    def loss(p: Any, batch: Any) -> Any:
        hidden = j.nn.elu(batch["observation"] @ p["hidden1.weight"] + p["hidden1.bias"])
        hidden = j.nn.elu(hidden @ p["hidden2.weight"] + p["hidden2.bias"])
        logit = (hidden @ p["logit.weight"] + p["logit.bias"])[:, 0]
        y = (batch["uniform"] < j.nn.sigmoid(logit)).astype(logit.dtype)
        return jnp.sum(j.nn.softplus(logit) - y * logit)

    through_ops = j.jit(j.grad(lambda p, batch: problem.losses(p, batch).sum()))
    by_hand = j.jit(j.grad(loss))
    return (
        lambda: j.block_until_ready(through_ops(problem.parameters, batch)),
        lambda: j.block_until_ready(by_hand(problem.parameters, batch)),
    )


def torch(subject: Subject, batch_size: int) -> Calls:
    import torch as t
    import torch.nn.functional as F

    problem, batch = subject.bind(batch_size), subject.batches(batch_size, 1)[0]
    p = {name: value.requires_grad_() for name, value in problem.parameters.items()}
    values = list(p.values())
    layers = [t.nn.Linear(4, 4), t.nn.Linear(4, 4), t.nn.Linear(4, 1)]
    own = [value for layer in layers for value in layer.parameters()]

    def by_hand() -> Any:
        hidden = F.elu(layers[0](batch["observation"]))
        hidden = F.elu(layers[1](hidden))
        logit = layers[2](hidden).squeeze(-1)
        y = (batch["uniform"] < t.sigmoid(logit)).to(logit.dtype)
        return t.autograd.grad(F.binary_cross_entropy_with_logits(logit, y, reduction="sum"), own)

    return lambda: t.autograd.grad(problem.losses(p, batch).sum(), values), by_hand


def tf2(subject: Subject, batch_size: int) -> Calls:
    import tensorflow as tf

    problem, batch = subject.bind(batch_size), subject.batches(batch_size, 1)[0]
    p = problem.parameters

    @tf.function
    def through_ops(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(problem.losses(p, batch))
        return tape.gradient(loss, p)

    @tf.function
    def by_hand(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.nn.elu(tf.matmul(batch["observation"], p["hidden1.weight"]) + p["hidden1.bias"])
            hidden = tf.nn.elu(tf.matmul(hidden, p["hidden2.weight"]) + p["hidden2.bias"])
            logit = tf.squeeze(tf.matmul(hidden, p["logit.weight"]) + p["logit.bias"], -1)
            y = tf.cast(batch["uniform"] < tf.sigmoid(logit), tf.float32)
            loss = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logit))
        return tape.gradient(loss, p)

    return lambda: through_ops(batch), lambda: by_hand(batch)


def tf1(subject: Subject, batch_size: int) -> Calls:
    import tensorflow.compat.v1 as tf

    problem: Any = subject.bind(batch_size)
    values = subject.batches(batch_size, 1)[0]
    p = problem.parameters
    with problem.graph.as_default():
        batch = problem.placeholders(batch_size)
        through_ops = tf.gradients(tf.reduce_sum(problem.losses(p, batch)), list(p.values()))
        hidden = tf.nn.elu(tf.matmul(batch["observation"], p["hidden1.weight"]) + p["hidden1.bias"])
        hidden = tf.nn.elu(tf.matmul(hidden, p["hidden2.weight"]) + p["hidden2.bias"])
        logit = tf.squeeze(tf.matmul(hidden, p["logit.weight"]) + p["logit.bias"], -1)
        y = tf.cast(batch["uniform"] < tf.sigmoid(logit), tf.float32)
        loss = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logit))
        by_hand = tf.gradients(loss, list(p.values()))
        session = problem.session()
    feed = problem.feed(batch, values)
    return lambda: session.run(through_ops, feed), lambda: session.run(by_hand, feed)
