"""Where one strategy overtakes another: the batch size at which their times are equal.

Pure functions on lists of numbers, as in `harness.analysis.statistics`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.analysis import statistics
from harness.analysis.statistics import Estimate, Floats, Interval, Verdict


@dataclass(frozen=True)
class Crossover:
    """At `batch_size` two strategies take the same time; beyond it one of them leads."""

    batch_size: Interval
    first_leads_after: bool
    """Whether it is the first of the two that is faster beyond; else it is faster up to there."""


def crossovers(
    batch_sizes: Sequence[int], first: Sequence[Estimate], second: Sequence[Estimate], floor: float
) -> list[Crossover]:
    """Every change of the lead between two strategies that are measured at the same batch sizes.

    A lead counts only where the interval of the ratio lies beyond the noise floor. Between two such batch sizes with
    different leaders, log time is taken to be a straight line in log batch size; the interval comes from doing the
    same with every replicate of the times, and never leaves the two batch sizes.

    Source: linear interpolation of the log ratio.

    Args:
        batch_sizes: ascending and positive.
        first: times of one strategy.
        second: times of the other, at the same batch sizes.
        floor: the noise floor, a factor of at least 1.
    """
    decided = [
        (size, one, two, verdict is Verdict.FASTER)
        for size, one, two in zip(batch_sizes, first, second, strict=True)
        if (verdict := statistics.verdict(statistics.ratio(two, one), floor)) in (Verdict.FASTER, Verdict.SLOWER)
    ]
    found = []
    for (low, one, two, led), (high, one_after, two_after, leads) in itertools.pairwise(decided):
        if led != leads:
            value = _meet(low, high, one.value / two.value, one_after.value / two_after.value)
            many = _meet(low, high, one.replicates / two.replicates, one_after.replicates / two_after.replicates)
            ends = statistics.percentile_interval(np.asarray(many))
            point = float(value)
            found.append(Crossover(Interval(point, min(ends[0], point), max(ends[1], point)), leads))
    return found


def _meet(low: float, high: float, before: float | Floats, after: float | Floats) -> Floats:
    """Where the straight line from log `before` at log `low` to log `after` at log `high` is zero."""
    one, two = np.log(before), np.log(after)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(one / (one - two), nan=0.5, posinf=1.0, neginf=0.0)
    met: Floats = low * (high / low) ** np.clip(share, 0.0, 1.0)
    return met
