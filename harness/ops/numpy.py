"""The operations of `autograd.numpy`, in the dtype of their inputs: what the reference is computed with.

Autograd differentiates slicing and fancy indexing with `np.add.at`, which is slow. The linear maps that a
convolution, a pool and an embedding need are therefore given together with their transposes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f
from autograd.tracer import getval

Array = Any

Size = tuple[int, ...]
"""Height and width of a window."""

expand_dims = anp.expand_dims
squeeze = anp.squeeze
reshape = anp.reshape
transpose = anp.transpose
concatenate = anp.concatenate
stack = anp.stack
split = anp.split
matmul = anp.matmul
sum = anp.sum
argmax = anp.argmax
tanh = anp.tanh
exp = anp.exp
log = anp.log
sqrt = anp.sqrt
abs = anp.abs


def dense(x: Array, weight: Array, bias: Array) -> Array:
    return anp.dot(x, weight) + bias


def conv2d(x: Array, kernel: Array, bias: Array, stride: int, padding: int) -> Array:
    *size, inputs, outputs = kernel.shape
    patches = _patches(x, tuple(size), stride, padding)
    return anp.dot(patches, anp.reshape(kernel, (math.prod(size) * inputs, outputs))) + bias


def max_pool(x: Array, size: int, stride: int) -> Array:
    windows = _windows(x, size, stride)
    first = np.argmax(getval(windows), axis=3)
    chosen = np.arange(size * size)[:, None] == first[:, :, :, None, :]
    return anp.sum(_select(chosen, windows, 0), axis=3)


def average_pool(x: Array, size: int, stride: int) -> Array:
    return mean(_windows(x, size, stride), 3)


def flatten(x: Array) -> Array:
    return anp.reshape(x, (x.shape[0], int(np.prod(x.shape[1:]))))


@primitive  # type: ignore[untyped-decorator]
def embedding(ids: Array, table: Array) -> Array:
    _refuse_outside(ids, len(table), "ids")
    return table[ids]


def layer_norm(x: Array, scale: Array, offset: Array, epsilon: float) -> Array:
    width = x.shape[-1]
    centred = x - anp.sum(x, axis=-1, keepdims=True) / width
    variance = anp.sum(centred * centred, axis=-1, keepdims=True) / width
    return centred / anp.sqrt(variance + epsilon) * scale + offset


def attention(query: Array, key: Array, value: Array, heads: int, causal: bool) -> Array:
    return attention_of(matmul, softmax, query, key, value, heads, causal)


def attention_of(matmul: Any, softmax: Any, query: Array, key: Array, value: Array, heads: int, causal: bool) -> Array:
    """`attention` with these two operations."""
    batch, length, width = query.shape
    q, k, v = (
        anp.transpose(anp.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3)) for x in (query, key, value)
    )
    scores = matmul(q, anp.transpose(k, (0, 1, 3, 2))) * (width // heads) ** -0.5
    if causal:
        scores = _select(np.tri(length, dtype=bool), scores, -np.inf)
    return anp.reshape(anp.transpose(matmul(softmax(scores, -1), v), (0, 2, 1, 3)), query.shape)


def lstm(x: Array, input_weight: Array, hidden_weight: Array, bias: Array) -> Array:
    return lstm_of(dense, sigmoid, tanh, x, input_weight, hidden_weight, bias)


def lstm_of(
    dense: Any, sigmoid: Any, tanh: Any, x: Array, input_weight: Array, hidden_weight: Array, bias: Array
) -> Array:
    """`lstm` with these three operations."""
    hidden = memory = np.zeros((x.shape[0], hidden_weight.shape[0]), bias.dtype)
    outputs = []
    projections = dense(x, input_weight, bias)
    for step in range(x.shape[1]):
        i, f, g, o = anp.split(projections[:, step] + anp.dot(hidden, hidden_weight), 4, axis=-1)
        memory = sigmoid(f) * memory + sigmoid(i) * tanh(g)
        hidden = sigmoid(o) * tanh(memory)
        outputs.append(hidden)
    return anp.stack(outputs, axis=1)


def dropout(x: Array, mask: Array, rate: float) -> Array:
    return x * mask / (1 - rate)


def masked_mean(x: Array, mask: Array) -> Array:
    total = anp.sum(x * anp.expand_dims(mask, -1), axis=1)
    return total / np.maximum(np.sum(getval(mask), axis=1, keepdims=True), 1)


def softmax_cross_entropy(labels: Array, logits: Array) -> Array:
    return softmax_cross_entropy_of(log_softmax, labels, logits)


def softmax_cross_entropy_of(log_softmax: Any, labels: Array, logits: Array) -> Array:
    """`softmax_cross_entropy` with this operation."""
    _refuse_outside(getval(labels), logits.shape[-1], "labels")
    chosen = np.arange(logits.shape[-1]) == getval(labels)[..., None]
    return anp.sum(_select(chosen, -log_softmax(logits, -1), 0), axis=-1)


def sigmoid_cross_entropy(labels: Array, logits: Array) -> Array:
    # Terms that do not cancel where a label is 0 or 1 and the logit agrees with it.
    return (1 - labels) * anp.logaddexp(0, logits) + labels * anp.logaddexp(0, -logits)


def mean(x: Array, axis: int) -> Array:
    return anp.sum(x, axis=axis) / x.shape[axis]


def max(x: Array, axis: int) -> Array:
    return anp.max(_keeping_dtype(x), axis=axis)


def maximum(a: Array, b: Array) -> Array:
    return anp.maximum(_keeping_dtype(a), _keeping_dtype(b))


def relu(x: Array) -> Array:
    return _select(x > 0, x, 0)


def elu(x: Array) -> Array:
    return _select(x > 0, x, anp.expm1(_select(x > 0, 0, x)))


def gelu(x: Array, form: str) -> Array:
    if form == "exact":
        return x * _normal_cdf(x)
    if form == "tanh":
        return 0.5 * x * (1 + anp.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x)))
    raise ValueError(f"gelu has the forms 'exact' and 'tanh', not {form!r}")


def sigmoid(x: Array) -> Array:
    return anp.exp(-anp.logaddexp(0, -x))  # keeps its digits, and those of its derivative, however small it is


def less(a: Array, b: Array) -> Array:
    return anp.less(a, b).astype(a.dtype)


def where(condition: Array, a: Array, b: Array) -> Array:
    return _select(getval(condition) != 0, a, b)


def softmax(x: Array, axis: int) -> Array:
    powers = anp.exp(x - np.max(getval(x), axis=axis, keepdims=True))
    return powers / anp.sum(powers, axis=axis, keepdims=True)


def log_softmax(x: Array, axis: int) -> Array:
    shifted = x - np.max(getval(x), axis=axis, keepdims=True)
    return shifted - anp.log(anp.sum(anp.exp(shifted), axis=axis, keepdims=True))


def stop_gradient(x: Array) -> Array:
    return getval(x)


def _refuse_outside(indices: Array, count: int, what: str) -> None:
    """Frameworks differ in what they make of such an index: a row of NaN, of zeros, that of another entry, an error."""
    outside = indices[(indices < 0) | (indices >= count)]
    if outside.size:
        raise ValueError(
            f"{what} are integers from 0 to {count - 1} here, and there is {outside.flat[0]}; give what is to be "
            "ignored one in that range, and a weight of 0"
        )


@primitive  # type: ignore[untyped-decorator]
def _keeping_dtype(x: Array) -> Array:
    """`x`; autograd's rules for the operations behind it continue in float64, whatever the dtype was."""
    return x


