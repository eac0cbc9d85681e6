"""A dense classifier of 28 x 28 digits: 784-256-256-10 with ReLU, softmax cross-entropy (269,322 parameters).

The images are scikit-learn's handwritten digits, enlarged to 28 x 28 (`_record_digits.py`), pixels in [0, 1].
Weights and biases are drawn uniformly from +-1/sqrt(inputs), which is PyTorch's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.core import synthetic
from harness.core.problem import Array, Batch, Parameters

WIDTHS = (784, 256, 256, 10)
SMALL = (784, 6, 5, 10)


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Softmax cross-entropy of the digit, shape (B,)."""
    p = parameters
    hidden = ops.relu(ops.dense(batch["image"], p["hidden1.weight"], p["hidden1.bias"]))
    hidden = ops.relu(ops.dense(hidden, p["hidden2.weight"], p["hidden2.bias"]))
    return ops.softmax_cross_entropy(batch["label"], ops.dense(hidden, p["logits.weight"], p["logits.bias"]))


def parameters(rng: np.random.Generator, widths: Sequence[int] = WIDTHS) -> dict[str, np.ndarray[Any, Any]]:
    """Weights of shape (inputs, outputs) and biases."""
    layers = zip(("hidden1", "hidden2", "logits"), widths[:-1], widths[1:], strict=True)
    return synthetic.layers(rng, {name: (inputs, outputs) for name, inputs, outputs in layers})


def batch(rng: np.random.Generator, size: int, widths: Sequence[int] = WIDTHS) -> dict[str, np.ndarray[Any, Any]]:
    """`image` (B, 784) and `label` (B,), integers from 0 to 9."""
    image, label = synthetic.digits(rng, size)
    return {"image": image.reshape(size, 28 * 28), "label": label}
