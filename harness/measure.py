"""How one case is measured, inside a worker: build, first call, warm-up, timed calls, fetch, agreement."""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness import agreement, reference
from harness.frameworks import Adapter, Device
from harness.frameworks.base import first_array, to_numpy
from harness.memory import Memory
from harness.problem import Batch, Gradients, Problem, Step
from harness.records import Measurement, Status
from harness.strategies import Strategy
from harness.task import Task
from harness.workloads import Workload, cast

FEWEST_ROUNDS = 5
"""Timed calls per case at least, however slow."""

FEWEST_WARMUP = 3

FEWEST_CALLS = FEWEST_WARMUP + FEWEST_ROUNDS

WARMUP_SHARE = 0.25
"""Warm-up takes at most this share of the time that the timed calls aim for, but at least three calls."""


class Stopwatch(Protocol):
    """The part of pytest-benchmark's fixture that is used here."""

    stats: Any

    def pedantic(self, target: Callable[..., Any], *, setup: Callable[[], Any], rounds: int, iterations: int) -> Any:
        """Call `target` with what `setup` returns, `rounds` times, and time the target only."""
        ...


@dataclass(frozen=True)
class Subject:
    """Who is measured on what: a task with everything it names, loaded."""

    task: Task
    strategy: Strategy
    workload: Workload
    adapter: Adapter
    device: Device

    def bind(self, batch_size: int) -> Problem:
        """The problem that the strategy is given."""
        parameters = cast(self.workload.initial_parameters(self.task.seed), self.task.dtype)
        return self.adapter.bind(self.workload, parameters, self.device, batch_size)

    def batches(self, batch_size: int, count: int) -> list[Batch]:
        """The batches that the inputs rotate through, placed on the device."""
        drawn = self.workload.batches(self.task.seed, batch_size, count)
        return [self.adapter.place(cast(batch, self.task.dtype), self.device) for batch in drawn]


@dataclass(frozen=True)
class Timing:
    """What the timed calls of one case showed; per call where it is not a list."""

    samples_ns: tuple[int, ...]
    minor_faults: float
    cores_busy: float
    system_share: float
    outputs: Mapping[int, Any]
    """Some outputs of timed calls as NumPy: number of the batch -> gradients."""


def measure(subject: Subject, batch_size: int, stopwatch: Stopwatch) -> Measurement:
    """Measure one case from the build to the verdict; exceptions of the strategy pass through."""
    task, adapter = subject.task, subject.adapter
    truths = reference.load(Path(task.truths[batch_size]))
    batches = subject.batches(batch_size, len(truths))
    problem = subject.bind(batch_size)
    memory = Memory(adapter, subject.device)
    with adapter.scope(problem):
        step, output, build_s, first_call_s = build(subject, problem, batches[0])
        started = time.perf_counter()
        fetched = to_numpy(adapter, output)
        fetch_s = time.perf_counter() - started
        verdict = agreement.check(fetched, truths[0], task.dtype)
        columns: dict[str, Any] = {
            "build_s": build_s,
            "first_call_s": first_call_s,
            "fetch_s": fetch_s,
            "output_bytes": sum(array.nbytes for array in fetched.values()),
            "device_name": adapter.device_of(first_array(output)),
            "facts": problem.facts,
        }
        del output, fetched
        if verdict.status is Status.OK:
            warm = warm_up(adapter, step, batches, task.target_s * WARMUP_SHARE)
            rounds = round_count(warm, task.target_s, task.most_rounds)
            timing = timed_calls(adapter, step, batches, rounds, stopwatch)
            verdicts = [agreement.check(timing.outputs[n], truths[n], task.dtype) for n in sorted(timing.outputs)]
            verdict = max([verdict, *verdicts], key=_severity)
            columns |= {
                "samples_ns": timing.samples_ns,
                "median_s": statistics.median(timing.samples_ns) * 1e-9,
                "warmup_calls": len(warm),
                "stopping_rule": stopping_rule(rounds, task.most_rounds),
                "marks": () if settled(warm) else ("warm-up had not settled",),
                "minor_faults": timing.minor_faults,
                "cores_busy": timing.cores_busy,
                "system_share": timing.system_share,
            }
    return task.row(
        batch_size,
        verdict.status,
        verdict.reason,
        max_relative_error=verdict.max_relative_error,
        digits=verdict.digits,
        worst_parameter=verdict.worst_parameter,
        worst_instance=verdict.worst_instance,
        rows_checked=verdict.rows_checked,
        peak_bytes=memory.peak_above_start(),
        **columns,
    )


