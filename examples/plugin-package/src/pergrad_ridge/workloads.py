"""A linear model with squared loss, written through `ops`, so that every framework can run it."""

from typing import Any

import numpy as np

from harness import Array, Batch, Parameters, workload


def parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """`weight` (20, 1) and `bias` (1,); gradients are taken at these values."""
    return {"weight": rng.standard_normal((20, 1)), "bias": rng.standard_normal(1)}


def batch(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """`x` (size, 20) and `y` (size,)."""
    return {"x": rng.standard_normal((size, 20)), "y": rng.standard_normal(size)}


@workload(parameters=parameters, batch=batch, interface=1)
def ridge(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Linear regression of 20 features: squared loss of every instance, (B,)."""
    predicted = ops.squeeze(ops.dense(batch["x"], parameters["weight"], parameters["bias"]), 1)
    return (predicted - batch["y"]) ** 2