@primitive  # type: ignore[untyped-decorator]
def _select(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


def _windows(x: Array, size: int, stride: int) -> Array:
    """(B, height, width, channels) -> (B, rows, columns, size * size, channels)."""
    patches = _patches(x, (size, size), stride, 0)
    return anp.reshape(patches, (*patches.shape[:3], size * size, x.shape[3]))


@primitive  # type: ignore[untyped-decorator]
def _patches(x: Array, size: Size, stride: int, padding: int) -> Array:
    """The windows of an image, side by side: (B, rows, columns, height * width * channels)."""
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    found = [padded[:, rows, columns] for rows, columns in _shifts(padded.shape, size, stride)]
    return np.concatenate(found, axis=-1)


@primitive  # type: ignore[untyped-decorator]
def _add_patches(patches: Array, shape: Sequence[int], size: Size, stride: int, padding: int) -> Array:
    """The transpose of `_patches`: windows are added up where they overlap, into an image of that shape."""
    batch, height, width, channels = shape
    padded = np.zeros((batch, height + 2 * padding, width + 2 * padding, channels), patches.dtype)
    parts = np.split(patches, math.prod(size), axis=-1)
    for part, (rows, columns) in zip(parts, _shifts(padded.shape, size, stride), strict=True):
        padded[:, rows, columns] += part
    return padded[:, padding : padding + height, padding : padding + width]


def _shifts(shape: Sequence[int], size: Size, stride: int) -> list[tuple[slice, slice]]:
    """Rows and columns of the pixels that are first, second, ... in their windows."""
    last_row, last_column = shape[1] - size[0], shape[2] - size[1]
    return [
        (slice(i, last_row + i + 1, stride), slice(j, last_column + j + 1, stride))
        for i in range(size[0])
        for j in range(size[1])
    ]


@primitive  # type: ignore[untyped-decorator]
def _normal_cdf(x: Array) -> Array:
    """Phi(x); SciPy has it too, and would be a dependency for this line only."""
    return (np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2)) / 2).astype(x.dtype)


def _normal_density(x: Array) -> Array:
    return anp.exp(-0.5 * x * x) * (2 * math.pi) ** -0.5


@primitive  # type: ignore[untyped-decorator]
def _add_rows(rows: Array, ids: Array, shape: Sequence[int]) -> Array:
    """The transpose of `embedding`: rows of the same id are added up, into a table of that shape."""
    table = np.zeros(shape, rows.dtype)
    np.add.at(table, ids, rows)
    return table


defvjp(_keeping_dtype, lambda _, x: lambda g: g.astype(x.dtype))
defvjp(
    _select,
    None,
    lambda _, condition, a, b: unbroadcast_f(a, lambda g: _select(condition, g, 0)),
    lambda _, condition, a, b: unbroadcast_f(b, lambda g: _select(condition, 0, g)),
)
defvjp(_normal_cdf, lambda _, x: lambda g: g * _normal_density(x))
defvjp(embedding, None, lambda _, ids, table: lambda g: _add_rows(g, ids, table.shape))
defvjp(_add_rows, lambda _, rows, ids, shape: lambda g: embedding(ids, g), argnums=(0,))
defvjp(
    _patches,
    lambda _, x, size, stride, padding: lambda g: _add_patches(g, x.shape, size, stride, padding),
    argnums=(0,),
)
defvjp(
    _add_patches,
    lambda _, patches, shape, size, stride, padding: lambda g: _patches(g, size, stride, padding),
    argnums=(0,),
)
