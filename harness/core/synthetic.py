"""Initialise layers as PyTorch does, and draw synthetic batches: handwritten digits, words, texts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

DIGITS = Path(__file__).parents[1] / "workloads" / "data" / "digits.npy"
ENLARGED, MARGIN = 20, 4
"""A digit of 8 x 8 pixels becomes one of 20 x 20 within a margin of 4, as in MNIST: 28 x 28."""


def layers(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """`{layer}.weight` and `{layer}.bias` for every layer, uniform in +-1/sqrt(inputs), PyTorch's default.

    A shape is that of the weight, canonical: (inputs, outputs), or (height, width, inputs, outputs) of a kernel.
    """
    values = {}
    for name, shape in shapes.items():
        bound = 1 / math.sqrt(math.prod(shape[:-1]))
        values[f"{name}.weight"] = rng.uniform(-bound, bound, shape)
        values[f"{name}.bias"] = rng.uniform(-bound, bound, shape[-1])
    return values


def digits(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    """Real digits, drawn with replacement: images (B, 28, 28, 1) in [0, 1] and their labels (B,), integers."""
    recorded = _recorded()
    chosen = recorded[rng.integers(len(recorded), size=size)]
    pixels = chosen[:, :64].reshape(size, 8, 8) / 16
    enlarged = _interpolation(8, ENLARGED) @ pixels @ _interpolation(8, ENLARGED).T
    images = np.pad(enlarged, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    return images[..., None], chosen[:, 64].astype(np.int64)


def words(rng: np.random.Generator, shape: tuple[int, ...], vocabulary: int) -> Array:
    """Integers from 1 to vocabulary - 1 whose frequencies fall as 1/rank (Zipf); 0 is left for padding."""
    frequencies = 1 / np.arange(1, vocabulary)
    return 1 + rng.choice(vocabulary - 1, shape, p=frequencies / frequencies.sum()).astype(np.int64)


def texts(rng: np.random.Generator, size: int, length: int, vocabulary: int) -> tuple[Array, Array]:
    """Words (B, length), each text a quarter to the whole of that length and padded with 0; and where it is not 0."""
    lengths = rng.integers(length // 4, length, size=(size, 1), endpoint=True)
    mask = np.arange(length) < lengths
    return np.where(mask, words(rng, (size, length), vocabulary), 0), mask.astype(np.float64)


@functools.cache
def _recorded() -> Array:
    recorded: Array = np.load(DIGITS, allow_pickle=False)
    return recorded


def _interpolation(short: int, long: int) -> Array:
    """The matrix (long, short) of linear interpolation between pixel centres, constant beyond the outermost."""
    position = np.clip((np.arange(long) + 0.5) * short / long - 0.5, 0, short - 1)
    weights: Array = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(short)))
    return weights
