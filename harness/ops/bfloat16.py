"""Plain bfloat16 arithmetic, imitated: every operation computes in float32 and rounds what it returns.

NumPy cannot compute in bfloat16. This is what frameworks do in it, up to the order of their sums: multiply and add
in float32 within an operation, store the result as bfloat16, forwards and backwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from autograd.builtins import isinstance as is_instance
from autograd.extend import defvjp, primitive


def rounded(ops: ModuleType) -> SimpleNamespace:
    """The operations of `ops`, each followed by a rounding to bfloat16 where its result is float32."""
    public = {name: value for name, value in vars(ops).items() if callable(value) and not name.startswith("_")}
    found = SimpleNamespace(**{name: _rounding(operation) for name, operation in public.items()})
    # Frameworks round between the two products of attention, where gradients cancel: that of the key's bias is 0.
    found.attention = _rounding(partial(ops.attention_of, found.matmul, found.softmax))
    return found


def _rounding(operation: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        result = operation(*arguments, **keywords)
        if is_instance(result, list | tuple):
            return [_round(part) for part in result]
        return _round(result)

    return call


@primitive  # type: ignore[untyped-decorator]
def _round(x: Any) -> Any:
    return x.astype("bfloat16").astype(np.float32) if x.dtype == np.float32 else x


defvjp(_round, lambda _, x: _round)
