"""The CIFAR-10 CNN of private training: eight 3 x 3 convolutions with average pooling (605,226 parameters).

Convolutions with padding 1 and ReLU, 3-32-32-pool-64-64-pool-128-128-pool-256-10, pools of 2 x 2, no ReLU after
the last one, whose 4 x 4 positions are averaged into ten logits; softmax cross-entropy. The architecture is that
of fast-dpsgd (arXiv 2010.09063). Images and labels are drawn, not real: pixels uniform in [0, 1), labels uniform.
Weights and biases are drawn uniformly from +-1/sqrt(inputs), which is PyTorch's default.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.core import synthetic
from harness.core.layouts import IMAGE, KERNEL, Layout
from harness.core.problem import Array, Batch, Parameters

WIDTHS = (3, 32, 32, 64, 64, 128, 128, 256, 10)
SMALL = (3, 2, 2, 3, 3, 2, 2, 3, 10)
POOLED = (2, 4, 6)
"""The convolutions that are followed by an average over 2 x 2 pixels."""


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Softmax cross-entropy of the class, shape (B,)."""
    x = batch["image"]
    for layer in range(1, 9):
        x = ops.conv2d(x, parameters[f"conv{layer}.weight"], parameters[f"conv{layer}.bias"], stride=1, padding=1)
        x = ops.relu(x) if layer < 8 else x
        x = ops.average_pool(x, size=2, stride=2) if layer in POOLED else x
    logits = ops.flatten(ops.average_pool(x, size=4, stride=4))
    return ops.softmax_cross_entropy(batch["label"], logits)


def parameters(rng: np.random.Generator, widths: Sequence[int] = WIDTHS) -> dict[str, np.ndarray[Any, Any]]:
    """Kernels (3, 3, inputs, outputs) and biases of `conv1` to `conv8`."""
    channels = enumerate(itertools.pairwise(widths), start=1)
    return synthetic.layers(rng, {f"conv{layer}": (3, 3, inputs, outputs) for layer, (inputs, outputs) in channels})


def batch(rng: np.random.Generator, size: int, widths: Sequence[int] = WIDTHS) -> dict[str, np.ndarray[Any, Any]]:
    """`image` (B, 32, 32, 3) and `label` (B,), integers from 0 to 9."""
    return {"image": rng.random((size, 32, 32, 3)), "label": rng.integers(10, size=size)}


def layouts(widths: Sequence[int] = WIDTHS) -> dict[str, Layout]:
    """The images and the kernels."""
    return {"image": IMAGE, **{f"conv{layer}.weight": KERNEL for layer in range(1, 9)}}
