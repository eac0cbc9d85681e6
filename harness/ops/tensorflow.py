"""The operations of `tf` and `tf.nn`."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

expand_dims = tf.expand_dims
squeeze = tf.squeeze
reshape = tf.reshape
transpose = tf.transpose
concatenate = tf.concat
stack = tf.stack
split = tf.split
sum = tf.reduce_sum
mean = tf.reduce_mean
max = tf.reduce_max
argmax = tf.argmax
maximum = tf.maximum
relu = tf.nn.relu
elu = tf.nn.elu
sigmoid = tf.sigmoid
tanh = tf.tanh
exp = tf.exp
log = tf.math.log
sqrt = tf.sqrt
abs = tf.abs
softmax = tf.nn.softmax
log_softmax = tf.nn.log_softmax
stop_gradient = tf.stop_gradient


def dense(x: Any, weight: Any, bias: Any) -> Any:
    return tf.nn.bias_add(matmul(x, weight), bias)


def conv2d(x: Any, kernel: Any, bias: Any, stride: int, padding: int) -> Any:
    # tf.vectorized_map and tape.jacobian lose padding that is given in numbers, so it is given by name or applied.
    if padding and not _is_same(x, kernel, stride, padding):
        x, padding = tf.pad(x, [[0, 0], [padding, padding], [padding, padding], [0, 0]]), 0
    return tf.nn.bias_add(tf.nn.conv2d(x, kernel, stride, "SAME" if padding else "VALID"), bias)


def max_pool(x: Any, size: int, stride: int) -> Any:
    return tf.nn.max_pool2d(x, size, stride, "VALID")


def average_pool(x: Any, size: int, stride: int) -> Any:
    return tf.nn.avg_pool2d(x, size, stride, "VALID")


def flatten(x: Any) -> Any:
    return tf.reshape(x, (-1, x.shape[1:].num_elements()))


def embedding(ids: Any, table: Any) -> Any:
    # The gradient of a reshape is a dense tensor; that of a gather alone is a list of rows, `IndexedSlices`.
    return tf.gather(tf.reshape(table, table.shape), ids)


def layer_norm(x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)


def attention(query: Any, key: Any, value: Any, heads: int, causal: bool) -> Any:
    length, width = query.shape[1:].as_list()
    split = (-1, length, heads, width // heads)
    q, k, v = (tf.transpose(tf.reshape(x, split), (0, 2, 1, 3)) for x in (query, key, value))
    scores = tf.matmul(q * (width // heads) ** -0.5, k, transpose_b=True)
    if causal:
        past = tf.linalg.band_part(tf.ones((length, length), tf.bool), -1, 0)
        scores = tf.where(past, scores, tf.constant(float("-inf"), scores.dtype))
    mixed = tf.matmul(tf.nn.softmax(scores), v)
    return tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, length, width))


def lstm(x: Any, input_weight: Any, hidden_weight: Any, bias: Any) -> Any:
    hidden = memory = tf.zeros((int(x.shape[0]), int(hidden_weight.shape[0])), x.dtype)
    outputs = []
    for projected in tf.unstack(dense(x, input_weight, bias), axis=1):
        i, f, g, o = tf.split(projected + tf.matmul(hidden, hidden_weight), 4, axis=-1)
        memory = tf.sigmoid(f) * memory + tf.sigmoid(i) * tf.tanh(g)
        hidden = tf.sigmoid(o) * tf.tanh(memory)
        outputs.append(hidden)
    return tf.stack(outputs, axis=1)


def matmul(a: Any, b: Any) -> Any:
    # A batched product with one matrix would repeat the matrix and sum its gradients; in tf.vectorized_map of
    # TensorFlow 2.21 it writes outside its memory (segmentation faults, wrong rows). tensordot folds the batch.
    return tf.tensordot(a, b, 1) if len(a.shape) > len(b.shape) == 2 else tf.matmul(a, b)


def dropout(x: Any, mask: Any, rate: float) -> Any:
    return x * mask / (1 - rate)


def masked_mean(x: Any, mask: Any) -> Any:
    count = tf.reduce_sum(mask, 1, keepdims=True)
    return tf.reduce_sum(x * tf.expand_dims(mask, -1), 1) / tf.maximum(count, 1)


def softmax_cross_entropy(labels: Any, logits: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)


def gelu(x: Any, form: str) -> Any:
    # tf.nn.gelu is this too, but rounds its constants to float32.
    if form == "exact":
        return 0.5 * x * (1 + tf.math.erf(x * 0.5**0.5))
    if form == "tanh":
        return 0.5 * x * (1 + tf.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    raise ValueError(f"gelu has the forms 'exact' and 'tanh', not {form!r}")


def less(a: Any, b: Any) -> Any:
    return tf.cast(a < b, a.dtype)


def where(condition: Any, a: Any, b: Any) -> Any:
    return tf.where(tf.cast(condition, tf.bool), a, b)  # in TF1, `condition != 0` compares objects


def _is_same(x: Any, kernel: Any, stride: int, padding: int) -> bool:
    """Whether the padding called SAME, which depends on the image, is this many pixels on all sides."""
    sides = zip(x.shape[1:3].as_list(), kernel.shape[:2].as_list(), strict=True)
    return all((-(-side // stride) - 1) * stride + size - side == 2 * padding for side, size in sides)
