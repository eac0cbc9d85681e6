"""Estimates, intervals, ratios and verdicts: pure functions on lists of numbers.

Nothing here knows of runs, cases or files. Every function names the source of its method. All random draws come
from a generator whose seed is an argument, so the same samples always give the same interval.

Times may be in any unit, as long as it is the same one throughout; ratios and exponents have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Coverage that every interval aims at."""

REPLICATES = 1000
"""Bootstrap replicates per estimate; the ends of a 95 % interval then rest on 25 replicates each."""

ASSUMED_FLOOR = 1.2
"""Noise floor where none was measured: phases minutes apart differ by 20 % on shared virtual machines."""

Floats = NDArray[np.float64]


class Verdict(StrEnum):
    """What may be said about two times.

    Source: the words of NVBench's comparison script.
    """

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval; the ends are None where nothing is known of the spread."""

    value: float
    low: float | None
    high: float | None

    @property
    def is_known(self) -> bool:
        """Whether there is an interval at all (a single sample has none)."""
        return self.low is not None and self.high is not None

    def inverse(self) -> Interval:
        """The same statement about the reciprocal: 2 times faster [1.5, 3] read from the other side."""
        return Interval(
            1 / self.value,
            None if self.high is None else 1 / self.high,
            None if self.low is None else 1 / self.low,
        )


@dataclass(frozen=True)
class Estimate(Interval):
    """The time of a case with its interval, and the bootstrap replicates behind it."""

    passes: tuple[float, ...]
    """The median of rounds of each pass that has samples."""
    replicates: Floats = field(repr=False, compare=False)
    """Shape (REPLICATES,); empty where the interval is unknown."""


def estimate(passes: Sequence[Sequence[float] | Floats], seed: int = 0) -> Estimate:
    """The median over passes of the median of rounds, with a hierarchical bootstrap interval.

    A replicate draws passes with replacement, and rounds with replacement within each drawn pass: passes differ
    by more than their rounds do (other process, other memory layout, other load), and rounds within one pass
    are correlated, so resampling rounds alone would give intervals that are far too narrow.

    With few passes an interval cannot know what it has not seen: the range of 3 passes covers the median of all
    possible passes with probability 1 - 2 (1/2)^3 = 75 % only. That is why a verdict asks for the noise floor too.

    Sources: Kalibera and Jones, "Rigorous benchmarking in reasonable time" (2013), for the hierarchy; Efron and
    Tibshirani, "An introduction to the bootstrap" (1993), chapter 13, for the percentile interval.

    Args:
        passes: one sequence of times per pass, in order of measurement; passes without samples are left out.
        seed: seed of the draws. Give two cases different seeds if their ratio will be asked for.

    Raises:
        ValueError: if there is no sample, or one is not a positive finite number.
    """
    arrays = [np.asarray(samples, dtype=np.float64) for samples in passes if len(samples)]
    if not arrays:
        raise ValueError("no samples: an estimate needs at least one timed call in one pass")
    if any(not np.all(np.isfinite(array) & (array > 0)) for array in arrays):
        raise ValueError("every time must be a positive finite number")
    medians = tuple(float(np.median(array)) for array in arrays)
    value = float(np.median(medians))
    if sum(len(array) for array in arrays) == 1:
        return Estimate(value, None, None, medians, np.empty(0))
    replicates = _replicates(arrays, np.random.default_rng(seed))
    low, high = percentile_interval(replicates)
    # The percentile interval of a median holds the median, except for ties of the last digit.
    return Estimate(value, min(low, value), max(high, value), medians, replicates)


def percentile_interval(replicates: Floats, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The central `confidence` share of bootstrap replicates.

    Source: Efron and Tibshirani (1993), section 13.3.
    """
    tail = (1 - confidence) / 2
    return _quantile(replicates, tail), _quantile(replicates, 1 - tail)


def replicate_medians(samples: Floats, count: int, generator: np.random.Generator) -> Floats:
    """Medians of `count` resamples of `samples`, exact in distribution, without drawing the resamples.

    Drawing n of n values with replacement is drawing n uniform numbers u and taking `sorted[floor(n u)]`; because
    that map is monotone, the k-th smallest drawn value belongs to the k-th smallest u, which follows
    Beta(k, n + 1 - k). An even n needs the next one too: the gap from it to 1 shrinks by a factor of
    1 - Beta(1, n - k). Work is O(n log n + count) instead of O(n count), which is what makes thousands of cases
    affordable.

    Source: David and Nagaraja, "Order statistics" (2003), sections 2.2 and 2.5.

    Returns:
        Array of shape (count,).
    """
    ordered = np.sort(samples)
    n = len(ordered)
    if n == 1:
        return np.full(count, ordered[0])
    k = (n + 1) // 2
    lower = generator.beta(k, n + 1 - k, size=count)
    if n % 2:
        return _at(ordered, lower)
    upper = lower + (1 - lower) * generator.beta(1, n - k, size=count)
    return (_at(ordered, lower) + _at(ordered, upper)) / 2


