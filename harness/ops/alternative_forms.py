"""The operations in other standard forms, every result moved by a rounding error: equal in exact arithmetic only.

Frameworks compute one function by different formulas, orders and approximations, and each is honest arithmetic.
What they have in common: a derivative is taken from a rounded result. That of tanh is `1 - y * y`, which keeps no
digit where y is close to 1. So results are moved by up to one unit in their last place, and derivatives are computed
from them. Values below the smallest normal number become 0, forwards and backwards, as in hardware that flushes them.
Source: Parker, "Monte Carlo Arithmetic" (1997).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from autograd.builtins import isinstance as is_instance
from autograd.extend import defvjp, primitive

STEPS = np.array((-1.0, -0.5, 0.5, 1.0))
"""By how many units in the last place a result is moved; never by none, which would be luck."""

SMALLEST = 2.0**-106
"""Below this a value may be lost: its last digits are below the smallest normal number, 2 ** -126."""

EXACT = (
    *("relu", "abs", "maximum", "max", "max_pool", "where", "less", "argmax", "stop_gradient", "embedding"),
    *("expand_dims", "squeeze", "reshape", "transpose", "concatenate", "stack", "split", "flatten"),
)
"""Operations that do not round: their results are entries of their arguments, or 0 and 1."""


def alternative_forms(ops: ModuleType, unit: float) -> SimpleNamespace:
    """The operations of `ops` (NumPy's) in another form.

    Args:
        unit: the distance from 1 to the next larger number of the dtype that is imitated.
    """
    public = {name: value for name, value in vars(ops).items() if callable(value) and not name.startswith("_")}
    found = SimpleNamespace(**public)
    for name, form in FORMS.items():
        setattr(found, name, partial(form, unit=unit))
    for name, operation in vars(found).items():
        setattr(found, name, _moving(operation, 0.0 if name in EXACT else unit))
    found.attention = _moving(partial(ops.attention_of, found.matmul, found.softmax), unit)
    found.lstm = partial(ops.lstm_of, found.dense, found.sigmoid, found.tanh)
    found.softmax_cross_entropy = partial(ops.softmax_cross_entropy_of, found.log_softmax)
    return found


def _moving(operation: Callable[..., Any], unit: float) -> Callable[..., Any]:
    """The operation with small arguments flushed and its result moved."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        given = [_moved(argument, 0.0) if hasattr(argument, "dtype") else argument for argument in arguments]
        result = operation(*given, **keywords)
        if is_instance(result, list | tuple):
            return [_moved(part, unit) for part in result]
        return _moved(result, unit)

    return call


@primitive  # type: ignore[untyped-decorator]
def _moved(x: Any, unit: float) -> Any:
    """`x` with every entry moved by up to `unit` of itself; 0 where it is below `SMALLEST`.

    The direction follows from the bits of the entry, so that the same computation errs in the same way again.
    """
    if not np.issubdtype(x.dtype, np.floating):
        return x
    if unit:
        bits = np.asarray(x, np.float32).view(np.uint32)
        x = (x * (1 + unit * STEPS[(bits * np.uint32(2654435761)) >> np.uint32(30)])).astype(x.dtype)
    return np.where(np.abs(x) < SMALLEST, np.zeros((), x.dtype), x)


@primitive  # type: ignore[untyped-decorator]
def _tanh(x: Any, unit: float) -> Any:
    return _moved(np.tanh(x), unit)


@primitive  # type: ignore[untyped-decorator]
def _sigmoid(x: Any, unit: float) -> Any:
    return _moved((0.5 * (np.tanh(0.5 * x) + 1)).astype(x.dtype), unit)


@primitive  # type: ignore[untyped-decorator]
def _elu(x: Any, unit: float) -> Any:
    return _moved(np.where(x > 0, x, np.expm1(np.minimum(x, 0))), unit)


@primitive  # type: ignore[untyped-decorator]
def _normal_cdf(x: Any, unit: float) -> Any:
    erf = np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)).astype(x.dtype)
    return ((1 + _moved(erf, unit)) / 2).astype(x.dtype)


@primitive  # type: ignore[untyped-decorator]
def _softmax(x: Any, axis: int, unit: float) -> Any:
    """As fused attention has it on the way back: from the logarithm of the sum, which is as large as `x`."""
    largest = np.max(x, axis=axis, keepdims=True)
    total = largest + np.log(np.sum(np.exp(x - largest), axis=axis, keepdims=True))
    return _moved(np.exp(x - _moved(total, unit)), unit)


