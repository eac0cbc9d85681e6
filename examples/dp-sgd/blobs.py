"""The data of the two training examples: ten classes of points, each around a centre of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CLASSES, WIDTH = 10, 64


def blobs(seed: int, size: int) -> tuple[Array, Array]:
    """Points (size, 64), float32, and their classes (size,), int64; the centres are the same for every seed."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, WIDTH))
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=size)
    return (centres[labels] + 2 * rng.normal(size=(size, WIDTH))).astype(np.float32), labels


def batches(rng: np.random.Generator, points: Array, labels: Array, size: int) -> Iterator[tuple[Array, Array]]:
    """One epoch of batches of `size`, in a random order. For a privacy proof, draw every batch by itself (Poisson)."""
    order = rng.permutation(len(points))
    for start in range(0, len(points) - size + 1, size):
        chosen = order[start : start + size]
        yield points[chosen], labels[chosen]
