"""The truth: per-instance gradients in float64, by an engine that is no contestant.

HIPS autograd on NumPy differentiates one instance at a time (`harness.engine`). It is evaluated at the inputs that
the strategies see, that is after they were rounded to the dtype under test. Beside each true row stands its
yardstick: the error that plain arithmetic in that dtype makes on the same row, which tells honest rounding from a
wrong result. What cannot be computed through `ops` is computed by its own framework instead, and the truth says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import draw, engine, isolated, workloads
from harness.engine import Engine
from harness.problem import CLIP_NORM
from harness.strategies import QUANTITIES, PluginError
from harness.workloads import Arrays, Workload, cast, split

BATCHES = 3
"""How many different batches the inputs rotate through."""

MOST_VALUES = 1 << 20
"""Rows are checked one by one up to this many gradient values in a batch, and up to `MOST_ROWS`; of a larger
batch, a sample is."""

FEWEST_ROWS = 4

MOST_ROWS = 64

FEW_ROWS = 16
"""Of the second and third batch, whose results come from timed calls, fewer rows are checked."""

NEIGHBOURS = 4
"""At how many points near the parameters plain arithmetic is watched making its errors."""

NUDGES = 3
"""How often parameters and inputs are moved by `NUDGE` units in the last place, to find rows that sit on a kink."""

NUDGE = 4

KINK_SHARE = 1 / 8
"""What of a kink's size counts as yardstick: agreement allows sixteen times the yardstick, a kink is known better."""

NEARNESS = 2.0**-8
"""How far those points are, relative to each parameter: far enough for every rounding to fall out anew."""

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}
"""The distance from 1 to the next larger number."""


@dataclass(frozen=True)
class Truth:
    """What is true of one batch.

    Attributes:
        instances: indices of the rows that are checked, ascending, (n,); all of them unless the batch is large.
        rows: true gradients of these instances, `{name: (n, *parameter.shape)}`, float64.
        yardstick: largest error that plain arithmetic in the dtype under test makes in such a row, `{name: (n,)}`.
        norms_yardstick: largest error that plain arithmetic makes in the norm of such a row, (n,).
        weights: a random weight for every instance of the batch, (B,), float64; what a problem has as `weights`.
        weighted: gradient of the sum of weights x losses over all B instances, `{name: parameter.shape}`.
        weighted_yardstick: largest error that plain arithmetic makes in it, `{name: scalar}`.
        clipped: sum over all B instances of the gradients, each scaled to a norm of at most `CLIP_NORM`; empty
            if it was not asked for.
        clipped_yardstick: largest error that plain arithmetic makes in it, `{name: scalar}`.
        engine: what all this was computed with.
    """

    instances: np.ndarray[Any, Any]
    rows: Arrays
    yardstick: Arrays
    norms_yardstick: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]
    weighted: Arrays = field(default_factory=dict)
    weighted_yardstick: Arrays = field(default_factory=dict)
    clipped: Arrays = field(default_factory=dict)
    clipped_yardstick: Arrays = field(default_factory=dict)
    inputs: str = ""
    """Digest of the parameters and the batch it is about."""
    engine: str = "HIPS autograd on NumPy, float64, one instance at a time"

    @property
    def batch_size(self) -> int:
        """Number of instances in the batch, checked or not."""
        return len(self.weights)

    def of(self, quantity: str, dtype: str) -> Truth:
        """The truth about another quantity, as if its result were rows: norms (B,), or one row that is a sum.

        To the yardstick of a sum is added what rounding its terms to `dtype` does where they cancel, and to that of
        a norm what adding up the squares of n values does: about sqrt(n) roundings, in float32 at least. A term of a
        clipped sum carries the error of its norm.
        """
        norms = norms_of(self.rows)
        values = sum(rows[0].size for rows in self.rows.values()) if len(norms) else 0
        roundings = values**0.5 * min(EPSILON[dtype], EPSILON["float32"])
        if quantity == "norms":
            yardstick = {"norms": self.norms_yardstick + roundings / 16 * norms}
            return replace(self, rows={"norms": norms}, yardstick=yardstick, weighted={})
        if quantity == "gradients":
            return self
        largest = {name: np.abs(value).max(initial=0) for name, value in self.rows.items()}
        if quantity == "weighted_sum":
            total, errors, each = self.weighted, self.weighted_yardstick, EPSILON[dtype]
            terms = {name: np.abs(self.weights).sum() * value for name, value in largest.items()}
        else:
            total, errors, each = self.clipped, self.clipped_yardstick, EPSILON[dtype] + roundings / 16
            terms = {name: self.batch_size * min(value, CLIP_NORM) for name, value in largest.items()}
        return Truth(
            instances=np.zeros(1, int),
            rows={name: value[None] for name, value in total.items()},
            yardstick={name: np.atleast_1d(error + each * terms[name]) for name, error in errors.items()},
            norms_yardstick=np.zeros(1),
            weights=np.ones(1),
            weighted={},
            weighted_yardstick={},
            engine=self.engine,
        )

    def permuted(self, order: np.ndarray[Any, Any]) -> Truth:
        """The truth about the batch whose instance k is this batch's instance `order[k]`, with its weights permuted."""
        return replace(self, instances=np.argsort(order)[self.instances], weights=self.weights[order])

    def permuted_under_weights(self, order: np.ndarray[Any, Any]) -> Truth | None:
        """The same with weights that stay where they are; None if not all rows are known."""
        if len(self.instances) < self.batch_size:
            return None
        weights = self.weights[np.argsort(order)]
        return replace(
            self.permuted(order),
            weights=self.weights,
            weighted={name: np.tensordot(weights, rows, axes=1) for name, rows in self.rows.items()},
            weighted_yardstick={name: np.abs(weights) @ error for name, error in self.yardstick.items()},
        )

    def without(self, instance: int) -> Truth:
        """The truth about the rows of all instances but one, when that one was exchanged in the batch."""
        kept = self.instances != instance
        return replace(
            self,
            instances=self.instances[kept],
            rows={name: value[kept] for name, value in self.rows.items()},
            yardstick={name: value[kept] for name, value in self.yardstick.items()},
            norms_yardstick=self.norms_yardstick[kept],
            weighted={},
        )


