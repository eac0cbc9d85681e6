"""The CNN of PyTorch's per-sample-gradients tutorial: conv 32, conv 64, dense 128 (1,199,882 parameters).

conv(1, 32, 3 x 3)-ReLU-conv(32, 64, 3 x 3)-ReLU-max pool(2)-dense(9216, 128)-ReLU-dense(128, 10), softmax
cross-entropy: the network whose per-instance gradients functorch's notebook `per_sample_grads` measures, without
its dropout. 98 % of the parameters are in one dense layer. The images are scikit-learn's handwritten digits,
enlarged to 28 x 28 (`_record_digits.py`), pixels in [0, 1]. Weights and biases are drawn uniformly from
+-1/sqrt(inputs), which is PyTorch's default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.core import synthetic
from harness.core.layouts import IMAGE, KERNEL, Layout, flattened_image
from harness.core.problem import Array, Batch, Parameters

WIDTHS = (32, 64, 128)
SMALL = (2, 3, 4)


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Softmax cross-entropy of the digit, shape (B,)."""
    p = parameters
    x = ops.relu(ops.conv2d(batch["image"], p["conv1.weight"], p["conv1.bias"], stride=1, padding=0))  # 26 x 26
    x = ops.relu(ops.conv2d(x, p["conv2.weight"], p["conv2.bias"], stride=1, padding=0))  # 24 x 24
    x = ops.max_pool(x, size=2, stride=2)  # 12 x 12
    x = ops.relu(ops.dense(ops.flatten(x), p["hidden.weight"], p["hidden.bias"]))
    return ops.softmax_cross_entropy(batch["label"], ops.dense(x, p["logits.weight"], p["logits.bias"]))


def parameters(rng: np.random.Generator, widths: Sequence[int] = WIDTHS) -> dict[str, np.ndarray[Any, Any]]:
    """Kernels (height, width, inputs, outputs), weights (inputs, outputs), biases."""
    first, second, hidden = widths
    return synthetic.layers(
        rng,
        {
            "conv1": (3, 3, 1, first),
            "conv2": (3, 3, first, second),
            "hidden": (12 * 12 * second, hidden),
            "logits": (hidden, 10),
        },
    )


def batch(rng: np.random.Generator, size: int, widths: Sequence[int] = WIDTHS) -> dict[str, np.ndarray[Any, Any]]:
    """`image` (B, 28, 28, 1) and `label` (B,), integers from 0 to 9."""
    image, label = synthetic.digits(rng, size)
    return {"image": image, "label": label}


def layouts(widths: Sequence[int] = WIDTHS) -> dict[str, Layout]:
    """The images, the kernels, and the layer that follows a flattened image."""
    return {
        "image": IMAGE,
        "conv1.weight": KERNEL,
        "conv2.weight": KERNEL,
        "hidden.weight": flattened_image(widths[1]),
    }
