"""The operations of `tf` and `tf.nn`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

expand_dims = tf.expand_dims
squeeze = tf.squeeze
elu = tf.nn.elu
sigmoid = tf.sigmoid


def dense(x: Any, weight: Any, bias: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, weight), bias)


def less(a: Any, b: Any) -> Any:
    return tf.cast(a < b, a.dtype)


def sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
