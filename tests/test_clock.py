"""Warm-up, rounds, and checks of the clock, on made-up steps whose true cost is known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.measure import result_checks, timer, timing_checks
from harness.measure.timer import NextTurn, Timing, Turn


def turns_of(seconds: float, count: int) -> NextTurn:
    """As many turns as that, whatever they show."""
    left = iter([seconds] * count)
    return lambda turn: next(left, None)


ADAPTER: Any = SimpleNamespace(name="numpy", wait=lambda output: output, array_types=(np.ndarray,))


def fetch(output: Any) -> Mapping[str, Any]:
    return output() if callable(output) else output  # type: ignore[no-any-return]


@dataclass
class Clock:
    """Takes the place of the module `time`: only what a step says it takes passes, however busy the machine is."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        self.now += 1e-7  # what a call of nothing takes
        return self.now

    def process_time(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that timer and checks read."""
    made = Clock()
    for module in (timer, timing_checks):
        monkeypatch.setattr(module, "time", made)
    return made


def timing(**columns: Any) -> Timing:
    base: dict[str, Any] = {
        "turns": (Turn(1_000_000, 50, 0.05),) * 5,
        "between_s": 1e-5,
        "outside_s": 0.0,
        "turn_cpu_s": 0.05,
        "minor_faults": 0.0,
        "cores_busy": 1.0,
        "system_share": 0.0,
        "calls_made": 255,
        "growth_bytes": 0.0,
    }
    return Timing(**(base | columns))


def test_times_have_settled_when_two_windows_of_five_agree() -> None:
    assert timer.settled([9.0] * 5 + [1.0] * 10)
    assert not timer.settled([9.0] * 5 + [1.0] * 5)


def test_three_slow_calls_are_enough_if_they_agree() -> None:
    assert timer.settled([0.5, 0.1, 0.101])
    assert not timer.settled([0.5, 0.3, 0.1])
    assert not timer.settled([0.001, 0.001, 0.001])


def test_a_call_that_compiles_begins_the_warm_up_anew(clock: Clock) -> None:
    compiled = 0

    def step(batch: int) -> dict[str, Any]:
        nonlocal compiled
        calls.append(batch)
        if len(calls) == 2:
            compiled += 1
            clock.sleep(0.05)
        return {}

    calls: list[int] = []
    warm = timer.warm_up(ADAPTER, step, [1], 0.0, lambda: compiled)  # type: ignore[arg-type]

    assert len(calls) == 2 + timer.FEWEST_WARMUP
    assert max(warm.times) < 0.05


def test_a_strategy_that_compiles_in_every_call_ends_its_warm_up_too() -> None:
    calls: list[int] = []

    warm = timer.warm_up(ADAPTER, calls.append, [1], 0.0, lambda: len(calls))  # type: ignore[arg-type]

    assert len(warm.times) == timer.FEWEST_WARMUP


def unseen(number: int, output: Any) -> None:
    """Looks at no result."""


def test_inputs_rotate_through_the_turns_and_some_results_are_looked_at_with_their_batch() -> None:
    looked: dict[int, int] = {}

    def look(number: int, output: Any) -> None:
        looked[number] = int(output["w"][0])

    seen: list[int] = []

    def step(batch: Any) -> dict[str, Any]:
        seen.append(batch)
        return {"w": np.array([batch])}

    timing = timer.take_turns(ADAPTER, step, [10, 11, 12], turns_of(0.0, 2), look, 1e-6)  # type: ignore[list-item]

    per_turn = 1 + timer.CALLS_PER_TURN
    assert seen == [10 + number % 3 for number in range(2 * per_turn + 1)]
    assert timing.calls_made == len(seen)
    assert looked == {0: 10, 2: 12}


@pytest.mark.parametrize(("kept", "grows"), [({3}, False), (set(range(100)), True)])
def test_memory_that_grows_once_is_no_leak(kept: set[int], grows: bool) -> None:
    held: list[Any] = []
    calls = itertools.count()

    def step(batch: Any) -> dict[str, Any]:
        if next(calls) in kept:
            held.append(np.ones(1 << 20))
        return {}

    timing = timer.take_turns(ADAPTER, step, [1], turns_of(0.0, 5), unseen, timer.SLOW_S * 2)  # type: ignore[list-item]

    assert (timing.growth_bytes > 4 << 20) == grows


def test_the_first_calls_of_a_turn_are_not_timed(clock: Clock) -> None:
    waits = iter([0.02, 0.0, 0.0, 0.0, 0.0])

    def step(batch: Any) -> dict[str, Any]:
        clock.sleep(next(waits))
        return {}

    timing = timer.take_turns(ADAPTER, step, [1], turns_of(0.0, 1), unseen, 1e-3)  # type: ignore[list-item]

    assert timing.turns[0].timed_s < 0.02


def test_a_slow_call_is_a_turn_by_itself(clock: Clock) -> None:
    def step(batch: Any) -> dict[str, Any]:
        clock.sleep(0.11)
        return {}

    timing = timer.take_turns(ADAPTER, step, [1], turns_of(0.02, 2), unseen, 0.11)  # type: ignore[list-item]

    assert [turn.calls for turn in timing.turns] == [1, 1]


def test_a_turn_fills_its_time_and_tells_it(clock: Clock) -> None:
    def step(batch: Any) -> dict[str, Any]:
        clock.sleep(1e-5)
        return {}

    timing = timer.take_turns(ADAPTER, step, [1], turns_of(0.01, 1), unseen, 1e-5)  # type: ignore[list-item]
    (turn,) = timing.turns

    assert turn.calls == pytest.approx(1000, rel=0.05)
    assert turn.timed_s == pytest.approx(0.01, rel=0.05)
    assert turn.call_ns * 1e-9 * turn.calls == pytest.approx(turn.timed_s, rel=0.05)


def test_a_leak_ends_in_turns_of_one_call() -> None:
    timing = timer.take_turns(
        ADAPTER,
        lambda batch: {},
        [1],
        turns_of(0.001, 3),
        unseen,
        1e-6,
        most_calls=1,  # type: ignore[list-item]
    )

    assert [turn.calls for turn in timing.turns][1:] == [1, 1]


def test_work_between_two_turns_is_seen() -> None:
    assert "works while others are measured" in timing_checks.outside_its_turn(timing(outside_s=0.05))
    assert timing_checks.outside_its_turn(timing(outside_s=0.004)) == ""


def test_a_result_that_changes_after_the_return_is_unfinished() -> None:
    values = iter([np.zeros(2), np.ones(2)])

    assert "its work was not waited for" in result_checks.finished(lambda _: {"w": next(values)}, {}, 0.0)
    assert result_checks.finished(lambda _: {"w": np.zeros(2)}, {}, 0.0) == ""


def test_a_result_that_the_next_call_overwrites_is_not_kept() -> None:
    memory = np.zeros(2)

    said = result_checks.kept(lambda output: {"w": output}, memory, lambda: memory.fill(1.0))  # type: ignore[arg-type, return-value, dict-item]

    assert "w changed with the next call" in said
    assert result_checks.kept(lambda _: {"w": memory}, {}, lambda: None) == ""


def test_work_hidden_in_the_fetch_is_seen() -> None:
    small = {"w": np.ones(125)}
    assert "hidden in the fetch" in timing_checks.fetch_time([(0.5, small, 0.001)] * 3, arrays=6)
    assert "hidden in the fetch" in timing_checks.fetch_time([(0.01, small, 2.0)] * 3, arrays=6), "compiled before"
    assert timing_checks.fetch_time([(0.002, small, 0.001)], arrays=6) == ""
    assert timing_checks.fetch_time([(0.3, {"w": np.zeros(25_000_000)}, 0.001)], arrays=6) == ""


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


@pytest.mark.parametrize("call_s", [2e-5, 1e-3, 0.5])
def test_a_call_that_hides_as_much_as_its_own_time_is_found_out(call_s: float) -> None:
    turn = Turn(round(call_s * 1e9), 1000, 0.05)

    assert "outside the clock" in timing_checks.outside(timing(turns=(turn,), between_s=call_s))
    assert "others are measured" in timing_checks.outside_its_turn(timing(turns=(turn,), outside_s=0.05))


def test_planted_step_that_only_dispatches_is_caught_by_doubling(clock: Clock) -> None:
    queue: list[int] = []

    def dispatch(batch: Any) -> Any:
        queue.append(1)

        def drain() -> dict[str, Any]:
            clock.sleep(0.002 * len(queue))
            queue.clear()
            return {}

        return drain

    said = timing_checks.doubling(ADAPTER, dispatch, [{}], fetch, median_s=1e-5)

    assert "returns before its work is done" in said


def test_a_step_that_leaves_as_much_work_as_it_does_is_caught_by_doubling(clock: Clock) -> None:
    queue: list[int] = []

    def half(batch: Any) -> Any:
        clock.sleep(0.001)
        queue.append(1)

        def drain() -> dict[str, Any]:
            clock.sleep(0.001 * len(queue))
            queue.clear()
            return {}

        return drain

    assert "returns before its work is done" in timing_checks.doubling(ADAPTER, half, [{}], fetch, median_s=0.001)


def test_a_step_that_does_its_work_passes_doubling(clock: Clock) -> None:
    def work(batch: Any) -> dict[str, Any]:
        clock.sleep(0.001)
        return {}

    assert timing_checks.doubling(ADAPTER, work, [{}], fetch, median_s=0.0011) == ""


@pytest.mark.parametrize(
    ("fresh_s", "said"),
    [
        ([0.4, 0.4, 0.1, 0.1, 0.1, 0.1], ""),
        ([0.4] * 8 + [0.1] * 8, ""),
        ([0.4] * 16, "a known one 0.1 s: answers are cached"),
        ([0.2] * 16, "a known one 0.1 s: answers are cached"),
    ],
    ids=["disturbed for a while", "disturbed for long", "cached", "half of it cached"],
)
def test_a_machine_that_is_disturbed_for_a_while_is_no_cache(fresh_s: list[float], said: str, clock: Clock) -> None:
    left = iter(fresh_s)
    rows, known = np.arange(4.0), {"order": np.arange(4)}
    judge: Any = SimpleNamespace(batch_size=4, permuted=lambda order: None)

    def step(batch: Any) -> dict[str, Any]:
        clock.sleep(0.1 if batch is known else next(left))
        return {"w": rows[batch["order"]]}

    found = timing_checks.fresh_batches(ADAPTER, step, dict, known, judge, fetch, "float64", known, seed=0)

    assert found.endswith(said) if said else found == ""


def test_output_must_be_plain_dicts_of_the_frameworks_arrays() -> None:
    assert result_checks.contract(ADAPTER, {"w": np.zeros(1)}) == ""
    assert result_checks.contract(ADAPTER, [{"w": np.zeros(1)}]) == ""
    assert "expected a dict" in result_checks.contract(ADAPTER, np.zeros(1))
    assert "w is None" in result_checks.contract(ADAPTER, {"w": None})
    assert "builtins.float" in result_checks.contract(ADAPTER, [{"w": 1.0}])


def test_what_changed_is_named() -> None:
    said = result_checks.unchanged(
        {"parameter w": "1", "input x of batch 0": "2"}, {"parameter w": "1", "input x of batch 0": "3"}
    )

    assert said == "input x of batch 0 changed by the calls"
