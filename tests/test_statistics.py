"""What the statistics promise, on distributions whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis import scaling, statistics
from harness.analysis.statistics import Estimate, Interval, Verdict

times = st.floats(min_value=1e-9, max_value=1e3)
passes = st.lists(st.lists(times, min_size=1, max_size=30), min_size=1, max_size=5)


def lognormal(seed: int, median: float = 1.0, sigma: float = 0.1, of_pass: float = 0.02) -> list[list[float]]:
    """Three passes of forty rounds around `median`, as real times are: skewed, and shifted as a whole per pass."""
    rng = np.random.default_rng(seed)
    return [list(median * rng.lognormal(0, of_pass) * rng.lognormal(0, sigma, 40)) for _ in range(3)]


def test_the_estimate_is_the_median_over_passes_of_the_median_of_rounds() -> None:
    # given three passes, one of them disturbed
    disturbed = [[1.0, 2.0, 3.0], [2.0, 2.5, 9.0], [50.0, 60.0, 70.0]]
    # when it is estimated
    found = statistics.estimate(disturbed)
    # then the medians 2, 2.5 and 60 give 2.5: one bad pass does not move it
    assert found.value == 2.5
    assert found.passes == (2.0, 2.5, 60.0)


def test_a_single_sample_has_an_estimate_and_no_interval() -> None:
    found = statistics.estimate([[3.0]])

    assert found.value == 3.0
    assert not found.is_known


def test_one_sample_in_each_of_several_passes_has_an_interval() -> None:
    found = statistics.estimate([[3.0], [3.2], [2.9]])

    assert (found.low, found.high) == (2.9, 3.2)


def test_the_same_samples_always_give_the_same_interval() -> None:
    samples = lognormal(1)

    assert statistics.estimate(samples, seed=7) == statistics.estimate(samples, seed=7)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive finite"):
        statistics.estimate([[1.0, bad]])


def test_no_samples_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no samples"):
        statistics.estimate([[], []])


@given(passes)
def test_the_interval_holds_the_estimate_and_lies_within_the_samples(samples: list[list[float]]) -> None:
    found = statistics.estimate(samples)

    if found.low is not None and found.high is not None:
        everything = [time for rounds in samples for time in rounds]
        assert found.low <= found.value <= found.high
        assert min(everything) * (1 - 1e-12) <= found.low
        assert found.high <= max(everything) * (1 + 1e-12)


@given(passes, st.sampled_from([1e-3, 0.5, 8.0, 1e3]))
def test_changing_the_unit_changes_estimate_and_interval_alike(samples: list[list[float]], unit: float) -> None:
    # given the same samples in another unit
    scaled = [[time * unit for time in rounds] for rounds in samples]
    # when both are estimated
    one, other = statistics.estimate(samples), statistics.estimate(scaled)
    # then only the unit differs
    assert other.value == pytest.approx(one.value * unit, rel=1e-9)
    if one.low is not None and one.high is not None:
        assert (other.low, other.high) == pytest.approx((one.low * unit, one.high * unit), rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 10, 11])
def test_medians_of_resamples_follow_the_distribution_of_resampling_itself(count: int) -> None:
    # given a few samples
    rng = np.random.default_rng(3)
    samples = rng.lognormal(size=count)
    # when medians are drawn by the shortcut, and by drawing every resample
    short = statistics.replicate_medians(samples, 20_000, np.random.default_rng(4))
    long = np.median(rng.choice(samples, size=(20_000, count)), axis=1)
    # then their distributions agree: largest distance below the 99.9 % point of Kolmogorov and Smirnov
    grid = np.unique(np.concatenate([short, long]))
    distance = np.abs(
        np.searchsorted(np.sort(short), grid, "right") - np.searchsorted(np.sort(long), grid, "right")
    ).max()
    assert distance / 20_000 < 1.95 * math.sqrt(2 / 20_000)


def test_the_interval_of_one_pass_covers_the_true_median_as_often_as_it_says() -> None:
    # given 200 runs of one pass of 40 independent times whose true median is 1
    runs = [np.random.default_rng(seed).lognormal(0, 0.1, 40) for seed in range(200)]
    # when each is estimated
    found = [statistics.estimate([list(times)], seed) for seed, times in enumerate(runs)]
    # then about 95 % of the intervals hold 1
    hits = sum(e.low is not None and e.high is not None and e.low <= 1 <= e.high for e in found)
    assert 180 <= hits <= 200


def test_passes_that_differ_widen_the_interval() -> None:
    # given passes that agree, and passes that are shifted against each other
    close, apart = lognormal(5, of_pass=0.0), lognormal(5, of_pass=0.3)
    # when both are estimated
    near, far = statistics.estimate(close), statistics.estimate(apart)
    # then the interval knows of the shift
    assert width(far) > 3 * width(near)


def test_a_ratio_has_the_direction_of_its_arguments() -> None:
    # given a strategy that is ten times as fast as the baseline
    slow, fast = statistics.estimate(lognormal(1, 10.0), 1), statistics.estimate(lognormal(2, 1.0), 2)
    # when the speed-up is asked for
    speedup = statistics.ratio(slow, fast)
    # then it is above 1, and its inverse tells the same from the other side
    assert speedup.value == pytest.approx(10, rel=0.1)
    assert speedup.low is not None
    assert speedup.high is not None
    assert speedup.low < speedup.value < speedup.high
    assert speedup.inverse() == Interval(1 / speedup.value, 1 / speedup.high, 1 / speedup.low)


def test_a_ratio_with_a_single_sample_has_no_interval() -> None:
    assert not statistics.ratio(statistics.estimate([[2.0]]), statistics.estimate(lognormal(1))).is_known


def test_two_names_for_one_thing_are_seldom_told_apart() -> None:
    # given 100 pairs of measurements of the same thing, and the floor that other such pairs set
    def pair(seed: int) -> Interval:
        return statistics.ratio(
            statistics.estimate(lognormal(seed), seed), statistics.estimate(lognormal(seed + 1), seed + 1)
        )

    floor = statistics.noise_floor([pair(seed).value for seed in range(0, 80, 2)])
    assert floor is not None
    # when each is judged
    verdicts = [statistics.verdict(pair(seed), floor) for seed in range(1000, 1200, 2)]
    # then hardly any is called a difference
    assert sum(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts) <= 5


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.2, 1.5, Verdict.FASTER),
        (0.5, 0.8, Verdict.SLOWER),
        (0.97, 1.04, Verdict.SAME),
        (1.05, 1.3, Verdict.AMBIGUOUS),
        (0.7, 1.4, Verdict.AMBIGUOUS),
        (None, None, Verdict.AMBIGUOUS),
    ],
)
def test_a_verdict_needs_the_whole_interval_beyond_or_within_the_floor(
    low: float | None, high: float | None, expected: Verdict
) -> None:
    assert statistics.verdict(Interval(1.0, low, high), floor=1.1) is expected


def test_a_floor_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        statistics.verdict(Interval(1.0, 0.9, 1.1), floor=0.5)


@given(st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=50))
def test_the_noise_floor_does_not_care_which_of_a_pair_came_first(ratios: list[float]) -> None:
    # given pairs, and the same pairs the other way round
    floor, turned = statistics.noise_floor(ratios), statistics.noise_floor([1 / ratio for ratio in ratios])
    # then the floor is the same, and at least 1
    assert floor is not None
    assert floor >= 1
    assert turned == pytest.approx(floor)


def test_the_noise_floor_of_a_few_pairs_is_the_largest_difference_among_them() -> None:
    assert statistics.noise_floor([1.01, 0.8, 1.1]) == pytest.approx(1.25)


@pytest.mark.parametrize("ratios", [[], [math.nan, 0.0, -1.0, math.inf]])
def test_without_a_usable_pair_there_is_no_floor(ratios: list[float]) -> None:
    assert statistics.noise_floor(ratios) is None


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found_within_its_interval(power: float) -> None:
    # given times that grow as B to the power
    sizes = [1, 4, 16, 64, 256]
    measured = [statistics.estimate(lognormal(size, 1e-3 * size**power), size) for size in sizes]
    # when the exponent is fitted
    found = scaling.exponent(sizes, measured)
    # then it is the power
    assert found is not None
    assert found.value == pytest.approx(power, abs=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low - 0.02 <= power <= found.high + 0.02


def test_one_batch_size_has_no_exponent_and_zero_does_not_count() -> None:
    measured = [statistics.estimate(lognormal(seed), seed) for seed in (1, 2)]

    assert scaling.exponent([0, 4], measured) is None
    assert scaling.exponent([4, 4], measured) is None


@pytest.mark.parametrize(
    ("once", "mine", "other", "calls"), [(10.0, 1.0, 2.0, 10), (10.0, 2.0, 1.0, None), (0.0, 1.0, 2.0, 0)]
)
def test_compiling_pays_after_the_first_call_that_makes_up_for_it(
    once: float, mine: float, other: float, calls: int | None
) -> None:
    assert scaling.calls_to_pay(once, mine, other) == calls


def width(found: Estimate) -> float:
    """The length of an interval."""
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low
