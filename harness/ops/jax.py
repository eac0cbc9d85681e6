"""The operations of `jax.numpy`, `jax.nn` and `jax.lax`."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

expand_dims = jnp.expand_dims
squeeze = jnp.squeeze
reshape = jnp.reshape
transpose = jnp.transpose
concatenate = jnp.concatenate
stack = jnp.stack
split = jnp.split
matmul = jnp.matmul
sum = jnp.sum
mean = jnp.mean
max = jnp.max
argmax = jnp.argmax
maximum = jnp.maximum
relu = jax.nn.relu
elu = jax.nn.elu
sigmoid = jax.nn.sigmoid
tanh = jnp.tanh
exp = jnp.exp
log = jnp.log
sqrt = jnp.sqrt
abs = jnp.abs
softmax = jax.nn.softmax
log_softmax = jax.nn.log_softmax
stop_gradient = lax.stop_gradient

IMAGES = ("NHWC", "HWIO", "NHWC")


def dense(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight + bias


def conv2d(x: Any, kernel: Any, bias: Any, stride: int, padding: int) -> Any:
    sides = ((padding, padding), (padding, padding))
    return lax.conv_general_dilated(x, kernel, (stride, stride), sides, dimension_numbers=IMAGES) + bias


def max_pool(x: Any, size: int, stride: int) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "VALID")


def average_pool(x: Any, size: int, stride: int) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, size, size, 1), (1, stride, stride, 1), "VALID") / (size * size)


def flatten(x: Any) -> Any:
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def embedding(ids: Any, table: Any) -> Any:
    return table[ids]


def layer_norm(x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon) * scale + offset


def attention(query: Any, key: Any, value: Any, heads: int, causal: bool) -> Any:
    # jax.nn.dot_product_attention is this too, but computes in float32 at most.
    q, k, v = (x.reshape(*x.shape[:2], heads, x.shape[2] // heads) for x in (query, key, value))
    scores = jnp.einsum("bthd,bshd->bhts", q * (query.shape[2] // heads) ** -0.5, k)
    if causal:
        scores = jnp.where(jnp.tri(scores.shape[-1], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", softmax(scores, -1), v).reshape(query.shape)


def lstm(x: Any, input_weight: Any, hidden_weight: Any, bias: Any) -> Any:
    def cell(carry: Any, projected: Any) -> Any:
        hidden, memory = carry
        i, f, g, o = jnp.split(projected + hidden @ hidden_weight, 4, axis=-1)
        memory = sigmoid(f) * memory + sigmoid(i) * tanh(g)
        hidden = sigmoid(o) * tanh(memory)
        return (hidden, memory), hidden

    start = jnp.zeros((x.shape[0], hidden_weight.shape[0]), x.dtype)
    _, outputs = lax.scan(cell, (start, start), jnp.swapaxes(x @ input_weight + bias, 0, 1))
    return jnp.swapaxes(outputs, 0, 1)


def dropout(x: Any, mask: Any, rate: float) -> Any:
    return x * mask / (1 - rate)


def masked_mean(x: Any, mask: Any) -> Any:
    return (x * mask[..., None]).sum(1) / jnp.maximum(mask.sum(1, keepdims=True), 1)


def softmax_cross_entropy(labels: Any, logits: Any) -> Any:
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    return jax.nn.softplus(logits) - labels * logits


def gelu(x: Any, form: str) -> Any:
    return jax.nn.gelu(x, approximate={"exact": False, "tanh": True}[form])


def less(a: Any, b: Any) -> Any:
    return (a < b).astype(a.dtype)


def where(condition: Any, a: Any, b: Any) -> Any:
    return jnp.where(condition != 0, a, b)
