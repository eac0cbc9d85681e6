"""Convert the order of array axes: one canonical layout, and the order in which PyTorch wants some of them.

Workloads are written in NumPy with images as (B, height, width, channels), convolution kernels as (height, width,
inputs, outputs), dense weights as (inputs, outputs). TensorFlow, JAX and the NumPy reference use exactly that.
PyTorch keeps channels first and some matrices transposed; its adapter converts when it places parameters and
batches, and converts gradients back when they are fetched, both outside the clock. No loss ever transposes.

A workload names the layout of those arrays that have one::

    def layouts():
        return {"image": IMAGE, "conv1.weight": KERNEL, "dense1.weight": flattened_image(channels=32)}
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """An order of the last axes of an array; axes before them (the instances) stay where they are.

    Attributes:
        axes: the order in which PyTorch has the canonical axes.
        channels: if given, the first canonical axis is a flattened image, and is taken as (pixels, channels)
            before the axes are ordered.
    """

    axes: tuple[int, ...]
    channels: int | None = None

    def reorder(self, array: Array) -> Array:
        """The canonical array in PyTorch's order, with the same values; a view where that is possible."""
        return _reorder(array, self.axes, None if self.channels is None else (-1, self.channels))

    def restore(self, array: Array) -> Array:
        """The inverse of `reorder`."""
        inverse = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
        return _reorder(array, inverse, None if self.channels is None else (self.channels, -1))


IMAGE = Layout((2, 0, 1))
"""(height, width, channels) -> (channels, height, width)."""

KERNEL = Layout((3, 2, 0, 1))
"""(height, width, inputs, outputs) -> (outputs, inputs, height, width)."""

TRANSPOSED = Layout((1, 0))
"""(inputs, outputs) -> (outputs, inputs), for the matrices of PyTorch's fused LSTM."""


def flattened_image(channels: int) -> Layout:
    """The weight (inputs, outputs) of a dense layer whose inputs are a flattened image of that many channels."""
    return Layout((1, 0, 2), channels)


def _reorder(array: Array, axes: tuple[int, ...], unfolded: tuple[int, int] | None) -> Array:
    """Order the last axes of `array`; `unfolded` splits the first of them into two, joined again afterwards."""
    rank = len(axes) - (1 if unfolded else 0)
    leading, own = array.shape[: array.ndim - rank], array.shape[array.ndim - rank :]
    if unfolded:
        sizes = tuple(own[0] // -math.prod(unfolded) if size == -1 else size for size in unfolded)
        array = array.reshape(*leading, *sizes, *own[1:])
    moved = np.transpose(array, (*range(len(leading)), *(len(leading) + axis for axis in axes)))
    return moved.reshape(*leading, *own) if unfolded else moved
