"""The truth: per-instance gradients in float64, by an engine that is no contestant.

HIPS autograd on NumPy differentiates one instance at a time. It is evaluated at the inputs that the strategies
see, that is after they were rounded to the dtype under test. Beside each true row stands its yardstick: the
error that plain float32 arithmetic makes on the same row, which tells honest rounding from a wrong result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.problem import Problem
from harness.workloads import Arrays, Workload, cast

BATCHES = 3
"""How many different batches the inputs rotate through."""

MOST_VALUES = 1 << 22
"""Rows are checked one by one up to this many gradient values in a batch; of a larger batch, a sample is."""

FEWEST_ROWS = 4


@dataclass(frozen=True)
class Truth:
    """What is true of one batch.

    Attributes:
        instances: indices of the rows that are checked, ascending, (n,); all of them unless the batch is large.
        rows: true gradients of these instances, `{name: (n, *parameter.shape)}`, float64.
        yardstick: largest error that plain float32 makes in such a row, `{name: (n,)}`, float64.
        weights: a random weight for every instance of the batch, (B,), float64.
        weighted: gradient of the sum of weights x losses over all B instances, `{name: parameter.shape}`.
        weighted_yardstick: largest error that plain float32 makes in it, `{name: scalar}`.
    """

    instances: np.ndarray[Any, Any]
    rows: Arrays
    yardstick: Arrays
    weights: np.ndarray[Any, Any]
    weighted: Arrays
    weighted_yardstick: Arrays

    @property
    def batch_size(self) -> int:
        """Number of instances in the batch, checked or not."""
        return len(self.weights)


def compute(workload: Workload, parameters: Arrays, batch: Arrays, seed: int = 0) -> Truth:
    """The truth about one batch. `parameters` and `batch` are given in the dtype under test."""
    size = len(next(iter(batch.values())))
    values = sum(value.size for value in parameters.values())
    count = size if size * values <= MOST_VALUES else min(size, max(FEWEST_ROWS, MOST_VALUES // values))
    rng = np.random.default_rng([seed, size])
    instances = np.sort(rng.choice(size, count, replace=False))
    weights = rng.standard_normal(size)

    exact = _Engine(workload, parameters, batch, "float64")
    plain = [_Engine(workload, p, batch, "float32") for p in _neighbours(parameters, rng)]
    rows = exact.rows(instances)
    weighted = exact.weighted(weights)
    return Truth(
        instances=instances,
        rows=rows,
        yardstick=_largest_error(rows, [engine.rows(instances) for engine in plain], keep=1),
        weights=weights,
        weighted=weighted,
        weighted_yardstick=_largest_error(weighted, [engine.weighted(weights) for engine in plain], keep=0),
    )


def save(path: Path, truths: Sequence[Truth]) -> None:
    """Write the truth about several batches into one file, for the workers to read."""
    arrays: Arrays = {}
    for number, truth in enumerate(truths):
        for attribute, value in vars(truth).items():
            if isinstance(value, Mapping):
                arrays |= {f"{number}/{attribute}/{name}": array for name, array in value.items()}
            else:
                arrays[f"{number}/{attribute}"] = value
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> list[Truth]:
    """Read what `save` wrote. Nothing is unpickled."""
    found: dict[int, dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            number, attribute, *name = key.split("/", 2)
            entry = found.setdefault(int(number), {})
            if name:
                entry.setdefault(attribute, {})[name[0]] = arrays[key]
            else:
                entry[attribute] = arrays[key]
    return [Truth(**found[number]) for number in sorted(found)]


class _Engine:
    """Gradients of one workload at fixed inputs in one dtype, by HIPS autograd."""

    def __init__(self, workload: Workload, parameters: Arrays, batch: Arrays, dtype: str) -> None:
        from autograd import grad

        from harness.ops import numpy as ops

        self.parameters = cast(parameters, dtype)
        self.batch = cast(batch, dtype)
        problem = Problem(self.parameters, len(batch), "cpu", ops, workload.losses)
        self.row = grad(problem.loss)
        self.sum = grad(lambda parameters, weights: (weights * problem.losses(parameters, self.batch)).sum())

    def rows(self, instances: Sequence[int] | np.ndarray[Any, Any]) -> Arrays:
        found = [self.row(self.parameters, {name: v[i] for name, v in self.batch.items()}) for i in instances]
        return {
            name: np.stack([row[name] for row in found]) if found else np.empty((0, *value.shape))
            for name, value in self.parameters.items()
        }

    def weighted(self, weights: np.ndarray[Any, Any]) -> Arrays:
        dtype = next(iter(self.parameters.values())).dtype
        gradients: Arrays = self.sum(self.parameters, weights.astype(dtype))
        return gradients


def _neighbours(parameters: Arrays, rng: np.random.Generator) -> list[Arrays]:
    """The parameters, and twice the parameters moved by a rounding error of float32.

    One float32 evaluation can be right by luck; how far rounding errors in its inputs move the result is what
    its rounding errors on the way do to it, to first order (Higham, Accuracy and Stability, section 1.6).
    """
    epsilon = np.finfo(np.float32).eps
    moved = [
        {name: value * (1 + epsilon * rng.choice([-1.0, 1.0], value.shape)) for name, value in parameters.items()}
        for _ in range(2)
    ]
    return [parameters, *moved]


def _largest_error(true: Arrays, evaluations: Sequence[Arrays], keep: int) -> Arrays:
    """Largest |evaluation - true| over the evaluations and all axes beyond the first `keep`."""
    result = {}
    for name, value in true.items():
        errors = np.stack([np.abs(evaluation[name].astype(np.float64) - value) for evaluation in evaluations])
        axes = (0, *range(1 + keep, errors.ndim))
        result[name] = errors.max(axis=axes) if errors.size else np.zeros(value.shape[:keep])
    return result
