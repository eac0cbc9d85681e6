"""A loss that subtracts the mean over the batch, as batch normalisation does: its instances are coupled."""

from __future__ import annotations

from typing import Any

import numpy as np


def losses(ops: Any, parameters: Any, batch: Any) -> Any:
    """Squares of what is left after the batch's mean was subtracted."""
    output = ops.squeeze(ops.dense(batch["x"], parameters["weight"], parameters["bias"]), -1)
    centred = output - ops.mean(output, 0)
    return centred * centred


def parameters(rng: np.random.Generator) -> dict[str, Any]:
    """A dense layer."""
    return {"weight": rng.standard_normal((3, 1)), "bias": np.zeros(1)}


def batch(rng: np.random.Generator, size: int) -> dict[str, Any]:
    """Normal draws."""
    return {"x": rng.standard_normal((size, 3))}
