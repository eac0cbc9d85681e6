"""Bound the rounding errors to be expected in a batch: what a strategy's error is held against.

Plain arithmetic in the dtype under test is compared with float64 on the same rows, at several points near the
parameters and in two forms of every operation. Rows that sit on a kink are found too: there either side is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.core.workload import Arrays, Workload, cast, split
from harness.reference.gradients import ReferenceGradients
from harness.reference.result import EPSILON, SMALLEST, norms_of

NEIGHBOURS = 3
"""At how many points near the parameters the errors of plain arithmetic are measured."""

NEARNESS = 2.0**-8
"""How far those points are, relative to each parameter: far enough that every rounding is another."""

NUDGES = 3
"""How often parameters and inputs are moved by up to `NUDGE` units in the last place, to find rows on a kink."""

NUDGE = 4

STEPS = (-1.0, -0.5, 0.5, 1.0)
"""Multiples of a nudge. They have two sizes, so that equal values rarely stay equal."""

KINK_SHARE = 1 / 8
"""The share of a kink's size that counts as rounding error, of which agreement allows sixteen times."""


class RoundingErrors:
    """Bounds of the rounding errors on one batch.

    An error is infinite where arithmetic in the dtype under test overflows although the true gradient is finite.

    Args:
        workload: what is differentiated.
        parameters: in the dtype under test.
        batch: in the dtype under test.
        rng: what the points nearby are drawn from.
    """

    def __init__(self, workload: Workload, parameters: Arrays, batch: Arrays, rng: np.random.Generator) -> None:
        floats, state = split(parameters)
        dtype = next(iter(floats.values())).dtype.name
        plain = "bfloat16" if dtype == "bfloat16" else "float32"
        self.scale = EPSILON[dtype] / EPSILON[plain]  # float64 errs as float32 does, with smaller rounding errors

        def at(point: Arrays, dtype: str, other_form: bool = False) -> ReferenceGradients:
            moved = EPSILON[plain] if other_form else 0.0
            return ReferenceGradients(workload, {**point, **state}, batch, dtype, moved)

        here, *neighbours = _neighbours(floats, plain, rng)
        self.here = [at(here, plain), at(here, plain, other_form=True)]
        self.near = [(at(point, "float64"), at(point, plain, other_form=True)) for point in neighbours]
        nudge = NUDGE * EPSILON[dtype]
        self.nudged = [
            ReferenceGradients(
                workload, {**_off_zero(floats, nudge, rng), **state}, _nudged(batch, nudge, rng), "float64"
            )
            for _ in range(NUDGES)
        ]

    def of_rows(self, true: Arrays, instances: np.ndarray[Any, Any]) -> tuple[Arrays, np.ndarray[Any, Any]]:
        """The largest error in the rows of these instances, `{name: (n,)}`, and in their norms, (n,)."""
        with np.errstate(all="ignore"):
            pairs = [(true, plain.rows(instances)) for plain in self.here]
            pairs += [(exact.rows(instances), plain.rows(instances)) for exact, plain in self.near]
            kinks = [(true, _where_known(nudged.rows(instances), true)) for nudged in self.nudged]
            norms = [({"norms": norms_of(exact)}, {"norms": norms_of(plain)}) for exact, plain in pairs]
            errors = _larger(_largest_error(pairs, self.scale, keep=1), _largest_error(kinks, KINK_SHARE, keep=1))
            return errors, _largest_error(norms, self.scale, keep=1)["norms"]

    def of_sum(self, true: Arrays, factors: np.ndarray[Any, Any]) -> Arrays:
        """The largest error in the sum of factors x gradients, `{name: scalar}`. A batch averages errors."""
        with np.errstate(all="ignore"):
            rounding = _largest_error([(true, plain.weighted(factors)) for plain in self.here], self.scale, keep=0)
            kinks = [(true, _where_known(nudged.weighted(factors), true)) for nudged in self.nudged]
            return _larger(rounding, _largest_error(kinks, KINK_SHARE, keep=0))


def _neighbours(parameters: Arrays, dtype: str, rng: np.random.Generator) -> list[Arrays]:
    """The parameters, and points near them, all rounded to `dtype`.

    One evaluation in low precision can be right by luck: 1 - p, for a probability p close to 1, errs by anything up
    to half the distance of two numbers near 1. At points nearby every rounding is another, while the true gradient
    and its conditioning are nearly the same, so the largest of several errors is what to expect.
    """
    exact = cast(cast(parameters, dtype), "float64")
    moved = [
        {name: value * (1 + NEARNESS * rng.uniform(-1, 1, value.shape)) for name, value in exact.items()}
        for _ in range(NEIGHBOURS)
    ]
    return [exact, *(cast(cast(near, dtype), "float64") for near in moved)]


def _nudged(arrays: Arrays, relative: float, rng: np.random.Generator) -> Arrays:
    """The arrays moved by so much as rounding errors move what is computed from them; integers stay.

    Where that changes the true gradient by more than a rounding error, a row sits on a kink: the sign of a ReLU's
    input, or which of two entries is the maximum, is decided by rounding, and either gradient is a right one. Values
    below the smallest normal number become 0, as they do in hardware that flushes them.
    """
    floats, integers = split(arrays)
    moved = {}
    for name, given in floats.items():
        value = given.astype("float64")
        stepped = value * (1 + relative * rng.choice(STEPS, value.shape))
        moved[name] = np.where(np.abs(value) < SMALLEST[given.dtype.name], 0.0, stepped)
    return {**moved, **integers}


def _off_zero(parameters: Arrays, relative: float, rng: np.random.Generator) -> Arrays:
    """Nudged parameters, of which those that are 0 have a sign too: weights that start at 0 put all rows on a kink.

    In float64 the smallest distance from a kink decides its side, so they are moved by very little. Inputs that are 0
    stay 0: they may be flags, and a flag that is not quite 0 takes the other branch.
    """
    moved = _nudged(parameters, relative, rng)
    return {
        name: np.where(parameters[name] == 0, relative**2 * rng.choice(STEPS, value.shape), value)
        for name, value in moved.items()
    }


def _where_known(values: Arrays, true: Arrays) -> Arrays:
    """Replace values that are not finite by the true ones: a nudge may leave the domain of a root or a logarithm."""
    return {name: np.where(np.isfinite(value), value, true[name]) for name, value in values.items()}


def _largest_error(pairs: Sequence[tuple[Arrays, Arrays]], scale: float, keep: int) -> Arrays:
    """`scale` times the largest |exact - plain| over the pairs and all axes beyond the first `keep`.

    A point nearby without a finite gradient says nothing. Where float32 stands for float64, its overflow says nothing
    either; elsewhere the error is infinite there.
    """
    result: Arrays = {}
    for name, value in pairs[0][0].items():
        errors = scale * np.stack([np.abs(exact[name] - plain[name]) for exact, plain in pairs])
        known = np.stack([np.isfinite(exact[name]) for exact, _ in pairs])
        overflow = np.inf if scale == 1 else 0.0
        errors = np.where(known, np.where(np.isfinite(errors), errors, overflow), 0.0)
        axes = (0, *range(1 + keep, errors.ndim))
        result[name] = errors.max(axis=axes) if errors.size else np.zeros(value.shape[:keep])
    return result


def _larger(one: Arrays, other: Arrays) -> Arrays:
    return {name: np.maximum(value, other[name]) for name, value in one.items()}
