"""The built-in workloads in plain JAX: `jax.numpy`, `jax.nn` and `jax.lax`, images as NHWC, parameters in a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from harness import Problem
from tests.accuracy import Calls

Values = dict[str, Any]


def calls(workload: str, problem: Problem, batch: Values) -> Calls:
    """Both as compiled `jax.value_and_grad`."""
    through_ops = jax.jit(jax.value_and_grad(lambda p, batch: problem.losses(p, batch).sum()))
    by_hand = jax.jit(jax.value_and_grad(NETWORKS[workload]))
    return (
        lambda: jax.block_until_ready(through_ops(problem.parameters, batch)),
        lambda: jax.block_until_ready(by_hand(problem.parameters, batch)),
    )


def policy(p: Values, batch: Values) -> Any:
    hidden = jax.nn.elu(linear(p, "hidden1", batch["observation"]))
    hidden = jax.nn.elu(linear(p, "hidden2", hidden))
    logit = linear(p, "logit", hidden)[:, 0]
    y = (batch["uniform"] < jax.nn.sigmoid(logit)).astype(logit.dtype)
    return jnp.sum(jax.nn.softplus(logit) - y * logit)


def mlp(p: Values, batch: Values) -> Any:
    hidden = jax.nn.relu(linear(p, "hidden1", batch["image"]))
    hidden = jax.nn.relu(linear(p, "hidden2", hidden))
    return cross_entropy(linear(p, "logits", hidden), batch["label"])


def cnn(p: Values, batch: Values) -> Any:
    x = jax.nn.relu(convolution(p, "conv1", batch["image"], 2, [(3, 3), (3, 3)]))
    x = max_pool(x, 1)
    x = jax.nn.relu(convolution(p, "conv2", x, 2, "VALID"))
    x = max_pool(x, 1).reshape(len(x), -1)
    x = jax.nn.relu(linear(p, "hidden", x))
    return cross_entropy(linear(p, "logits", x), batch["label"])


def cifar_cnn(p: Values, batch: Values) -> Any:
    x = batch["image"]
    for layer in (1, 2, 3, 4, 5, 6, 7):
        x = jax.nn.relu(convolution(p, f"conv{layer}", x, 1, "SAME"))
        if layer in (2, 4, 6):
            x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return cross_entropy(convolution(p, "conv8", x, 1, "SAME").mean((1, 2)), batch["label"])


def functorch_cnn(p: Values, batch: Values) -> Any:
    x = jax.nn.relu(convolution(p, "conv1", batch["image"], 1, "VALID"))
    x = jax.nn.relu(convolution(p, "conv2", x, 1, "VALID"))
    x = max_pool(x, 2).reshape(len(x), -1)
    x = jax.nn.relu(linear(p, "hidden", x))
    return cross_entropy(linear(p, "logits", x), batch["label"])


def embedding(p: Values, batch: Values) -> Any:
    mask = batch["mask"]
    vectors = p["embedding.table"][batch["tokens"]]
    text = (vectors * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    return cross_entropy(linear(p, "logits", text), batch["label"])


def lstm(p: Values, batch: Values) -> Any:
    def cell(state: Any, projected: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(projected + h @ p["lstm.hidden_weight"], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    vectors = p["embedding.table"][batch["tokens"].T]  # time first, as `lax.scan` wants it
    zeros = jnp.zeros((vectors.shape[1], p["lstm.hidden_weight"].shape[0]))
    _, states = lax.scan(cell, (zeros, zeros), vectors @ p["lstm.input_weight"] + p["lstm.bias"])
    return cross_entropy(linear(p, "logits", states.mean(0)), batch["label"])


def transformer(p: Values, batch: Values) -> Any:
    x = p["embedding.table"][batch["tokens"]] + p["position.table"]
    normed = layer_norm(p, "norm1", x)
    q, k, v = (linear(p, name, normed).reshape(*x.shape[:2], 4, -1) for name in ("query", "key", "value"))
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(p, "mixed", mixed.reshape(x.shape))
    hidden = jax.nn.gelu(linear(p, "hidden", layer_norm(p, "norm2", x)), approximate=True)
    x = x + linear(p, "output", hidden)
    logits = layer_norm(p, "norm3", x) @ p["embedding.table"].T
    return cross_entropy(logits, batch["next"]) / x.shape[1]


def linear(p: Values, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def convolution(p: Values, name: str, x: Any, stride: int, padding: Any) -> Any:
    orders = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, p[f"{name}.weight"], (stride, stride), padding, dimension_numbers=orders)
    return y + p[f"{name}.bias"]


def max_pool(x: Any, stride: int) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, stride, stride, 1), "VALID")


def layer_norm(p: Values, name: str, x: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p[f"{name}.scale"] + p[f"{name}.offset"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1).sum()


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
