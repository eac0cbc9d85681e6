"""One transformer block as a language model: 32 tokens, width 64, 4 heads, tied embedding (180,160 parameters).

Tokens and learned positions are embedded; then layer norm, causal attention, layer norm, a GELU network of 256
units (tanh form), each with a residual connection; a last layer norm; logits by the transposed embedding table,
which thus collects gradients from both ends. The loss is the mean softmax cross-entropy of the next token over 32
positions. Pre-norm as in GPT-2, epsilon 1e-5. Tokens are drawn, not real: frequencies fall as 1/rank (Zipf) over
a vocabulary of 2,000. Tables are normal with standard deviation 0.02, dense layers uniform in +-1/sqrt(inputs).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.core import synthetic
from harness.core.problem import Array, Batch, Parameters

SIZES = {"vocabulary": 2_000, "width": 64, "hidden": 256, "tokens": 32}
SMALL = {"vocabulary": 11, "width": 8, "hidden": 5, "tokens": 4}
HEADS = 4
EPSILON = 1e-5


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Mean softmax cross-entropy of the next token, shape (B,)."""
    p = parameters
    x = ops.embedding(batch["tokens"], p["embedding.table"]) + p["position.table"]
    x = x + _attention(ops, p, ops.layer_norm(x, p["norm1.scale"], p["norm1.offset"], EPSILON))
    x = x + _network(ops, p, ops.layer_norm(x, p["norm2.scale"], p["norm2.offset"], EPSILON))
    x = ops.layer_norm(x, p["norm3.scale"], p["norm3.offset"], EPSILON)
    logits = ops.matmul(x, ops.transpose(p["embedding.table"], (1, 0)))
    return ops.mean(ops.softmax_cross_entropy(batch["next"], logits), 1)


def parameters(rng: np.random.Generator, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray[Any, Any]]:
    """Tables (vocabulary or tokens, width), weights (inputs, outputs), biases, and three layer norms."""
    width, hidden = sizes["width"], sizes["hidden"]
    norms = {f"norm{number}": {"scale": np.ones(width), "offset": np.zeros(width)} for number in (1, 2, 3)}
    return {
        "embedding.table": 0.02 * rng.standard_normal((sizes["vocabulary"], width)),
        "position.table": 0.02 * rng.standard_normal((sizes["tokens"], width)),
        **synthetic.layers(
            rng,
            {
                **dict.fromkeys(("query", "key", "value", "mixed"), (width, width)),
                "hidden": (width, hidden),
                "output": (hidden, width),
            },
        ),
        **{f"{norm}.{name}": value for norm, values in norms.items() for name, value in values.items()},
    }


def batch(rng: np.random.Generator, size: int, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray[Any, Any]]:
    """`tokens` and, one position later, `next`: both (B, tokens), integers."""
    words = synthetic.words(rng, (size, sizes["tokens"] + 1), sizes["vocabulary"])
    return {"tokens": words[:, :-1], "next": words[:, 1:]}


def _attention(ops: Any, p: Parameters, x: Array) -> Array:
    query, key, value = (ops.dense(x, p[f"{name}.weight"], p[f"{name}.bias"]) for name in ("query", "key", "value"))
    mixed = ops.attention(query, key, value, heads=HEADS, causal=True)
    return ops.dense(mixed, p["mixed.weight"], p["mixed.bias"])


def _network(ops: Any, p: Parameters, x: Array) -> Array:
    hidden = ops.gelu(ops.dense(x, p["hidden.weight"], p["hidden.bias"]), form="tanh")
    return ops.dense(hidden, p["output.weight"], p["output.bias"])
