"""The operations that workloads are written with: one flat module per framework, the same names in each.

A module here is imported only by the adapter of its framework. Its functions are that framework's own, or one
thin line around them, so that a loss written through `ops` costs what the same loss costs written by hand.

Every axis and constant is explicit. Floats keep the dtype of their inputs.

| operation | meaning |
| --- | --- |
| `dense(x, weight, bias)` | `x @ weight + bias`; weight is (inputs, outputs) |
| `elu(x)` | `x` where `x > 0`, else `exp(x) - 1` |
| `expand_dims(x, axis)`, `squeeze(x, axis)` | add or remove one axis of length 1 |
| `less(a, b)` | 1 where `a < b`, else 0, in the dtype of `a`; its derivative is zero |
| `sigmoid(x)` | `1 / (1 + exp(-x))` |
| `sigmoid_cross_entropy(labels, logits)` | `softplus(logits) - labels * logits` |
"""
