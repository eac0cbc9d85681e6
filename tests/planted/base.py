"""The honest computation that the planted strategies spoil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Batch, Problem

Rows = dict[str, "np.ndarray[Any, Any]"]


def honest_rows(problem: Problem) -> Callable[[Batch], Rows]:
    """A loop of HIPS autograd that returns `{name: (B, *parameter.shape)}`."""
    from autograd import grad

    row = grad(problem.loss)

    def step(batch: Batch) -> Rows:
        found = [row(problem.parameters, instance(batch, i)) for i in range(problem.batch_size)]
        return {name: np.stack([one[name] for one in found]) for name in problem.parameters}

    return step


def instance(batch: Batch, index: int) -> Batch:
    """One instance of a batch, without the batch axis."""
    return {name: value[index] for name, value in batch.items()}
