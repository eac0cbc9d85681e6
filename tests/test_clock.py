"""Warm-up, rounds, and checks of the clock, on made-up steps whose true cost is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measure import timer, timing_checks
from harness.measure.timer import Timing


class PlainStopwatch:
    """What pytest-benchmark's fixture does, without pytest."""

    def __init__(self) -> None:
        self.stats = SimpleNamespace(stats=SimpleNamespace(data=[]))

    def pedantic(self, target: Callable[..., Any], *, setup: Callable[[], Any], rounds: int, iterations: int) -> None:
        for _ in range(rounds):
            arguments, keywords = setup()
            started = time.perf_counter()
            target(*arguments, **keywords)
            self.stats.stats.data.append(time.perf_counter() - started)


ADAPTER: Any = SimpleNamespace(name="numpy", wait=lambda output: output, array_types=(np.ndarray,))


def fetch(output: Any) -> Mapping[str, Any]:
    return output() if callable(output) else output  # type: ignore[no-any-return]


def timing(**columns: Any) -> Timing:
    base: dict[str, Any] = {
        "samples_ns": (1_000_000,) * 5,
        "between_s": 1e-5,
        "minor_faults": 0.0,
        "cores_busy": 1.0,
        "system_share": 0.0,
        "outputs": {},
    }
    return Timing(**(base | columns))


def test_times_have_settled_when_two_windows_of_five_agree() -> None:
    assert timer.settled([9.0] * 5 + [1.0] * 10)
    assert not timer.settled([9.0] * 5 + [1.0] * 5)


def test_three_slow_calls_are_enough_if_they_agree() -> None:
    assert timer.settled([0.5, 0.1, 0.101])
    assert not timer.settled([0.5, 0.3, 0.1])
    assert not timer.settled([0.001, 0.001, 0.001])


@given(st.floats(1e-6, 100), st.floats(0, 10), st.integers(5, 5000))
def test_the_number_of_rounds_is_bounded_and_fills_the_target(call_s: float, target_s: float, most: int) -> None:
    rounds = timer.round_count([call_s] * 10, target_s, most)

    assert min(timer.FEWEST_ROUNDS, most) <= rounds <= most
    assert rounds == most or rounds * call_s >= target_s * 0.999


@pytest.mark.parametrize(("rounds", "rule"), [(5, "few rounds"), (2000, "rounds"), (700, "time")])
def test_the_rule_that_ended_the_case_is_named(rounds: int, rule: str) -> None:
    assert timer.stopping_rule(rounds, most=2000) == rule


def test_inputs_rotate_and_outputs_of_timed_calls_are_kept_with_their_batch() -> None:
    seen = []

    def step(batch: Any) -> dict[str, Any]:
        seen.append(batch)
        return {"w": np.array([batch])}

    found = timer.timed_calls(ADAPTER, step, [10, 11, 12], 8, PlainStopwatch(), fetch)  # type: ignore[list-item]

    assert seen == [10, 11, 12, 10, 11, 12, 10, 11]
    assert {number: int(output["w"][0]) for number, output in found.outputs.items()} == {0: 10, 1: 11}
    assert len(found.samples_ns) == 8


def test_a_result_that_changes_after_the_return_is_unfinished() -> None:
    values = iter([np.zeros(2), np.ones(2)])

    assert "its work was not waited for" in timing_checks.finished(lambda _: {"w": next(values)}, {}, 0.0)
    assert timing_checks.finished(lambda _: {"w": np.zeros(2)}, {}, 0.0) == ""


def test_work_hidden_in_the_fetch_is_seen() -> None:
    small = {"w": np.ones(125)}
    assert "hidden in the fetch" in timing_checks.fetch_time([(0.5, small, 0.001)] * 3, arrays=6)
    assert timing_checks.fetch_time([(0.002, small, 0.001)], arrays=6) == ""
    assert timing_checks.fetch_time([(0.5, {"w": np.zeros(25_000_000)}, 0.001)], arrays=6) == ""


def test_a_fetch_that_was_slow_once_is_asked_again() -> None:
    small = {"w": np.ones(125)}
    tries = iter([(0.5, small, 0.001), (0.002, small, 0.001), (0.5, small, 0.001)])

    assert timing_checks.fetch_time(tries, arrays=6) == ""
    assert list(tries) == [(0.5, small, 0.001)]


def test_a_fetch_is_held_against_what_copying_costs_where_memory_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"w": np.ones(125)}
    monkeypatch.setattr(timing_checks, "copy_seconds", lambda arrays: 0.6)

    assert timing_checks.fetch_time([(1.8, result, 0.3)], arrays=6) == ""
    assert "hidden in the fetch" in timing_checks.fetch_time([(3.5, result, 0.3)], arrays=6)


def test_work_between_two_calls_is_outside_the_clock() -> None:
    assert "outside the clock" in timing_checks.outside(timing(between_s=0.01))
    assert timing_checks.outside(timing()) == ""


@pytest.mark.alone
def test_planted_step_that_only_dispatches_is_caught_by_doubling() -> None:
    queue: list[int] = []

    def dispatch(batch: Any) -> Any:
        queue.append(1)

        def drain() -> dict[str, Any]:
            time.sleep(0.002 * len(queue))
            queue.clear()
            return {}

        return drain

    said = timing_checks.doubling(ADAPTER, dispatch, [{}], fetch, median_s=1e-5)

    assert "returns before its work is done" in said


@pytest.mark.alone
def test_a_step_that_does_its_work_passes_doubling() -> None:
    def work(batch: Any) -> dict[str, Any]:
        time.sleep(0.001)
        return {}

    assert timing_checks.doubling(ADAPTER, work, [{}], fetch, median_s=0.0011) == ""


@pytest.mark.parametrize(
    ("fresh_s", "said"),
    [([0.4, 0.4, 0.1, 0.1, 0.1], ""), ([0.4] * 5, "a known one 0.1 s: answers are cached")],
    ids=["disturbed for a while", "cached"],
)
def test_a_machine_that_is_disturbed_for_a_while_is_no_cache(
    fresh_s: list[float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left = 0.0, iter(fresh_s)
    rows, known = np.array([1.0, 2.0, 3.0]), {"order": np.arange(3)}
    judge: Any = SimpleNamespace(batch_size=3, permuted=lambda order: None)

    def step(batch: Any) -> dict[str, Any]:
        nonlocal now
        now += 0.1 if batch is known else next(left)
        return {"w": rows[batch["order"]]}

    monkeypatch.setattr(timing_checks, "time", SimpleNamespace(perf_counter=lambda: now))

    found = timing_checks.fresh_batches(ADAPTER, step, dict, known, judge, fetch, "float64", known, seed=0)

    assert found.endswith(said) if said else found == ""


def test_output_must_be_plain_dicts_of_the_frameworks_arrays() -> None:
    assert timing_checks.contract(ADAPTER, {"w": np.zeros(1)}) == ""
    assert timing_checks.contract(ADAPTER, [{"w": np.zeros(1)}]) == ""
    assert "expected a dict" in timing_checks.contract(ADAPTER, np.zeros(1))
    assert "w is None" in timing_checks.contract(ADAPTER, {"w": None})
    assert "builtins.float" in timing_checks.contract(ADAPTER, [{"w": 1.0}])


def test_what_changed_is_named() -> None:
    said = timing_checks.unchanged(
        {"parameter w": "1", "input x of batch 0": "2"}, {"parameter w": "1", "input x of batch 0": "3"}
    )

    assert said == "input x of batch 0 changed by the calls"
