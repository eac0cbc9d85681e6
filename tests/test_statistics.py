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

    assert found.low is not None
    assert found.high is not None
    assert found.low < 2.9 < found.value < 3.2 < found.high


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
def test_the_estimate_lies_within_the_samples_and_its_interval(samples: list[list[float]]) -> None:
    found = statistics.estimate(samples)
    everything = [time for rounds in samples for time in rounds]

    assert min(everything) * (1 - 1e-12) <= found.value <= max(everything) * (1 + 1e-12)
    if found.low is not None and found.high is not None:
        assert found.low <= found.value <= found.high


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


def measured_panel(
    seed: int, cases: int = 40, processes: int = 2, apart: float = 0.03, rounds: int = 12, noise: float = 0.08
) -> list[list[list[float]]]:
    """Cases whose true time is 1: processes of each differ by `apart`, rounds of a process by `noise`."""
    rng = np.random.default_rng(seed)
    return [
        [list(rng.lognormal(0, apart) * rng.lognormal(0, noise, rounds)) for _ in range(processes)]
        for _ in range(cases)
    ]


def medians(case: list[list[float]]) -> list[float]:
    return [float(np.median(samples)) for samples in case]


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("rounds", [5, 12, 40])
def test_intervals_hold_the_truth_as_often_as_they_say(processes: int, rounds: int) -> None:
    # given ten panels of cases whose true time is 1
    hits = count = 0
    for seed in range(10):
        panel = measured_panel(seed, processes=processes, rounds=rounds)
        # when each case is estimated with the spread between processes that its panel shows
        spread = statistics.pooled_spread([medians(case) for case in panel])
        found = [statistics.estimate(case, number, spread) for number, case in enumerate(panel)]
        hits += sum((time.low or 0) <= 1 <= (time.high or 0) for time in found)
        count += len(found)
    # then about 95 % of the intervals hold it
    assert 0.92 <= hits / count <= 0.995


def test_the_ratio_of_two_processes_of_one_strategy_holds_1_as_often_as_it_says() -> None:
    hits = count = 0
    for seed in range(10):
        panel = measured_panel(seed)
        spread = statistics.pooled_spread([medians(case) for case in panel])
        for one, other in panel:
            ratio = statistics.ratio(statistics.estimate([one], 1, spread), statistics.estimate([other], 2, spread))
            hits += (ratio.low or 0) <= 1 <= (ratio.high or 0)
            count += 1
    assert 0.92 <= hits / count <= 0.995


def test_of_500_cases_that_did_not_change_hardly_ever_one_is_called_slower() -> None:
    alarms = 0
    for seed in range(20):
        runs = [measured_panel(1000 + 2 * seed + run, cases=500) for run in (0, 1)]
        spreads = [statistics.pooled_spread([medians(case) for case in run]) for run in runs]
        estimates = [
            [statistics.estimate(c, 0, spread) for c in run] for run, spread in zip(runs, spreads, strict=True)
        ]
        confidence = statistics.shared_confidence(500)
        ratios = [statistics.ratio(one, two, confidence) for one, two in zip(*estimates, strict=True)]
        alarms += any((ratio.high or 1) < 1 for ratio in ratios)
    assert alarms <= 3  # 5 % of 20, and twice the standard deviation of that


def test_a_spread_that_one_strategy_of_two_speeds_has_is_not_everyones() -> None:
    calm = [medians(case) for case in measured_panel(1, cases=20)]
    loud = [*calm, [1.0, 2.5], [1.0, 2.6]]

    assert statistics.pooled_spread(loud).variance < 2 * statistics.pooled_spread(calm).variance


def test_two_speeds_are_named_and_the_time_is_one_that_a_process_showed() -> None:
    passes = [[19e-6] * 12, [48e-6] * 12]

    assert statistics.estimate(passes).value == 19e-6
    assert statistics.two_speeds(medians(passes), statistics.Spread(0.03**2)) == (19e-6, 48e-6)
    assert statistics.two_speeds([1.0, 1.1], statistics.Spread(0.03**2)) is None
    assert statistics.two_speeds([1.0, 1.3], statistics.Spread(0.1**2)) is None, "as far apart as others are"
    assert statistics.two_speeds([1.0], statistics.ASSUMED_SPREAD) is None


@given(st.floats(0.5, 0.999), st.floats(0.0, 0.5))
def test_a_higher_confidence_widens_a_ratio(confidence: float, more: float) -> None:
    one, other = statistics.estimate(lognormal(1), 1), statistics.estimate(lognormal(2), 2)
    narrow = statistics.ratio(one, other, confidence)
    wide = statistics.ratio(one, other, confidence + more * (1 - confidence))

    assert width(wide) >= width(narrow)


def test_comparisons_share_their_confidence() -> None:
    assert statistics.shared_confidence(1) == pytest.approx(0.95)
    assert statistics.shared_confidence(50) == pytest.approx(0.999)
    assert statistics.shared_confidence(0) == pytest.approx(0.95)


def test_passes_that_differ_widen_the_interval() -> None:
    # given passes that agree, and passes that are shifted against each other
    close, apart = lognormal(5, of_pass=0.0), lognormal(5, of_pass=0.3)
    # when both are estimated
    near, far = statistics.estimate(close), statistics.estimate(apart)
    # then the interval knows of the shift
    assert width(far) > width(near)


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