class Irreproducible(Exception):
    """A workload whose parameters or batches differ from process to process, so that it has no truth."""


class Coupled(PluginError):
    """A workload in which the loss of one instance depends on the others, so that it has no gradient of its own."""


class NotFinite(PluginError):
    """A workload whose true gradient is NaN or infinite at its own parameters and inputs."""


def write(
    path: Path,
    source: str,
    size: int,
    seed: int,
    dtype: str,
    quantities: Sequence[str] = tuple(QUANTITIES),
    thorough: bool = True,
) -> None:
    """Compute the truth about the batches that strategies are measured on, into a file for `load`.

    A workload for some frameworks only is computed in a process of its own, because its framework must not be
    imported into this one.

    Args:
        path: the file to write.
        source: what `workloads.find` takes.
        size: number of instances in every batch.
        seed: what parameters and batches are drawn from.
        dtype: the dtype under test.
        quantities: what is asked about; clipped sums need the norm of every instance, which takes long.
        thorough: whether the first batch has more rows, and coupled instances are looked for.

    Raises:
        Coupled: if the workload's instances are not independent.
        PluginError: if the workload is not there.
        IsolatedError: if the other process fails.
    """
    workload = workloads.find(source)
    if workload.through_ops:
        write_here(str(path), source, size, seed, dtype, list(quantities), thorough)
    else:
        function = "harness.reference:write_here"
        arguments = (str(path), source, size, seed, dtype, list(quantities), thorough)
        isolated.call(function, *arguments, framework=engine.framework(workload), dtype="float64")


def write_here(
    path: str, source: str, size: int, seed: int, dtype: str, quantities: Sequence[str], thorough: bool
) -> None:
    """What `write` does, in this process."""
    workload = workloads.find(source)
    parameters = cast(workload.initial_parameters(seed), dtype)
    batches = [cast(batch, dtype) for batch in workload.batches(seed, size, BATCHES)]
    truths = [
        compute(workload, parameters, batch, quantities=quantities, thorough=thorough and number == 0)
        for number, batch in enumerate(batches)
    ]
    save(Path(path), truths)


