"""Other standard forms of some operations: equal in exact arithmetic, not in rounding.

Frameworks compute the same function by different formulas, and each is honest float32. What the error of plain
arithmetic is therefore depends on the form; `harness.reference.build` watches both.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import autograd.numpy as anp
from autograd.extend import defvjp, primitive


def alternative_forms(ops: ModuleType) -> SimpleNamespace:
    """The operations of `ops` (NumPy's), some of them in another form."""
    found = SimpleNamespace(**{name: value for name, value in vars(ops).items() if not name.startswith("_")})
    found.elu = _elu
    found.sigmoid_cross_entropy = _sigmoid_cross_entropy
    return found


def _sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    """PyTorch's form: its derivative (1 - labels) - sigmoid(-logits) cancels where the other form's does not."""
    return (1 - labels) * logits + anp.logaddexp(0, -logits)


@primitive  # type: ignore[untyped-decorator]
def _elu(x: Any) -> Any:
    return anp.where(x > 0, x, anp.expm1(anp.minimum(x, 0)))


# TensorFlow's form: the derivative exp(x) is taken from the result, as result + 1.
defvjp(_elu, lambda result, x: lambda g: g * anp.where(x > 0, 1, result + 1))
