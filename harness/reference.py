"""The truth: per-instance gradients in float64, by an engine that is no contestant.

HIPS autograd on NumPy differentiates one instance at a time (`harness.engine`). It is evaluated at the inputs that
the strategies see, that is after they were rounded to the dtype under test. Beside each true row stands its
yardstick: the error that plain arithmetic in that dtype makes on the same row, which tells honest rounding from a
wrong result. What cannot be computed through `ops` is computed by its own framework instead, and the truth says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import engine, isolated, workloads
from harness.engine import Engine
from harness.strategies import PluginError
from harness.workloads import Arrays, Workload, cast, split

BATCHES = 3
"""How many different batches the inputs rotate through."""

MOST_VALUES = 1 << 22
"""Rows are checked one by one up to this many gradient values in a batch; of a larger batch, a sample is."""

FEWEST_ROWS = 4

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}
"""The distance from 1 to the next larger number."""


@dataclass(frozen=True)
class Truth:
    """What is true of one batch.

    Attributes:
        instances: indices of the rows that are checked, ascending, (n,); all of them unless the batch is large.
        rows: true gradients of these instances, `{name: (n, *parameter.shape)}`, float64.
        yardstick: largest error that plain arithmetic in the dtype under test makes in such a row, `{name: (n,)}`.
        weights: a random weight for every instance of the batch, (B,), float64.
        weighted: gradient of the sum of weights x losses over all B instances, `{name: parameter.shape}`.
        weighted_yardstick: largest error that plain arithmetic makes in it, `{name: scalar}`.
        engine: what all this was computed with.
    """

    instances: np.ndarray[Any, Any]
    rows: Arrays
    yardstick: Arrays
    weights: np.ndarray[Any, Any]
    weighted: Arrays
    weighted_yardstick: Arrays
    engine: str = "HIPS autograd on NumPy, float64, one instance at a time"

    @property
    def batch_size(self) -> int:
        """Number of instances in the batch, checked or not."""
        return len(self.weights)

    def permuted(self, order: np.ndarray[Any, Any]) -> Truth:
        """The truth about the batch whose instance k is this batch's instance `order[k]`."""
        return replace(self, instances=np.argsort(order)[self.instances], weights=self.weights[order])

    def without(self, instance: int) -> Truth:
        """The truth about the rows of all instances but one, when that one was exchanged in the batch."""
        kept = self.instances != instance
        return replace(
            self,
            instances=self.instances[kept],
            rows={name: value[kept] for name, value in self.rows.items()},
            yardstick={name: value[kept] for name, value in self.yardstick.items()},
            weighted={},
        )


class Coupled(PluginError):
    """A workload in which the loss of one instance depends on the others, so that it has no gradient of its own."""


def write(path: Path, source: str, size: int, seed: int, dtype: str) -> None:
    """Compute the truth about the batches that strategies are measured on, into a file for `load`.

    A workload for some frameworks only is computed in a process of its own, because its framework must not be
    imported into this one.

    Args:
        path: the file to write.
        source: what `workloads.find` takes.
        size: number of instances in every batch.
        seed: what parameters and batches are drawn from.
        dtype: the dtype under test.

    Raises:
        Coupled: if the workload's instances are not independent.
        PluginError: if the workload is not there.
        IsolatedError: if the other process fails.
    """
    workload = workloads.find(source)
    if workload.through_ops:
        write_here(str(path), source, size, seed, dtype)
    else:
        function = "harness.reference:write_here"
        arguments = (str(path), source, size, seed, dtype)
        isolated.call(function, *arguments, framework=engine.framework(workload), dtype="float64")


def write_here(path: str, source: str, size: int, seed: int, dtype: str) -> None:
    """What `write` does, in this process."""
    workload = workloads.find(source)
    parameters = cast(workload.initial_parameters(seed), dtype)
    batches = [cast(batch, dtype) for batch in workload.batches(seed, size, BATCHES)]
    save(Path(path), [compute(workload, parameters, batch) for batch in batches])


def compute(workload: Workload, parameters: Arrays, batch: Arrays, seed: int = 0) -> Truth:
    """The truth about one batch. `parameters` and `batch` are given in the dtype under test.

    Raises:
        Coupled: if an instance's loss changes with the others in its batch.
    """
    size = len(next(iter(batch.values())))
    floats, state = split(parameters)
    values = sum(value.size for value in floats.values())
    dtype = next(iter(floats.values())).dtype.name
    count = size if size * values <= MOST_VALUES else min(size, max(FEWEST_ROWS, MOST_VALUES // values))
    rng = np.random.default_rng([seed, size])
    instances = np.sort(rng.choice(size, count, replace=False))
    weights = rng.standard_normal(size)

    exact = Engine(workload, parameters, batch, "float64")
    _refuse_coupled(exact)
    plain = "bfloat16" if dtype == "bfloat16" else "float32"
    scale = EPSILON[dtype] / EPSILON[plain]  # float64 errs as float32 does, with smaller rounding errors
    moved = [Engine(workload, {**p, **state}, batch, plain) for p in _neighbours(floats, EPSILON[plain], rng)]
    rows = exact.rows(instances)
    weighted = exact.weighted(weights)
    return Truth(
        instances=instances,
        rows=rows,
        yardstick=_largest_error(rows, [near.rows(instances) for near in moved], scale, keep=1),
        weights=weights,
        weighted=weighted,
        weighted_yardstick=_largest_error(weighted, [near.weighted(weights) for near in moved], scale, keep=0),
        engine=engine.description(workload),
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
                entry[attribute] = str(arrays[key]) if attribute == "engine" else arrays[key]
    return [Truth(**found[number]) for number in sorted(found)]


def _refuse_coupled(exact: Engine) -> None:
    """Some instances together must have the losses that they have alone."""
    together = exact.losses(slice(0, 3))
    alone = np.array([exact.losses(slice(i, i + 1))[0] for i in range(len(together))])
    if not np.allclose(together, alone, rtol=1e-9, atol=1e-12, equal_nan=True):
        i = int(np.argmax(np.abs(together - alone)))
        raise Coupled(
            f"workload {exact.workload.name} couples its instances: the loss of instance {i} is {alone[i]:.9g} alone "
            f"and {together[i]:.9g} in a batch of {len(together)}, as with batch normalisation. Its instances have no "
            "gradients of their own; make the statistics parameters or inputs"
        )


def _neighbours(parameters: Arrays, epsilon: float, rng: np.random.Generator) -> list[Arrays]:
    """The parameters, and twice the parameters moved by a rounding error.

    One evaluation in low precision can be right by luck; how far rounding errors in its inputs move the result is
    what its rounding errors on the way do to it, to first order (Higham, Accuracy and Stability, section 1.6).
    """
    exact = cast(parameters, "float64")
    moved = [
        {name: value * (1 + epsilon * rng.choice([-1.0, 1.0], value.shape)) for name, value in exact.items()}
        for _ in range(2)
    ]
    return [exact, *moved]


def _largest_error(true: Arrays, evaluations: Sequence[Arrays], scale: float, keep: int) -> Arrays:
    """`scale` times the largest |evaluation - true| over the evaluations and all axes beyond the first `keep`."""
    result = {}
    for name, value in true.items():
        errors = scale * np.stack([np.abs(evaluation[name] - value) for evaluation in evaluations])
        axes = (0, *range(1 + keep, errors.ndim))
        result[name] = errors.max(axis=axes) if errors.size else np.zeros(value.shape[:keep])
    return result
