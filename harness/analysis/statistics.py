"""Estimates, intervals, ratios and verdicts: pure functions on lists of numbers.

Nothing here knows of runs, cases or files. Every function names the source of its method. All random draws come
from a generator whose seed is an argument, so the same samples always give the same interval.

Times may be in any unit, as long as it is the same one throughout; ratios and exponents have none.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy import special

CONFIDENCE = 0.95
"""Coverage that every interval aims at."""

REPLICATES = 1000
"""Values that stand for the distribution of an estimate; the ends of a 95 % interval rest on 25 of them each."""

ASSUMED_FLOOR = 1.2
"""Noise floor where none was measured: phases minutes apart differ by 20 % on shared virtual machines."""

TWO_SPEEDS = 1.25
"""Where the two middle processes differ by more than this factor, the time between them is shown by none."""

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
class Spread:
    """How much processes of one strategy differ: the variance of the logarithm of their medians.

    `freedom` are the degrees of freedom that it counts with beside what a case shows itself.
    """

    variance: float
    freedom: float = 4.0


def spread_of(floor: float) -> Spread:
    """The spread with which two processes differ by less than `floor` in 95 % of pairs."""
    return Spread((math.log(floor) / 1.96) ** 2 / 2)


ASSUMED_SPREAD = spread_of(ASSUMED_FLOOR)
"""Where no two processes measured the same."""


@dataclass(frozen=True)
class Estimate(Interval):
    """The time of a case with its interval, and what comparing it with another needs."""

    passes: tuple[float, ...]
    """The median of rounds of each process that has samples."""
    log_error: float | None = None
    """Standard error of the logarithm of the value; None where nothing is known of the spread."""
    freedom: float = 1.0
    """Degrees of freedom behind `log_error`."""
    seed: int = 0
    """Of the order of the replicates."""

    @property
    def replicates(self) -> Floats:
        """Values that stand for its distribution, (REPLICATES,) in random order; empty where that is unknown."""
        if self.log_error is None:
            return np.empty(0)
        replicates = np.exp(median(np.log(self.passes)) + self.log_error * _quantiles_of_t(self.freedom))
        return np.random.default_rng(self.seed).permutation(replicates)


def estimate(passes: Sequence[Sequence[float] | Floats], seed: int = 0, spread: Spread = ASSUMED_SPREAD) -> Estimate:
    """The median over processes of the median of rounds, with a t interval for both components of its variance.

    Processes differ by more than their rounds do (other memory layout, other hash seeds), so the spread is taken
    between medians of processes, on the logarithmic scale. A few processes do not show their own spread, so that of
    all cases of a panel is mixed in, as so many further degrees of freedom: s^2 = (f0 s0^2 + f s^2) / (f0 + f). It is
    never taken for less than the spread of the rounds within a process explains.

    Where the two middle processes differ by more than `TWO_SPEEDS`, the value is the faster of them: what no process
    showed is no time.

    Sources: Kalibera and Jones, "Rigorous benchmarking in reasonable time" (2013), for the hierarchy and the t
    interval; Smyth, "Linear models and empirical Bayes methods" (2004), section 3, for the moderated variance.

    Args:
        passes: one sequence of times per process, in order of measurement; those without samples are left out.
        seed: seed of the order of the replicates. Give two cases different seeds.
        spread: between processes, pooled over comparable cases.

    Raises:
        ValueError: if there is no sample, or one is not a positive finite number.
    """
    arrays = [np.asarray(samples, dtype=np.float64) for samples in passes if len(samples)]
    if not arrays:
        raise ValueError("no samples: an estimate needs at least one timed call in one pass")
    if any(not np.all(np.isfinite(array) & (array > 0)) for array in arrays):
        raise ValueError("every time must be a positive finite number")
    medians = tuple(median(array) for array in arrays)
    if sum(len(array) for array in arrays) == 1:
        return Estimate(medians[0], None, None, medians)
    logs, count = np.log(medians), len(medians)
    own = float(np.var(logs, ddof=1)) if count > 1 else 0.0
    freedom = spread.freedom + count - 1
    between = (spread.freedom * spread.variance + (count - 1) * own) / freedom
    within = float(np.mean([log_variance_of_median(array) for array in arrays]))
    efficiency = math.pi / 2 if count > 2 else 1.0  # of the median against the mean, which of two are the same
    log_error = math.sqrt(efficiency * max(between, within) / count)
    centre, value = median(logs), _middle(sorted(medians))
    margin = _quantile_of_t(freedom, (1 + CONFIDENCE) / 2) * log_error
    return Estimate(
        value,
        min(value, math.exp(centre - margin)),
        max(value, math.exp(centre + margin)),
        medians,
        log_error,
        freedom,
        seed,
    )


def median(values: Floats) -> float:
    """The median, as `np.median` gives it, several times as fast for the few dozen turns of a case.

    Args:
        values: at least one, without NaN.
    """
    ordered = np.sort(values)
    count = len(ordered)
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2


@functools.cache
def _quantile_of_t(freedom: float, share: float) -> float:
    return float(special.stdtrit(freedom, share))


@functools.cache
def _quantiles_of_t(freedom: float) -> Floats:
    """`REPLICATES` values that stand for a t distribution; many cases have the same degrees of freedom."""
    found: Floats = special.stdtrit(freedom, (np.arange(REPLICATES) + 0.5) / REPLICATES)
    found.flags.writeable = False
    return found


def log_variance_of_median(samples: Floats) -> float:
    """Variance of the logarithm of the median of samples.

    The variance of a median is pi / 2 times that of the mean; the standard deviation comes from the median absolute
    deviation, which a few disturbed rounds leave alone.

    Source: Rousseeuw and Croux, "Alternatives to the median absolute deviation" (1993).
    """
    logs = np.log(samples)
    deviation = 1.4826 * median(np.abs(logs - median(logs)))
    return math.pi / 2 * deviation**2 / len(samples)


def pooled_spread(cases: Sequence[Sequence[float]]) -> Spread:
    """How much processes of one strategy differ, from all cases that were measured in several.

    The median of the variances, each divided by the median of its own distribution (chi-square over its degrees of
    freedom), so that a few strategies with two speeds do not widen the intervals of all others.

    Args:
        cases: for each case the medians of its processes.

    Returns:
        `ASSUMED_SPREAD` without two processes of the same.
    """
    scaled = [
        float(np.var(np.log(medians), ddof=1)) / (float(special.gammaincinv(free / 2, 0.5)) * 2 / free)
        for medians in cases
        if (free := len(medians) - 1) > 0
    ]
    return Spread(float(np.median(scaled))) if scaled else ASSUMED_SPREAD


def two_speeds(passes: Sequence[float], spread: Spread) -> tuple[float, float] | None:
    """The slowest of the fast and the fastest of the slow processes of a case that has two speeds; None if it has one.

    They are further apart than `TWO_SPEEDS` and than four times what processes of other cases differ by.
    """
    ordered = sorted(passes)
    apart = max(TWO_SPEEDS, math.exp(4 * math.sqrt(spread.variance)))
    gaps = [(slow / fast, fast, slow) for fast, slow in itertools.pairwise(ordered)]
    widest = max(gaps, default=(1.0, 0.0, 0.0))
    return widest[1:] if widest[0] > apart else None


def percentile_interval(replicates: Floats, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The central `confidence` share of bootstrap replicates.

    Source: Efron and Tibshirani (1993), section 13.3.
    """
    tail = (1 - confidence) / 2
    return _quantile(replicates, tail), _quantile(replicates, 1 - tail)


