"""Pairs of measurements inside one framework's process; `bench_accuracy.py` runs this file in a subprocess.

Each item measures one pair, so that the two sides of a ratio are milliseconds apart: phases minutes apart
differ by 20 % on a shared machine. The ratios go to the file named in `PERGRAD_ACCURACY_OUT`.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness import clock, frameworks, strategies, workloads
from harness.measure import Evaluations, Subject, Witnesses
from harness.task import Task

KIND, FRAMEWORK, STRATEGY, PLUGIN, BATCH_SIZE = json.loads(os.environ["PERGRAD_ACCURACY"])
PAIRS = 25
ratios: list[float] = []


@pytest.fixture(scope="session")
def subject() -> Subject:
    """The strategy, built for `policy`."""
    task = Task(
        strategy=STRATEGY,
        framework=FRAMEWORK,
        plugin=PLUGIN,
        workload="policy",
        quantity="gradients",
        device="cpu",
        dtype="float32",
        batch_sizes=(BATCH_SIZE,),
        pass_number=1,
        truths={},
        seed=0,
        limit_s=60,
        target_s=1,
        most_rounds=1000,
    )
    adapter = frameworks.load(FRAMEWORK)
    return Subject(
        task,
        strategies.load(STRATEGY, PLUGIN),
        workloads.find("policy"),
        adapter,
        adapter.device("cpu"),
        Witnesses(lambda: 0, lambda: 0, Evaluations()),
    )


@pytest.fixture(scope="session")
def warm(subject: Subject) -> tuple[Any, list[Any], int]:
    """The step after its warm-up, its batches, and how many calls make 40 ms."""
    batches = subject.batches(BATCH_SIZE, 3)
    problem = subject.bind(BATCH_SIZE)
    with subject.adapter.scope(problem):
        step = subject.strategy.build(problem)
        times = clock.warm_up(subject.adapter, step, batches, 1.0)
    return step, batches, clock.round_count(times.times, 0.04, 1000)


@pytest.mark.skipif(KIND != "stopwatch", reason="another kind was asked for")
@pytest.mark.parametrize("pair", range(PAIRS))
def test_harness_against_a_loop_by_hand(benchmark: BenchmarkFixture, subject: Subject, warm: Any, pair: int) -> None:
    step, batches, rounds = warm

    def harness() -> float:
        timing = clock.timed_calls(subject.adapter, step, batches, rounds, benchmark, subject.fetch)
        return statistics.median(timing.samples_ns) * 1e-9

    def by_hand() -> float:
        samples = []
        for number in range(rounds):
            started = time.perf_counter()
            subject.adapter.wait(step(batches[number % 3]))
            samples.append(time.perf_counter() - started)
        return statistics.median(samples)

    compare(harness, by_hand, swap=bool(pair % 2))


@pytest.mark.skipif(KIND != "ops", reason="another kind was asked for")
@pytest.mark.parametrize("pair", range(PAIRS))
def test_ops_against_the_network_by_hand(subject: Subject, pair: int, steps: Any) -> None:
    through_ops, by_hand = steps
    compare(lambda: median_call(through_ops), lambda: median_call(by_hand), swap=bool(pair % 2))


@pytest.fixture(scope="session")
def steps(subject: Subject) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The plain batch gradient of `policy`, through `ops` and by hand, both warm."""
    from tests.accuracy import by_hand

    pair: tuple[Callable[[], Any], Callable[[], Any]] = getattr(by_hand, FRAMEWORK)(subject, BATCH_SIZE)
    for step in pair:
        for _ in range(30):
            step()
    return pair


def median_call(call: Callable[[], Any]) -> float:
    """Median seconds of enough calls to fill 20 ms."""
    started = time.perf_counter()
    call()
    rounds = max(5, min(300, int(0.02 / (time.perf_counter() - started))))
    samples = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def compare(first: Callable[[], float], second: Callable[[], float], swap: bool) -> None:
    """Add the ratio first / second; every other pair is measured in the opposite order."""
    if swap:
        denominator = second()
        ratios.append(first() / denominator)
    else:
        numerator = first()
        ratios.append(numerator / second())
    Path(os.environ["PERGRAD_ACCURACY_OUT"]).write_text(json.dumps(ratios))
