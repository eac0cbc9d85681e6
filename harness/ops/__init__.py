"""The operations that workloads are written with: one flat module per framework, the same names in each.

A module here is imported only by the adapter of its framework. Its functions are that framework's own, or a few
thin lines around them, so that a loss written through `ops` costs what the same loss costs written by hand.

Every axis and constant is explicit. Floats keep the dtype of their inputs. Plain arithmetic (`+ - * / **`) is
written as such. Images are (B, height, width, channels) and kernels (height, width, inputs, outputs) in what a
workload declares; PyTorch holds them channels first (`harness.core.layouts`), so of an image a loss may only do what
the table's "layers" do, and elementwise arithmetic.

| layers | meaning |
| --- | --- |
| `dense(x, weight, bias)` | `x @ weight + bias`; x is (..., inputs), weight (inputs, outputs) |
| `conv2d(x, kernel, bias, stride, padding)` | cross-correlation; pixels of stride, and of padding on each side |
| `max_pool(x, size, stride)` | largest value of each size x size window, no padding; of equal ones the first |
| `average_pool(x, size, stride)` | mean of each size x size window, no padding |
| `flatten(x)` | (B, ...) -> (B, n), in native order: declare `flattened_image` for the layer behind it |
| `embedding(ids, table)` | rows of table (entries, width) by integers (...): (..., width); a dense gradient |
| `layer_norm(x, scale, offset, epsilon)` | `(x - mean) / sqrt(variance + epsilon) * scale + offset`, last axis |
| `attention(query, key, value, heads, causal)` | `softmax(q k' / sqrt(width / heads)) v`, (B, T, width) |
| `lstm(x, input_weight, hidden_weight, bias)` | (B, T, n) -> (B, T, width); gates: input, forget, cell, output |
| `dropout(x, mask, rate)` | `x * mask / (1 - rate)`; the mask of zeros and ones comes with the batch |
| `masked_mean(x, mask)` | (B, T, width), (B, T) -> (B, width): mean where mask is 1; 0 if it is so nowhere |

| losses | meaning |
| --- | --- |
| `softmax_cross_entropy(labels, logits)` | `-log_softmax(logits)[label]`; integer labels (...), logits (..., classes) |
| `sigmoid_cross_entropy(labels, logits)` | `softplus(logits) - labels * logits`, elementwise |

| elementwise | meaning |
| --- | --- |
| `relu(x)` | `x` where `x > 0`, else 0; its derivative at 0 is 0 |
| `elu(x)` | `x` where `x > 0`, else `exp(x) - 1` |
| `gelu(x, form)` | `form="exact"`: `x Phi(x)`; `form="tanh"`: `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2` |
| `tanh(x)`, `sigmoid(x)`, `exp(x)`, `log(x)`, `sqrt(x)`, `abs(x)` | as in NumPy; sigmoid is `1 / (1 + exp(-x))` |
| `maximum(a, b)` | the larger; which derivative a tie has is the framework's choice |
| `less(a, b)` | 1 where `a < b`, else 0, in the dtype of `a`; its derivative is zero |
| `where(condition, a, b)` | `a` where `condition` is not 0, else `b` |
| `softmax(x, axis)`, `log_softmax(x, axis)` | over one axis |
| `stop_gradient(x)` | `x`, constant for differentiation |

| shapes and sums | meaning |
| --- | --- |
| `matmul(a, b)` | matrix product of the last two axes, the others broadcast |
| `sum(x, axis)`, `mean(x, axis)`, `max(x, axis)` | over one axis, which disappears |
| `argmax(x, axis)` | integer positions of the largest; no derivative |
| `expand_dims(x, axis)`, `squeeze(x, axis)` | add or remove one axis of length 1 |
| `reshape(x, shape)`, `transpose(x, axes)` | as in NumPy; of anything but an image |
| `concatenate(arrays, axis)`, `stack(arrays, axis)` | join along an existing or a new axis |
| `split(x, count, axis)` | a sequence of `count` equal parts |
"""