def compute(
    workload: Workload,
    parameters: Arrays,
    batch: Arrays,
    seed: int = 0,
    quantities: Sequence[str] = tuple(QUANTITIES),
    thorough: bool = True,
) -> Truth:
    """The truth about one batch. `parameters` and `batch` are given in the dtype under test.

    If it is not `thorough`, it has fewer rows, a weighted sum only where that is the quantity, and coupled instances
    are not looked for.

    Raises:
        Coupled: if an instance's loss changes with the others in its batch.
        NotFinite: if a true gradient is not finite.
    """
    size = len(next(iter(batch.values())))
    floats, state = split(parameters)
    values = sum(value.size for value in floats.values())
    dtype = next(iter(floats.values())).dtype.name
    count = min(size, MOST_ROWS if thorough else FEW_ROWS, max(FEWEST_ROWS, MOST_VALUES // values))
    rng = np.random.default_rng([seed, size])
    instances = np.sort(rng.choice(size, count, replace=False))
    weights = cast({"weights": draw.weights(size)}, dtype)["weights"].astype(np.float64)

    exact = Engine(workload, parameters, batch, "float64")
    if thorough:
        _refuse_coupled(exact)
    rows = exact.rows(instances)
    _refuse_nonfinite(rows, instances, workload)
    plain = "bfloat16" if dtype == "bfloat16" else "float32"
    scale = EPSILON[dtype] / EPSILON[plain]  # float64 errs as float32 does, with smaller rounding errors
    # Plain arithmetic has more than one form of some operations; every other neighbour is computed in the other one.
    pairs = [
        (
            Engine(workload, {**near, **state}, batch, "float64"),
            Engine(workload, {**near, **state}, batch, plain, other_forms=bool(number % 2)),
        )
        for number, near in enumerate(_neighbours(floats, plain, rng))
    ]
    nudge = NUDGE * EPSILON[dtype]
    nudged = [
        Engine(workload, {**_nudged(floats, nudge, rng), **state}, _nudged(batch, nudge, rng), "float64")
        for _ in range(NUDGES)
    ]
    nudged_rows = [engine.rows(instances) for engine in nudged]
    near_rows = [(e.rows(instances), p.rows(instances)) for e, p in pairs]
    near_norms = [({"norms": norms_of(e)}, {"norms": norms_of(p)}) for e, p in near_rows]

    def summed(factors: np.ndarray[Any, Any]) -> tuple[Arrays, Arrays]:
        """The sum of factors x gradients over the batch, and its yardstick: luck averages out over a batch."""
        true = exact.weighted(factors)
        rounding = _largest_error([(true, pairs[0][1].weighted(factors))], scale, keep=0)
        kinks = _largest_error([(true, engine.weighted(factors)) for engine in nudged], KINK_SHARE, keep=0)
        return true, _larger(rounding, kinks)

    weighted, weighted_yardstick = summed(weights) if thorough or "weighted_sum" in quantities else ({}, {})
    clipped, clipped_yardstick = summed(_clipping(exact, rows, size)) if "clipped_sum" in quantities else ({}, {})
    return Truth(
        instances=instances,
        rows=rows,
        yardstick=_larger(
            _largest_error(near_rows, scale, keep=1),
            _largest_error([(rows, n) for n in nudged_rows], KINK_SHARE, keep=1),
        ),
        norms_yardstick=_largest_error(near_norms, scale, keep=1)["norms"],
        weights=weights,
        weighted=weighted,
        weighted_yardstick=weighted_yardstick,
        clipped=clipped,
        clipped_yardstick=clipped_yardstick,
        inputs=digest(parameters, batch),
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
                entry[attribute] = str(arrays[key]) if attribute in ("engine", "inputs") else arrays[key]
    return [Truth(**found[number]) for number in sorted(found)]


def digest(parameters: Mapping[str, np.ndarray[Any, Any]], batch: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """A hash of the names and values of parameters and inputs."""
    found = hashlib.blake2b(digest_size=16)
    for name, value in sorted({**parameters, **batch}.items()):
        found.update(name.encode() + np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def refuse_other_inputs(truth: Truth, workload: Workload, parameters: Arrays, batch: Arrays) -> None:
    """What is measured must be what the truth is about.

    Raises:
        Irreproducible: if this process has drawn other parameters or another batch.
    """
    if truth.inputs and truth.inputs != digest(parameters, batch):
        raise Irreproducible(
            f"workload {workload.name} has other parameters or batches in every process: draw them from rng, and seed "
            "what its framework draws by itself, as with torch.manual_seed(0)"
        )


def _refuse_nonfinite(rows: Arrays, instances: np.ndarray[Any, Any], workload: Workload) -> None:
    for name, value in rows.items():
        bad = ~np.isfinite(value.reshape(len(value), -1)).all(axis=1)
        if bad.any():
            raise NotFinite(
                f"workload {workload.name} has no finite gradient: that of {name} is NaN or infinite for instance "
                f"{instances[bad.argmax()]}. A branch that where() does not choose still takes part: choose a harmless "
                "input for it by a second where()"
            )


def norms_of(rows: Arrays) -> np.ndarray[Any, Any]:
    """The L2 norm of each instance's whole gradient, (n,)."""
    squares = [np.square(value.reshape(len(value), -1)).sum(axis=1) for value in rows.values()]
    norms: np.ndarray[Any, Any] = np.sqrt(np.sum(squares, axis=0))
    return norms


def _clipping(exact: Engine, rows: Arrays, size: int) -> np.ndarray[Any, Any]:
    """What each instance's gradient is multiplied with to have a norm of at most `CLIP_NORM`, (B,)."""
    norms = norms_of(rows)
    if len(norms) < size:  # one row after the other, because all of them may not fit into memory
        norms = np.concatenate([norms_of(exact.rows([i])) for i in range(size)])
    factors: np.ndarray[Any, Any] = CLIP_NORM / np.maximum(norms, CLIP_NORM)
    return factors


def _refuse_coupled(exact: Engine) -> None:
    """Some instances together must have the losses that they have alone."""
    together = exact.losses(slice(0, 3))
    if together.dtype != np.float64:
        raise PluginError(
            f"workload {exact.workload.name} computes its losses in {together.dtype.name} where parameters and inputs "
            "are float64, so that there is no truth: let its dtype follow from theirs"
        )
    alone = np.array([exact.losses(slice(i, i + 1))[0] for i in range(len(together))])
    if not np.allclose(together, alone, rtol=1e-9, atol=1e-12, equal_nan=True):
        i = int(np.argmax(np.abs(together - alone)))
        raise Coupled(
            f"workload {exact.workload.name} couples its instances: the loss of instance {i} is {alone[i]:.9g} alone "
            f"and {together[i]:.9g} in a batch of {len(together)}, as with batch normalisation. Its instances have no "
            "gradients of their own; make the statistics parameters or inputs"
        )


def _neighbours(parameters: Arrays, dtype: str, rng: np.random.Generator) -> list[Arrays]:
    """The parameters, and points near them, all rounded to `dtype`.

    One evaluation in low precision can be right by luck: 1 - p, for a probability p close to 1, errs by anything up
    to half the distance of two numbers near 1. At points nearby every rounding falls out anew, while the true
    gradient and its conditioning are nearly the same, so that the largest of several errors tells what to expect.
    """
    exact = cast(cast(parameters, dtype), "float64")
    moved = [
        {name: value * (1 + NEARNESS * rng.uniform(-1, 1, value.shape)) for name, value in exact.items()}
        for _ in range(NEIGHBOURS)
    ]
    return [exact, *(cast(cast(near, dtype), "float64") for near in moved)]


def _largest_error(pairs: Sequence[tuple[Arrays, Arrays]], scale: float, keep: int) -> Arrays:
    """`scale` times the largest |exact - plain| over the pairs and all axes beyond the first `keep`."""
    result: Arrays = {}
    for name, value in pairs[0][0].items():
        errors = scale * np.stack([np.abs(exact[name] - plain[name]) for exact, plain in pairs])
        axes = (0, *range(1 + keep, errors.ndim))
        result[name] = errors.max(axis=axes) if errors.size else np.zeros(value.shape[:keep])
    return result


def _larger(one: Arrays, other: Arrays) -> Arrays:
    return {name: np.maximum(value, other[name]) for name, value in one.items()}


def _nudged(arrays: Arrays, relative: float, rng: np.random.Generator) -> Arrays:
    """The arrays moved by so much as rounding errors move what is computed from them; integers stay.

    Where that changes the true gradient by more than a rounding error, a row sits on a kink: the sign of a ReLU's
    input, or which of two entries is the maximum, is decided by rounding, and either gradient is a right one.
    """
    floats, integers = split(arrays)
    moved = {
        name: value * (1 + relative * rng.choice([-1.0, 1.0], value.shape))
        for name, value in cast(floats, "float64").items()
    }
    return {**moved, **integers}
