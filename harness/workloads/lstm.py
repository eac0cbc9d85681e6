"""An LSTM over 32 tokens: 100-wide embeddings of 10,004 words, 100 units, 2 classes (1,081,002 parameters).

Mean of the hidden states over time, then a dense layer, softmax cross-entropy. The network is that of fast-dpsgd
(arXiv 2010.09063) for film reviews, over 32 tokens instead of 256: on two cores the unrolled strategies could not
be measured otherwise. The columns of its matrices are ordered input, forget, cell, output gate; there is one bias
per gate (PyTorch's layer has two, whose gradients are equal), the state starts at zero. Tokens are drawn, not
real: frequencies fall as 1/rank (Zipf), no padding. Embeddings are standard normal, the rest is uniform in
+-1/sqrt(units).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core import synthetic
from harness.core.layouts import TRANSPOSED, Layout
from harness.core.problem import Array, Batch, Parameters

SIZES = {"vocabulary": 10_004, "width": 100, "units": 100, "tokens": 32}
SMALL = {"vocabulary": 12, "width": 3, "units": 4, "tokens": 4}


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Softmax cross-entropy of the text's class, shape (B,)."""
    p = parameters
    vectors = ops.embedding(batch["tokens"], p["embedding.table"])
    states = ops.lstm(vectors, p["lstm.input_weight"], p["lstm.hidden_weight"], p["lstm.bias"])
    logits = ops.dense(ops.mean(states, 1), p["logits.weight"], p["logits.bias"])
    return ops.softmax_cross_entropy(batch["label"], logits)


def parameters(rng: np.random.Generator, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray[Any, Any]]:
    """The table (vocabulary, width), the LSTM's weights (width or units, 4 units) and bias, a dense layer."""
    width, units = sizes["width"], sizes["units"]
    bound = units**-0.5
    return {
        "embedding.table": rng.standard_normal((sizes["vocabulary"], width)),
        "lstm.input_weight": rng.uniform(-bound, bound, (width, 4 * units)),
        "lstm.hidden_weight": rng.uniform(-bound, bound, (units, 4 * units)),
        "lstm.bias": rng.uniform(-bound, bound, 4 * units),
        **synthetic.layers(rng, {"logits": (units, 2)}),
    }


def batch(rng: np.random.Generator, size: int, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray[Any, Any]]:
    """`tokens` (B, tokens), integers, and `label` (B,), 0 or 1."""
    tokens = synthetic.words(rng, (size, sizes["tokens"]), sizes["vocabulary"])
    return {"tokens": tokens, "label": rng.integers(2, size=size)}


def layouts(sizes: dict[str, int] = SIZES) -> dict[str, Layout]:
    """PyTorch's LSTM takes its matrices transposed."""
    return {"lstm.input_weight": TRANSPOSED, "lstm.hidden_weight": TRANSPOSED}