def ratio(numerator: Estimate, denominator: Estimate, confidence: float = CONFIDENCE) -> Interval:
    """How many times `denominator` goes into `numerator`, with a t interval on the logarithmic scale.

    The speed-up of A over B is `ratio(time of B, time of A)`: above 1 means that A is faster. The degrees of freedom
    are those of Welch and Satterthwaite.

    Source: Kalibera and Jones (2013), section 7: interval of the ratio of two times; Welch, "The generalization of
    Student's problem" (1947).

    Args:
        confidence: coverage of the interval.
    """
    value = numerator.value / denominator.value
    if numerator.log_error is None or denominator.log_error is None:
        return Interval(value, None, None)
    variances = numerator.log_error**2, denominator.log_error**2
    freedoms = numerator.freedom, denominator.freedom
    parts = sum(variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True))
    freedom = sum(variances) ** 2 / parts if parts else min(freedoms)
    margin = math.exp(float(special.stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(sum(variances)))
    return Interval(value, value / margin, value * margin)


def shared_confidence(comparisons: int) -> float:
    """The confidence that each of several comparisons needs, so that all of them hold at once with `CONFIDENCE`.

    Source: Bonferroni's inequality; for comparisons with the best, Hsu, "Multiple comparisons" (1996), chapter 4, of
    which it is the conservative bound.
    """
    return 1 - (1 - CONFIDENCE) / max(1, comparisons)


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


def _quantile(values: Floats, share: float) -> float:
    """What `np.quantile` gives, several times as fast for the few thousand values of an interval."""
    position = share * (len(values) - 1)
    below = min(int(position), max(0, len(values) - 2))
    above = min(below + 1, len(values) - 1)
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * (position - below)


def _middle(ordered: Sequence[float]) -> float:
    """The median on the logarithmic scale; of two middle values that are two speeds the faster."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if high > TWO_SPEEDS * low else math.sqrt(low * high)