def ratio(numerator: Estimate, denominator: Estimate) -> Interval:
    """How many times `denominator` goes into `numerator`, with a bootstrap interval.

    The speed-up of A over B is `ratio(time of B, time of A)`: above 1 means that A is faster. The two sets of
    replicates must be independent draws (different seeds); replicate i of one is divided by replicate i of the
    other.

    Source: Kalibera and Jones (2013), section 7: bootstrap interval of the ratio of two times.
    """
    value = numerator.value / denominator.value
    if not (len(numerator.replicates) and len(denominator.replicates)):
        return Interval(value, None, None)
    low, high = percentile_interval(numerator.replicates / denominator.replicates)
    return Interval(value, min(low, value), max(high, value))


def noise_floor(ratios: Sequence[float], confidence: float = CONFIDENCE) -> float | None:
    """The factor by which two measurements of the same thing differ at most, in `confidence` of all pairs.

    Two names for one strategy, or two passes of one case, ought to have the ratio 1. Ratios are taken on the log
    scale without sign (2 and 1/2 are the same disagreement), and the quantile is rounded up to the next observed
    value, so that a few pairs give the largest of them.

    Source: the A/A test of controlled experiments (Kohavi, Tang and Xu, "Trustworthy online controlled
    experiments", 2020, chapter 19); the quantile is a nonparametric tolerance bound.

    Args:
        ratios: measured ratios of control pairs; those that are not positive finite numbers are left out.

    Returns:
        A factor of at least 1 (1.06: differences below 6 % are ties), or None without any pair.
    """
    sizes = [abs(math.log(ratio)) for ratio in ratios if math.isfinite(ratio) and ratio > 0]
    if not sizes:
        return None
    return float(math.exp(np.quantile(sizes, confidence, method="higher")))


def verdict(speedup: Interval, floor: float) -> Verdict:
    """What a speed-up with its interval allows to be said, given the noise floor.

    FASTER and SLOWER need the whole interval beyond the floor, SAME needs it within; the rest is AMBIGUOUS, as is
    everything without an interval.

    Source: the decision of NVBench's comparison script, with the floor of an A/A test as the threshold.

    Args:
        speedup: above 1 means faster.
        floor: a factor of at least 1, see `noise_floor`.

    Raises:
        ValueError: if `floor` is below 1.
    """
    if floor < 1:
        raise ValueError(f"a noise floor is a factor of at least 1, not {floor:g}")
    if speedup.low is None or speedup.high is None:
        return Verdict.AMBIGUOUS
    if speedup.low > floor:
        return Verdict.FASTER
    if speedup.high < 1 / floor:
        return Verdict.SLOWER
    if speedup.low >= 1 / floor and speedup.high <= floor:
        return Verdict.SAME
    return Verdict.AMBIGUOUS


def exponent(batch_sizes: Sequence[int], times: Sequence[Estimate]) -> Interval | None:
    """The exponent p of time ~ B^p: the least-squares slope of log time over log batch size.

    0 is time that does not depend on B, 1 a loop, 2 a Jacobian that goes through the whole batch once per
    instance. The interval comes from fitting every bootstrap replicate; it describes noise of the measurement and
    not curvature, and time that is all overhead for small B pulls the slope down.

    Source: least squares on log-log scale as in McGeoch, "A guide to experimental algorithmics" (2012),
    chapter 7; bootstrap as for `estimate`.

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
    low, high = percentile_interval(weights @ np.log([time.replicates for _, time in usable]))
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


def _quantile(values: Floats, share: float) -> float:
    """What `np.quantile` gives, several times as fast for the few thousand values of an interval."""
    position = share * (len(values) - 1)
    below = min(int(position), max(0, len(values) - 2))
    above = min(below + 1, len(values) - 1)
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * (position - below)


def _at(ordered: Floats, positions: Floats) -> Floats:
    """The entries of `ordered` at relative positions in [0, 1); rounding may give 1 itself."""
    last = len(ordered) - 1
    return ordered[np.minimum((positions * len(ordered)).astype(np.intp), last)]


def _replicates(passes: Sequence[Floats], generator: np.random.Generator) -> Floats:
    drawn = generator.integers(len(passes), size=(REPLICATES, len(passes)))
    medians = np.empty(drawn.shape)
    for number, samples in enumerate(passes):
        chosen = drawn == number
        medians[chosen] = replicate_medians(samples, int(chosen.sum()), generator)
    medians.sort(axis=1)  # faster than np.median for so few columns
    middle = len(passes) // 2
    result: Floats = medians[:, middle] if len(passes) % 2 else (medians[:, middle - 1] + medians[:, middle]) / 2
    return result
