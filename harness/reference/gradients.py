"""Compute per-instance gradients as simply as possible: one instance at a time, one framework, one dtype.

Both the reference and the errors of plain arithmetic are computed with it. For a workload written through `ops` the
framework is HIPS autograd on NumPy, which is not compared; for a workload written for some
frameworks only it is the first of those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from harness import frameworks
from harness.core.framework import framework as known_framework
from harness.core.problem import Losses
from harness.core.workload import Arrays, Workload, cast, split
from harness.frameworks.base import Adapter, to_numpy

CHUNK = 16
"""The weighted loss is differentiated this many instances at a time, which bounds its memory."""


def framework(workload: Workload) -> str:
    """The framework that the reference for a workload is computed with."""
    if workload.through_ops:
        return "numpy"
    first = workload.frameworks[0]
    return known_framework(first).reference or first


def description(workload: Workload) -> str:
    """What the reference is computed with, in words."""
    if workload.through_ops:
        return "HIPS autograd on NumPy, float64, one instance at a time"
    return f"{framework(workload)} itself, float64, one instance at a time"


class ReferenceGradients:
    """Gradients of one workload at fixed parameters and inputs.

    Args:
        workload: what is differentiated.
        parameters: canonical, in any dtype; they are converted to `dtype`.
        batch: canonical, in any dtype, of any size.
        dtype: what is computed in. On NumPy bfloat16 is imitated (`harness.ops.bfloat16`).
        moved: on NumPy, compute by other formulas and move every result by up to this much of itself
            (`harness.ops.alternative_forms`); not at all if 0.
    """

    def __init__(self, workload: Workload, parameters: Arrays, batch: Arrays, dtype: str, moved: float = 0.0) -> None:
        self.workload = workload
        self.adapter: Adapter = frameworks.load(framework(workload), device="cpu")
        self.device = self.adapter.device("cpu")
        imitated = self.adapter.name == "numpy" and dtype == "bfloat16"
        self.dtype = "float32" if imitated else dtype
        self.batch = self.adapter.native(cast(batch, self.dtype), workload.layouts)
        self.size = len(next(iter(batch.values())))
        floats, state = split(cast(parameters, self.dtype))
        state |= cast(workload.state(), self.dtype)
        self.parameters = self.adapter.bind(workload, floats, self.device, self.size).parameters
        self.state = self.adapter.place(self.adapter.native(state, workload.layouts), self.device)
        self._losses, self._gradient = _functions(workload.losses, self.adapter.name, imitated, moved)

    def native_losses(self, chosen: slice) -> Any:
        """What the workload returns for some instances, computed as one batch."""
        placed = self.adapter.place(self._part(chosen), self.device)
        return self._losses(self.parameters, self.state, placed)

    def losses(self, chosen: slice) -> np.ndarray[Any, Any]:
        """The losses of some instances, computed as one batch."""
        return self.adapter.numpy(self.native_losses(chosen))

    def rows(self, instances: Iterable[int]) -> Arrays:
        """The gradients of these instances' own losses, `{name: (n, *parameter.shape)}`, float64."""
        found = [self.of_batch(slice(i, i + 1), np.ones(1)) for i in instances]
        if not found:
            return {name: np.zeros((0, *value.shape)) for name, value in self.of_batch(slice(0, 0), np.ones(0)).items()}
        return {name: np.stack([row[name] for row in found]) for name in found[0]}

    def weighted(self, weights: np.ndarray[Any, Any]) -> Arrays:
        """The gradient of the sum of weights x losses over the batch, `{name: parameter.shape}`, float64."""
        starts = range(0, max(self.size, 1), CHUNK)
        parts = [self.of_batch(slice(i, i + CHUNK), weights[i : i + CHUNK]) for i in starts]
        return {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}

    def of_batch(self, chosen: slice, weights: np.ndarray[Any, Any]) -> Arrays:
        """The gradient of the sum of weights x losses over some instances, computed as one batch, float64."""
        placed = self.adapter.place(self._part(chosen), self.device)
        factors = self.adapter.place(cast({"weights": weights}, self.dtype), self.device)["weights"]
        gradients = self._gradient(self.parameters, self.state, placed, factors)
        fetched = self.adapter.canonical(to_numpy(self.adapter, gradients), self.workload.layouts)
        return cast(fetched, "float64")

    def _part(self, chosen: slice) -> Arrays:
        return {name: value[chosen] for name, value in self.batch.items()}


@functools.lru_cache(maxsize=8)
def _functions(
    losses: Losses, name: str, imitated: bool, moved: float
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(losses, gradient of their weighted sum) of parameters, state, batch and weights.

    Objects at other parameters share them, so that JAX compiles them once.
    """
    adapter = frameworks.load(name, device="cpu")
    ops = _other_forms(adapter.ops, moved) if moved and name == "numpy" else adapter.ops
    ops = _imitation(ops) if imitated else ops

    def of(parameters: Mapping[str, Any], state: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        return losses(ops, {**state, **parameters}, batch)

    def weighted(parameters: Mapping[str, Any], state: Mapping[str, Any], batch: Mapping[str, Any], by: Any) -> Any:
        return adapter.ops.sum(by * of(parameters, state, batch), 0)

    return of, adapter.gradient(weighted)


def _other_forms(ops: Any, unit: float) -> Any:
    from harness.ops.alternative_forms import alternative_forms

    return alternative_forms(ops, unit)


def _imitation(ops: Any) -> Any:
    from harness.ops.bfloat16 import rounded

    return rounded(ops)
