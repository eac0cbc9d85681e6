"""A bag of words: 256 tokens of a vocabulary of 10,004, mean of 16-wide embeddings, 2 classes (160,098 parameters).

The network of fast-dpsgd (arXiv 2010.09063) for film reviews. A gradient row is large and almost all of it is
zero: only the rows of the table that the instance's tokens name are touched, some of them several times. Tokens
are drawn, not real: frequencies fall as 1/rank, as those of words do (Zipf), texts are 64 to 256 tokens long, and
token 0 pads them; the padding is left out of the mean. Embeddings are standard normal, the dense layer uniform in
+-1/sqrt(inputs), as PyTorch initialises them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core import synthetic
from harness.core.problem import Array, Batch, Parameters

SIZES = {"vocabulary": 10_004, "width": 16, "tokens": 256}
SMALL = {"vocabulary": 12, "width": 3, "tokens": 8}


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Softmax cross-entropy of the text's class, shape (B,)."""
    p = parameters
    vectors = ops.embedding(batch["tokens"], p["embedding.table"])
    text = ops.masked_mean(vectors, batch["mask"])
    return ops.softmax_cross_entropy(batch["label"], ops.dense(text, p["logits.weight"], p["logits.bias"]))


def parameters(rng: np.random.Generator, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray[Any, Any]]:
    """`embedding.table` (vocabulary, width) and a dense layer."""
    table = rng.standard_normal((sizes["vocabulary"], sizes["width"]))
    return {"embedding.table": table, **synthetic.layers(rng, {"logits": (sizes["width"], 2)})}


def batch(rng: np.random.Generator, size: int, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray[Any, Any]]:
    """`tokens` (B, tokens), integers, 0 is padding; `mask` (B, tokens), 0 there, else 1; `label` (B,), 0 or 1."""
    tokens, mask = synthetic.texts(rng, size, sizes["tokens"], sizes["vocabulary"])
    return {"tokens": tokens, "mask": mask, "label": rng.integers(2, size=size)}