def least_seconds(row: Measurement) -> float | None:
    """The seconds a case cannot do without: build, first call, the fewest calls. None if it was not measured."""
    if row.build_s is None or row.first_call_s is None or row.median_s is None:
        return None
    return row.build_s + row.first_call_s + FEWEST_CALLS * row.median_s


def trial(subject: Subject, batch_size: int) -> float:
    """What `least_seconds` would be at a batch size that is not measured: build and call twice."""
    problem = subject.bind(batch_size)
    batch = subject.batches(batch_size, 1)[0]
    with subject.adapter.scope(problem):
        step, _, build_s, first_call_s = build(subject, problem, batch)
        started = time.perf_counter()
        subject.adapter.wait(step(batch))
        return build_s + first_call_s + FEWEST_CALLS * (time.perf_counter() - started)


def build(subject: Subject, problem: Problem, batch: Batch) -> tuple[Step, Gradients, float, float]:
    """Build the strategy and call it once: (step, its first output, build seconds, first call's seconds)."""
    started = time.perf_counter()
    step = subject.strategy.build(problem)
    built = time.perf_counter()
    output = subject.adapter.wait(step(batch))
    return step, output, built - started, time.perf_counter() - built


def warm_up(adapter: Adapter, step: Step, batches: list[Any], most_s: float) -> list[float]:
    """Call until the times have settled or `most_s` is over, at least three times; returns the times in seconds."""
    times: list[float] = []
    end = time.perf_counter() + most_s
    while len(times) < FEWEST_WARMUP or (not settled(times) and time.perf_counter() < end):
        started = time.perf_counter()
        adapter.wait(step(batches[len(times) % len(batches)]))
        times.append(time.perf_counter() - started)
    return times


def settled(times: list[float]) -> bool:
    """Whether the median of the last five times is within 5 % of the median of the five before them.

    Fewer than ten times have settled if the last is within 10 % of the median of the last three: slow calls
    leave no time for more.
    """
    if len(times) >= 10:
        return abs(statistics.median(times[-5:]) / statistics.median(times[-10:-5]) - 1) < 0.05
    return times[-1] > 0.02 and abs(times[-1] / statistics.median(times[-3:]) - 1) < 0.1


def round_count(warm: list[float], target_s: float, most: int) -> int:
    """How many timed calls fill `target_s`, judged by the latest warm-up calls."""
    return min(most, max(FEWEST_ROUNDS, math.ceil(target_s / statistics.median(warm[-5:]))))


def stopping_rule(rounds: int, most: int) -> str:
    """The rule that set the number of timed calls."""
    return {FEWEST_ROUNDS: "few rounds", most: "rounds"}.get(rounds, "time")


def timed_calls(adapter: Adapter, step: Step, batches: list[Any], rounds: int, stopwatch: Stopwatch) -> Timing:
    """The steady state: `rounds` calls under the stopwatch, each waited for, the inputs rotating.

    The result of a call is released before the next one, outside the clock. The results of the first, a middle
    and the last call are fetched for checking, also outside the clock.
    """
    kept: list[Gradients] = []
    outputs: dict[int, Any] = {}
    number = -1

    def keep_for_checking() -> None:
        if number in (0, rounds // 2, rounds - 1):
            outputs[number % len(batches)] = to_numpy(adapter, kept[0])

    def setup() -> tuple[tuple[Any], dict[str, Any]]:
        nonlocal number
        keep_for_checking()
        kept.clear()
        number += 1
        return (batches[number % len(batches)],), {}

    def call(batch: Any) -> None:
        kept.append(adapter.wait(step(batch)))

    before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    stopwatch.pedantic(call, setup=setup, rounds=rounds, iterations=1)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    keep_for_checking()

    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Timing(
        samples_ns=tuple(round(seconds * 1e9) for seconds in stopwatch.stats.stats.data[:rounds]),
        minor_faults=(after.ru_minflt - before.ru_minflt) / rounds,
        cores_busy=(user + system) / wall,
        system_share=system / (user + system) if user + system else 0.0,
        outputs=outputs,
    )


def _severity(verdict: agreement.Agreement) -> tuple[bool, float]:
    return verdict.status is not Status.OK, verdict.max_relative_error or 0.0
