"""The built-in workloads in plain TensorFlow, for graphs of either version: `tf.nn`, images as NHWC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

Values = Mapping[str, Any]


def dense_gradients(gradients: Values) -> dict[str, Any]:
    """That of a lookup is a list of rows, `IndexedSlices`; what is compared is a gradient of the table's shape."""
    return {name: tf.convert_to_tensor(value) for name, value in gradients.items()}


def policy(p: Values, batch: Values) -> Any:
    hidden = tf.nn.elu(linear(p, "hidden1", batch["observation"]))
    hidden = tf.nn.elu(linear(p, "hidden2", hidden))
    logit = tf.squeeze(linear(p, "logit", hidden), -1)
    y = tf.cast(batch["uniform"] < tf.sigmoid(logit), tf.float32)
    return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logit))


def mlp(p: Values, batch: Values) -> Any:
    hidden = tf.nn.relu(linear(p, "hidden1", batch["image"]))
    hidden = tf.nn.relu(linear(p, "hidden2", hidden))
    return cross_entropy(linear(p, "logits", hidden), batch["label"])


def cnn(p: Values, batch: Values) -> Any:
    x = tf.nn.relu(convolution(p, "conv1", batch["image"], 2, "SAME"))  # 3 pixels on each side
    x = tf.nn.max_pool2d(x, 2, 1, "VALID")
    x = tf.nn.relu(convolution(p, "conv2", x, 2, "VALID"))
    x = tf.nn.max_pool2d(x, 2, 1, "VALID")
    x = tf.nn.relu(linear(p, "hidden", tf.reshape(x, (-1, 512))))
    return cross_entropy(linear(p, "logits", x), batch["label"])


def cifar_cnn(p: Values, batch: Values) -> Any:
    x = batch["image"]
    for layer in (1, 2, 3, 4, 5, 6, 7):
        x = tf.nn.relu(convolution(p, f"conv{layer}", x, 1, "SAME"))
        if layer in (2, 4, 6):
            x = tf.nn.avg_pool2d(x, 2, 2, "VALID")
    return cross_entropy(tf.reduce_mean(convolution(p, "conv8", x, 1, "SAME"), (1, 2)), batch["label"])


def functorch_cnn(p: Values, batch: Values) -> Any:
    x = tf.nn.relu(convolution(p, "conv1", batch["image"], 1, "VALID"))
    x = tf.nn.relu(convolution(p, "conv2", x, 1, "VALID"))
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.nn.relu(linear(p, "hidden", tf.reshape(x, (-1, 9216))))
    return cross_entropy(linear(p, "logits", x), batch["label"])


def embedding(p: Values, batch: Values) -> Any:
    mask = batch["mask"]
    vectors = tf.nn.embedding_lookup(p["embedding.table"], batch["tokens"])
    text = tf.reduce_sum(vectors * mask[:, :, None], 1) / tf.reduce_sum(mask, 1, keepdims=True)
    return cross_entropy(linear(p, "logits", text), batch["label"])


def lstm(p: Values, batch: Values) -> Any:
    vectors = tf.nn.embedding_lookup(p["embedding.table"], batch["tokens"])
    projected = tf.tensordot(vectors, p["lstm.input_weight"], 1) + p["lstm.bias"]
    h = c = tf.zeros((projected.shape[0], 100))
    states = []
    for step in tf.unstack(projected, axis=1):
        i, f, g, o = tf.split(step + tf.matmul(h, p["lstm.hidden_weight"]), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        states.append(h)
    return cross_entropy(linear(p, "logits", tf.reduce_mean(tf.stack(states, 1), 1)), batch["label"])


def transformer(p: Values, batch: Values) -> Any:
    x = tf.nn.embedding_lookup(p["embedding.table"], batch["tokens"]) + p["position.table"]
    x = x + projection(p, "mixed", attention(p, layer_norm(p, "norm1", x)))
    hidden = tf.nn.gelu(projection(p, "hidden", layer_norm(p, "norm2", x)), approximate=True)
    x = x + projection(p, "output", hidden)
    rows = tf.reshape(layer_norm(p, "norm3", x), (-1, 64))
    logits = tf.matmul(rows, p["embedding.table"], transpose_b=True)
    return cross_entropy(logits, tf.reshape(batch["next"], (-1,))) / 32


def attention(p: Values, x: Any) -> Any:
    q, k, v = (
        tf.transpose(tf.reshape(projection(p, name, x), (-1, 32, 4, 16)), (0, 2, 1, 3))
        for name in ("query", "key", "value")
    )
    scores = tf.matmul(q, k, transpose_b=True) * 0.25
    past = tf.linalg.band_part(tf.ones((32, 32), tf.bool), -1, 0)
    mixed = tf.matmul(tf.nn.softmax(tf.where(past, scores, float("-inf"))), v)
    return tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, 32, 64))


def linear(p: Values, name: str, x: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, p[f"{name}.weight"]), p[f"{name}.bias"])


def projection(p: Values, name: str, x: Any) -> Any:
    """`linear` for every token of every text."""
    return tf.nn.bias_add(tf.tensordot(x, p[f"{name}.weight"], 1), p[f"{name}.bias"])


def convolution(p: Values, name: str, x: Any, stride: int, padding: str) -> Any:
    return tf.nn.bias_add(tf.nn.conv2d(x, p[f"{name}.weight"], stride, padding), p[f"{name}.bias"])


def layer_norm(p: Values, name: str, x: Any) -> Any:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, p[f"{name}.offset"], p[f"{name}.scale"], 1e-5)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


NETWORKS: dict[str, Callable[[Values, Values], Any]] = {
    "policy": policy,
    "mlp": mlp,
    "cnn": cnn,
    "cifar-cnn": cifar_cnn,
    "functorch-cnn": functorch_cnn,
    "embedding": embedding,
    "lstm": lstm,
    "transformer": transformer,
}
