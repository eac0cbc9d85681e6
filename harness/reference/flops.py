"""Arithmetic of one gradient, counted: the loss is run on NumPy with operations that add up what they cost.

A multiplication and an addition are two, any other function of one number is one. Counted is the gradient of one
instance's loss by reverse mode: the forward pass, and for every product two more of its kind, one for each operand
that depends on a parameter (the inputs of the first layer do not). Arithmetic written with operators is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from harness.core.workload import Workload, split

Cost = Callable[..., int]
"""What an operation costs forwards: a function of its result and its arguments."""

PRODUCTS: dict[str, Cost] = {
    "dense": lambda result, x, weight, bias: 2 * x.size * weight.shape[1],
    "matmul": lambda result, a, b: 2 * result.size * a.shape[-1],
    "conv2d": lambda result, x, kernel, bias, stride, padding: 2 * result.size * math.prod(kernel.shape[:3]),
    "lstm": lambda result, x, w, u, bias: 2 * math.prod(x.shape[:2]) * (w.size + u.size),
    "attention": lambda result, query, key, value, heads, causal: 4 * query.size * query.shape[1],
}
"""Backwards they cost as much again for each of the first two arguments that depends on a parameter."""

WINDOWS = ("max_pool", "average_pool")
"""One per element of every window."""

SUMS = ("sum", "mean", "max", "masked_mean", "softmax_cross_entropy")
"""One per element of the argument that is summed."""

MOVES = (
    *("expand_dims", "squeeze", "reshape", "transpose", "concatenate", "stack", "split", "flatten"),
    *("embedding", "stop_gradient", "argmax"),
)
"""Nothing. All other operations cost one per element of their result."""


def count(workload: Workload) -> int | None:
    """Floating-point operations of the gradient of one instance of a workload that is written through `ops`.

    None if its losses fail: why is said where its reference is computed.
    """
    from autograd import make_vjp

    from harness.ops import numpy as ops

    total = 0

    def add(flops: int) -> None:
        nonlocal total
        total += flops

    counting = SimpleNamespace(
        **{name: _counting(name, op, add) for name, op in vars(ops).items() if callable(op) and name[0] != "_"}
    )
    batch = workload.batches(seed=0, size=1, count=1)[0]
    parameters, state = split(workload.initial_parameters(seed=0))
    state |= workload.state()
    try:  # forwards only
        make_vjp(lambda p: ops.sum(workload.losses(counting, {**state, **p}, batch), 0))(parameters)
    except Exception:  # whatever a user's file raises
        return None
    return total


def _counting(name: str, operation: Callable[..., Any], add: Callable[[int], None]) -> Callable[..., Any]:
    from autograd.tracer import isbox

    def call(*arguments: Any, **keywords: Any) -> Any:
        result = operation(*arguments, **keywords)
        forward = _forward(name, result, *arguments, **keywords)
        if name in PRODUCTS:
            backward = forward * sum(isbox(argument) for argument in arguments[:2])
        else:
            backward = forward if isbox(result) else 0
        add(forward + backward)
        return result

    return call


def _forward(name: str, result: Any, *arguments: Any, **keywords: Any) -> int:
    if name in PRODUCTS:
        return int(PRODUCTS[name](result, *arguments, **keywords))
    if name in MOVES:
        return 0
    if name in WINDOWS:
        size = keywords["size"] if "size" in keywords else arguments[1]
        return int(result.size * size * size)
    if name in SUMS:
        return int(max(argument.size for argument in arguments if hasattr(argument, "size")))
    return int(result.size)
