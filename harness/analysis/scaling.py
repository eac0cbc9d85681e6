"""How times grow with the batch size, and after how many calls a slow start is paid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.analysis import statistics
from harness.analysis.statistics import Estimate, Interval


def exponent(batch_sizes: Sequence[int], times: Sequence[Estimate]) -> Interval | None:
    """The exponent p of time ~ B^p: the least-squares slope of log time over log batch size.

    0 is time that does not depend on B, 1 a loop, 2 a Jacobian that goes through the whole batch once per
    instance. The interval comes from fitting every replicate of the times; it describes noise of the measurement and
    not curvature, and time that is all overhead for small B pulls the slope down.

    Source: least squares on log-log scale as in McGeoch, "A guide to experimental algorithmics" (2012),
    chapter 7.

    Returns:
        None with fewer than two different positive batch sizes.
    """
    usable = [(size, time) for size, time in zip(batch_sizes, times, strict=True) if size > 0]
    if len({size for size, _ in usable}) < 2:
        return None
    x = np.log([size for size, _ in usable])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    value = float(weights @ np.log([time.value for _, time in usable]))
    if any(not len(time.replicates) for _, time in usable):
        return Interval(value, None, None)
    low, high = statistics.percentile_interval(weights @ np.log([time.replicates for _, time in usable]))
    return Interval(value, min(low, value), max(high, value))


def calls_to_pay(once: float, per_call: float, other_per_call: float) -> int | None:
    """The number of calls after which paying `once` is worth it: the smallest n with once + n a <= n b.

    Args:
        once: build and first call, in the unit of the other two.
        per_call: steady state of what was paid for.
        other_per_call: steady state of what would be used otherwise, at no cost in advance.

    Returns:
        None if it never pays.
    """
    gain = other_per_call - per_call
    return math.ceil(once / gain) if gain > 0 else None
