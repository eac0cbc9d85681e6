"""Benchmarks of the harness itself.

`by_hand_jax.py`, `by_hand_torch.py`, `by_hand_tf1.py` and `by_hand_tf2.py` write every built-in workload as a user of
that framework would, without `ops`. Each has a function `calls(workload, problem, batch)` that returns `Calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Calls = tuple[Callable[[], tuple[Any, Any]], Callable[[], tuple[Any, Any]]]
"""The same plain batch gradient through `ops` and by hand, on the same values: each returns (loss, gradients)."""
