"""Pairs of measurements inside one framework's process; `bench_accuracy.py` runs this file in a subprocess.

Each item measures one pair, so that the two sides of a ratio are milliseconds apart: phases minutes apart
differ by 20 % on a shared machine. The ratios go to the file named in `PERGRAD_ACCURACY_OUT`.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from harness import frameworks
from harness.core import find_strategies, find_workloads
from harness.core.task import Task
from harness.measure import timer
from harness.measure.subject import Evaluations, Instruments, Subject

KIND, FRAMEWORK, STRATEGY, PLUGIN, WORKLOAD, BATCH_SIZE = json.loads(os.environ["PERGRAD_ACCURACY"])
PAIRS, PAIRS_IF_SLOW = 25, 9
SLOW_S = 0.2
SIDE_S = 0.06
"""What the calls of one side of a pair are to fill."""
ratios: list[float] = []


@pytest.fixture(scope="session")
def subject() -> Subject:
    """The strategy on the workload."""
    task = Task(
        strategy=STRATEGY,
        framework=FRAMEWORK,
        plugin=PLUGIN,
        workload=WORKLOAD,
        quantity="gradients",
        device="cpu",
        dtype="float32",
        batch_sizes=(BATCH_SIZE,),
        pass_number=1,
        references={},
        seed=0,
        limit_s=60,
        target_s=1,
    )
    adapter = frameworks.load(FRAMEWORK)
    return Subject(
        task,
        find_strategies.load(STRATEGY, PLUGIN),
        find_workloads.find(WORKLOAD),
        adapter,
        adapter.device("cpu"),
        Instruments(lambda: 0, lambda: 0, Evaluations()),
    )


@pytest.fixture(scope="session")
def warm(subject: Subject) -> tuple[Any, list[Any], float]:
    """The step after its warm-up, its batches, and the seconds of a call."""
    batches = [subject.place(batch) for batch in subject.drawn(BATCH_SIZE, 3)]
    problem = subject.bind(BATCH_SIZE)
    with subject.adapter.scope(problem):
        step = subject.strategy.build(problem)
        times = timer.warm_up(subject.adapter, step, batches, 1.0)
    return step, batches, statistics.median(times.times[-5:])


def a_turn(subject: Subject, warm: tuple[Any, list[Any], float]) -> float:
    """Seconds per call as one turn of the harness tells them."""
    step, batches, call_s = warm
    seconds = iter([SIDE_S])
    timing = timer.take_turns(subject.adapter, step, batches, lambda _: next(seconds, None), lambda *_: None, call_s)
    return timing.median_s


def calls_of(warm: tuple[Any, list[Any], float]) -> int:
    """How many calls fill a side."""
    return min(3000, max(3, round(SIDE_S / warm[2])))


@pytest.mark.skipif(KIND != "stopwatch", reason="another kind was asked for")
@pytest.mark.parametrize("pair", range(PAIRS))
def test_a_turn_against_a_loop_by_hand(subject: Subject, warm: Any, pair: int) -> None:
    step, batches, _ = warm

    def by_hand() -> float:
        samples = []
        for number in range(calls_of(warm)):
            started = time.perf_counter()
            subject.adapter.wait(step(batches[number % 3]))
            samples.append(time.perf_counter() - started)
        return statistics.median(samples)

    compare(lambda: a_turn(subject, warm), by_hand, swap=bool(pair % 2))


@pytest.mark.skipif(KIND != "pedantic", reason="another kind was asked for")
@pytest.mark.parametrize("pair", range(PAIRS))
def test_a_turn_against_pytest_benchmark(benchmark: BenchmarkFixture, subject: Subject, warm: Any, pair: int) -> None:
    step, batches, _ = warm

    def pedantic() -> float:
        benchmark.pedantic(
            lambda batch: subject.adapter.wait(step(batch)), args=(batches[0],), rounds=calls_of(warm), iterations=1
        )
        return statistics.median(benchmark.stats.stats.data)

    compare(lambda: a_turn(subject, warm), pedantic, swap=bool(pair % 2))


@pytest.mark.skipif(KIND != "ops", reason="another kind was asked for")
def test_ops_against_the_network_by_hand(subject: Subject) -> None:
    by_hand = importlib.import_module(f"tests.accuracy.by_hand_{FRAMEWORK}")
    batch = subject.place(subject.drawn(BATCH_SIZE, 1)[0])
    sides = by_hand.calls(WORKLOAD, subject.bind(BATCH_SIZE), batch)
    losses = [float(side()[0]) for side in sides]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5), "not the same network"

    slowest = max(warm_seconds(side) for side in sides)
    rounds = min(300, max(1, round(SIDE_S / slowest)))
    for pair in range(PAIRS if slowest < SLOW_S else PAIRS_IF_SLOW):
        add(alternating(*sides, rounds, swap=bool(pair % 2)))


def warm_seconds(call: Callable[[], Any]) -> float:
    """Call it for a second, at least three times; returns the median seconds of the calls."""
    samples: list[float] = []
    while len(samples) < 3 or sum(samples) < 1:
        samples.append(seconds(call))
    return statistics.median(samples)


def alternating(first: Callable[[], Any], second: Callable[[], Any], rounds: int, swap: bool) -> float:
    """The ratio first / second of median seconds; the two take turns call by call, so that load hits both."""
    order = (second, first) if swap else (first, second)
    samples = [[seconds(call) for call in order] for _ in range(rounds)]
    medians = dict(zip(order, map(statistics.median, zip(*samples, strict=True)), strict=True))
    return medians[first] / medians[second]


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(first: Callable[[], float], second: Callable[[], float], swap: bool) -> None:
    """Add the ratio first / second; every other pair is measured in the opposite order."""
    if swap:
        denominator = second()
        add(first() / denominator)
    else:
        numerator = first()
        add(numerator / second())


def add(ratio: float) -> None:
    ratios.append(ratio)
    Path(os.environ["PERGRAD_ACCURACY_OUT"]).write_text(json.dumps(ratios))