@primitive  # type: ignore[untyped-decorator]
def _log_softmax(x: Any, axis: int, unit: float) -> Any:
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _gelu(x: Any, form: str, unit: float) -> Any:
    if form == "exact":
        return x * _normal_cdf(x, unit)
    return 0.5 * x * (1 + _tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x), unit))


def _layer_norm(x: Any, scale: Any, offset: Any, epsilon: float, *, unit: float) -> Any:
    return _normalised(x, epsilon, unit) * scale + offset


@primitive  # type: ignore[untyped-decorator]
def _normalised(x: Any, epsilon: float, unit: float) -> Any:
    """TensorFlow's form forwards, where the mean is subtracted after it was scaled."""
    mean, factor = _moments(x, epsilon, unit)
    return _moved(x * factor - mean * factor, unit)


def _normalised_backward(_: Any, x: Any, epsilon: float, unit: float) -> Callable[[Any], Any]:
    """PyTorch's form, whose sums are not those of centred values and whose third power becomes 0 before others do."""

    def backward(g: Any) -> Any:
        mean, factor = _moments(x, epsilon, unit)
        sum_of_g = _moved(np.sum(g, axis=-1, keepdims=True), unit)
        sum_of_products = _moved(np.sum(g * x, axis=-1, keepdims=True), unit)
        width = x.shape[-1]
        slope = _moved((sum_of_g * mean - sum_of_products) * _moved(factor**3, unit) / width, unit)
        return g * factor + slope * x - _moved(slope * mean + sum_of_g * factor / width, unit)

    return backward


def _moments(x: Any, epsilon: float, unit: float) -> tuple[Any, Any]:
    """The mean and 1 / sqrt(variance + epsilon), along the last axis."""
    mean = _moved(np.sum(x, axis=-1, keepdims=True) / x.shape[-1], unit)
    variance = np.sum((x - mean) ** 2, axis=-1, keepdims=True) / x.shape[-1]
    variance = np.where(np.isfinite(variance), variance, np.nan)  # as running moments, once a square overflows
    return mean, _moved((1 / np.sqrt(variance + epsilon)).astype(x.dtype), unit)


defvjp(_normalised, _normalised_backward, argnums=(0,))
defvjp(_moved, lambda _, x, unit: lambda g: _moved(g, unit), argnums=(0,))
defvjp(_tanh, lambda y, x, unit: lambda g: g * (1 - y * y), argnums=(0,))
defvjp(_sigmoid, lambda y, x, unit: lambda g: g * (y * (1 - y)), argnums=(0,))
defvjp(_elu, lambda y, x, unit: lambda g: g * np.where(x > 0, 1, y + 1).astype(y.dtype), argnums=(0,))
defvjp(_normal_cdf, lambda _, x, unit: lambda g: g * np.exp(-0.5 * x * x) * (2 * math.pi) ** -0.5, argnums=(0,))
defvjp(
    _softmax,
    lambda y, x, axis, unit: lambda g: y * (g - np.sum(g * y, axis=axis, keepdims=True)),
    argnums=(0,),
)
defvjp(
    _log_softmax,
    lambda y, x, axis, unit: lambda g: g - _moved(np.exp(y), unit) * np.sum(g, axis=axis, keepdims=True),
    argnums=(0,),
)


@primitive  # type: ignore[untyped-decorator]
def _softplus(x: Any, unit: float) -> Any:
    return np.logaddexp(0, x)


defvjp(_softplus, lambda _, x, unit: lambda g: g * _sigmoid(x, unit), argnums=(0,))


def _sigmoid_cross_entropy(labels: Any, logits: Any, unit: float) -> Any:
    """Half in JAX's form, whose derivative sigmoid(x) - labels cancels for labels 1, half in PyTorch's: labels 0."""
    jax = _softplus(logits, unit) - labels * logits
    return 0.5 * jax + 0.5 * ((1 - labels) * logits + _softplus(-logits, unit))


FORMS: dict[str, Callable[..., Any]] = {
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "elu": _elu,
    "gelu": _gelu,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "sigmoid_cross_entropy": _sigmoid_cross_entropy,
}
