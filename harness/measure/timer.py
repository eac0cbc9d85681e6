"""The steady state of one case: warm-up until the times settle, then timed calls with rotating inputs."""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from harness.core.problem import Batch, Gradients, Step
from harness.frameworks import Adapter
from harness.system.info import status_bytes

FEWEST_ROUNDS = 5
"""Timed calls per case at least, however slow."""

FEWEST_WARMUP = 3

CHECK_CALLS = 9
"""Calls that the checks of a slow strategy make."""

FEWEST_CALLS = FEWEST_WARMUP + FEWEST_ROUNDS + CHECK_CALLS
"""Calls that a case cannot do without."""

WARMUP_SHARE = 0.25
"""Warm-up takes at most this share of the time that the timed calls aim for, but at least `FEWEST_WARMUP` calls."""

Fetch = Callable[[Gradients], Mapping[str, Any]]


class Stopwatch(Protocol):
    """The part of pytest-benchmark's fixture that is used here."""

    stats: Any

    def pedantic(self, target: Callable[..., Any], *, setup: Callable[[], Any], rounds: int, iterations: int) -> Any:
        """Call `target` with what `setup` returns, `rounds` times, and time the target only."""
        ...


@dataclass(frozen=True)
class Warmup:
    """What the calls before the clock showed: their times in seconds, and how memory grew with each."""

    times: tuple[float, ...]
    growth_bytes: float

    @property
    def settled(self) -> bool:
        """Whether the times had stopped changing."""
        return settled(self.times)


@dataclass(frozen=True)
class Timing:
    """What the timed calls of one case showed; per call where it is not a list.

    Attributes:
        samples_ns: nanoseconds of every call, in order.
        between_s: seconds that typically pass from the end of one call to the next, fetches for checking left out.
        outputs: some outputs of timed calls as NumPy: number of the batch -> gradients.
    """

    samples_ns: tuple[int, ...]
    between_s: float
    minor_faults: float
    cores_busy: float
    system_share: float
    outputs: Mapping[int, Mapping[str, Any]]

    @property
    def median_s(self) -> float:
        """Median of the samples, in seconds."""
        return statistics.median(self.samples_ns) * 1e-9


def warm_up(adapter: Adapter, step: Step, batches: list[Batch], most_s: float) -> Warmup:
    """Call until the times have settled or `most_s` is over, at least `FEWEST_WARMUP` times."""
    times: list[float] = []
    memory: list[int] = []
    end = time.perf_counter() + most_s
    while len(times) < FEWEST_WARMUP or (not settled(times) and time.perf_counter() < end):
        started = time.perf_counter()
        adapter.wait(step(batches[len(times) % len(batches)]))
        times.append(time.perf_counter() - started)
        memory.append(status_bytes("VmRSS") or 0)
    # The first calls may fill caches of the framework; a leak goes on after them.
    return Warmup(tuple(times), (memory[-1] - memory[1]) / (len(memory) - 2))


def settled(times: list[float] | tuple[float, ...]) -> bool:
    """Whether the median of the last five times is within 5 % of the median of the five before them.

    Fewer than ten times have settled if they are slow (over 20 ms) and the last is within 10 % of the median of
    the last three: slow calls leave no time for more.
    """
    if len(times) >= 10:
        return abs(statistics.median(times[-5:]) / statistics.median(times[-10:-5]) - 1) < 0.05
    return times[-1] > 0.02 and abs(times[-1] / statistics.median(times[-3:]) - 1) < 0.1


def round_count(times: list[float] | tuple[float, ...], target_s: float, most: int) -> int:
    """How many timed calls fill `target_s`, judged by the latest warm-up calls."""
    return min(most, max(FEWEST_ROUNDS, math.ceil(target_s / statistics.median(times[-5:]))))


def stopping_rule(rounds: int, most: int) -> str:
    """The rule that set the number of timed calls."""
    return {FEWEST_ROUNDS: "few rounds", most: "rounds"}.get(rounds, "time")


def timed_calls(
    adapter: Adapter, step: Step, batches: list[Batch], rounds: int, stopwatch: Stopwatch, fetch: Fetch
) -> Timing:
    """The steady state: `rounds` calls under the stopwatch, each waited for, the inputs rotating.

    The result of a call is released before the next one, outside the clock. The results of the first, a middle
    and the last call are fetched for checking, also outside the clock.
    """
    kept: list[Gradients] = []
    outputs: dict[int, Mapping[str, Any]] = {}
    number = -1
    started: list[float] = []
    fetching: list[float] = []

    def release() -> None:
        before = time.perf_counter()
        if number in (0, rounds // 2, rounds - 1):
            outputs[number % len(batches)] = fetch(kept[0])
        fetching.append(time.perf_counter() - before)
        kept.clear()

    def setup() -> tuple[tuple[Batch], dict[str, Any]]:
        nonlocal number
        release()
        number += 1
        started.append(time.perf_counter())
        return (batches[number % len(batches)],), {}

    def call(batch: Batch) -> None:
        kept.append(adapter.wait(step(batch)))

    before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    stopwatch.pedantic(call, setup=setup, rounds=rounds, iterations=1)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    release()
    started.append(time.perf_counter())

    samples = stopwatch.stats.stats.data[:rounds]
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Timing(
        samples_ns=tuple(round(seconds * 1e9) for seconds in samples),
        between_s=statistics.median(
            following - start - sample - fetched
            for start, sample, fetched, following in zip(started, samples, fetching[1:], started[1:], strict=False)
        ),
        minor_faults=(after.ru_minflt - before.ru_minflt) / rounds,
        cores_busy=(user + system) / wall,
        system_share=system / (user + system) if user + system else 0.0,
        outputs=outputs,
    )
