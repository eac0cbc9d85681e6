"""DP-SGD in JAX with `pergrad.jax`: the sum of clipped gradients at about the price of one gradient.

`python dp_sgd_jax.py` trains a small network, and checks the clipped sum against a loop over the instances first.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from blobs import CLASSES, WIDTH, batches, blobs

from pergrad.jax import per_instance

Parameters = dict[str, jax.Array]
CLIP_NORM, NOISE, RATE, BATCH, HIDDEN, EPOCHS = 1.0, 1.0, 0.5, 256, 256, 5


def logits(parameters: Parameters, x: jax.Array) -> jax.Array:
    """Scores of the classes for one point, (10,)."""
    hidden = jax.nn.relu(x @ parameters["hidden"] + parameters["bias"])
    return hidden @ parameters["out"]


def loss(parameters: Parameters, instance: dict[str, jax.Array]) -> jax.Array:
    """Cross-entropy of one instance."""
    return -jax.nn.log_softmax(logits(parameters, instance["x"]))[instance["y"]]


clipped_sum = per_instance(loss, "clipped_sum", clip_norm=CLIP_NORM)


@jax.jit
def update(parameters: Parameters, batch: dict[str, jax.Array], key: jax.Array) -> Parameters:
    """One step: the clipped sum, noise, and the average by the batch size."""
    total = clipped_sum(parameters, batch)
    keys = dict(zip(sorted(total), jax.random.split(key, len(total)), strict=True))
    noisy = {name: total[name] + NOISE * CLIP_NORM * jax.random.normal(keys[name], total[name].shape) for name in total}
    return {name: parameters[name] - RATE / BATCH * noisy[name] for name in total}


def by_a_loop(parameters: Parameters, batch: dict[str, jax.Array]) -> Parameters:
    """The clipped sum, one instance after another."""
    total = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    gradient = jax.jit(jax.grad(loss))
    for i in range(len(batch["y"])):
        one = gradient(parameters, {name: value[i] for name, value in batch.items()})
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in one.values()))
        total = {name: total[name] + one[name] * jnp.minimum(1.0, CLIP_NORM / norm) for name in total}
    return total


def main() -> None:
    """Check, train, and tell."""
    rng = np.random.default_rng(1)
    points, labels = blobs(1, 8192)
    parameters: Parameters = {
        "hidden": jnp.asarray(rng.normal(size=(WIDTH, HIDDEN)) / WIDTH**0.5, jnp.float32),
        "bias": jnp.zeros(HIDDEN),
        "out": jnp.asarray(rng.normal(size=(HIDDEN, CLASSES)) / HIDDEN**0.5, jnp.float32),
    }
    batch: dict[str, Any] = {"x": jnp.asarray(points[:64]), "y": jnp.asarray(labels[:64])}
    found, expected = clipped_sum(parameters, batch), by_a_loop(parameters, batch)
    error = max(float(jnp.abs(found[n] - expected[n]).max() / jnp.abs(expected[n]).max()) for n in expected)
    print(f"clipped sum against a loop: largest difference {error:.1e} of the largest entry")
    assert error < 1e-4

    key = jax.random.key(0)
    test_points, test_labels = blobs(2, 2048)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        for x, y in batches(rng, points, labels, BATCH):
            key, one = jax.random.split(key)
            parameters = update(parameters, {"x": jnp.asarray(x), "y": jnp.asarray(y)}, one)
        jax.block_until_ready(parameters)
        seconds = time.perf_counter() - started
        chosen = jax.vmap(logits, in_axes=(None, 0))(parameters, jnp.asarray(test_points)).argmax(1)
        right = float((np.asarray(chosen) == test_labels).mean())
        print(f"epoch {epoch + 1}: {seconds:.3f} s{' (compiles)' if epoch == 0 else ''}, {right:.1%} right")


if __name__ == "__main__":
    main()
