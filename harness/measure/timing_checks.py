"""Is the time true? Checks that catch a strategy which moves its work out of the clock, or does not do it.

Each check returns a sentence that says what is wrong, empty if nothing is. They call the strategy a few times
more, after its timed calls, and are made once per case and run.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from harness.core.problem import Batch, Step
from harness.core.records import Status
from harness.core.workload import Arrays
from harness.frameworks import Adapter
from harness.measure.result_checks import Fetch, Place
from harness.measure.timer import Timing
from harness.reference import compare
from harness.reference.result import Reference

FRESH_BATCHES = 8
"""New batches that are asked where they seem to take longer than known ones; then as many once more."""

ENOUGH_FRESH = 4
"""So many are enough where they do not."""

SLOW_S = 0.05
"""Of a strategy that takes longer than this, two are enough: an answer from a cache takes no time."""

NEW_SHARE = 1.5
"""What a call may cost with a new batch, relative to one with a known batch."""

HIDDEN_SHARE = 1.7
"""What a call may cost in another way of measuring, relative to its time: who hides as much again is found out."""

SLACK_S = 1e-5
"""What it may cost in addition: finding a batch in memory, waking up a thread."""

DOUBLING_S = 0.01
"""Seconds of the k calls: long beside what it costs to wake up a thread, short beside the checks of a whole run."""

COPIES = 5
"""Rows are fetched one by one, stacked and put in order: about three copies, each into fresh memory."""


def fetch_time(tries: Iterable[tuple[float, Arrays, float]], arrays: int) -> str:
    """Fetching a result copies it and does nothing else.

    One of the tries has to show it: a machine that is disturbed, or hands out memory slowly, makes an honest copy slow.

    Args:
        tries: for one call each, the seconds of fetching its result, the result in NumPy, the seconds of the call.
        arrays: how many arrays the framework returned it in, at most.
    """
    slow = []
    for seconds, fetched, call_s in tries:
        overhead = 2e-3 + 5e-5 * arrays  # a look at the scheduler, and Python for every array
        fair = overhead + sum(array.nbytes for array in fetched.values()) / 5e8  # far below the speed of most memories
        if seconds <= fair or seconds <= overhead + COPIES * copy_seconds(fetched):
            return ""
        slow.append((seconds, call_s))
    seconds, call_s = min(slow)
    return f"fetching the result took {seconds:.3g} s, the call {call_s:.3g} s: work is hidden in the fetch"


def copy_seconds(arrays: Arrays) -> float:
    """The time of copying arrays into fresh memory here: where pages are handed out slowly, it is long."""
    started = time.perf_counter()
    copies = [array.copy() for array in arrays.values()]
    seconds = time.perf_counter() - started
    del copies
    return seconds


def outside(timing: Timing) -> str:
    """The harness is back at once when a call has ended by the clock.

    Releasing an honest result takes up to 15 % of the fastest calls (2.4 of 16 us in JAX) and 4 % of slow ones.
    """
    if timing.between_s > 1e-5 + 0.3 * timing.median_s:
        return (
            f"{timing.between_s:.3g} s pass after each call of {timing.median_s:.3g} s: work is done outside the clock"
        )
    return ""


def outside_its_turn(timing: Timing) -> str:
    """A process is quiet while others take their turns.

    Threads of numerical libraries may spin for some milliseconds after their last work, which is allowed.
    """
    if timing.outside_s > 5e-3 + 0.1 * timing.turn_cpu_s:
        return (
            f"works while others are measured: {timing.outside_s:.3g} s of CPU time between two of its turns, "
            f"{timing.turn_cpu_s:.3g} s within one"
        )
    return ""


def doubling(adapter: Adapter, step: Step, batches: list[Batch], fetch: Fetch, median_s: float) -> str:
    """2k calls take as much longer than k calls as k calls take that are waited for one by one.

    Of 2k and k calls only the last result is waited for, and fetched; k is so large that they take longer than the
    fetch, which varies. The two sides are measured right after one another, and one of five tries has to agree, because
    a machine that is disturbed is disturbed for a while.
    """
    output = adapter.wait(step(batches[0]))
    started = time.perf_counter()
    fetch(output)
    k = min(1000, max(1, math.ceil(max(DOUBLING_S, time.perf_counter() - started) / median_s)))
    del output

    def run(calls: int, waiting: bool) -> float:
        gc.disable()  # as the stopwatch does
        try:
            started = time.perf_counter()
            for number in range(calls):
                output = step(batches[number % len(batches)])
                if waiting:
                    adapter.wait(output)
            seconds = time.perf_counter() - started
            fetch(adapter.wait(output))  # whatever is still to be done is done now
            return seconds if waiting else time.perf_counter() - started
        finally:
            gc.enable()

    gc.collect()
    differences = []
    for _ in range(5):
        once, twice, waited = run(k, False), run(2 * k, False), run(k, True) / k
        differences.append((twice - once) / k)
        if differences[-1] < HIDDEN_SHARE * max(median_s, waited) + SLACK_S:
            return ""
    return (
        f"a call takes {min(differences):.3g} s when the result is fetched in the end, "
        f"{median_s:.3g} s under the stopwatch: it returns before its work is done"
    )


def fresh_batches(
    adapter: Adapter,
    step: Step,
    place: Place,
    drawn: Arrays,
    reference: Reference,
    fetch: Fetch,
    dtype: str,
    known: Batch,
    seed: int,
    quantity: str = "gradients",
) -> str:
    """Batches never seen before give their own rows, in their order, and take no longer than a known one.

    The batches are permutations of a known one, so permuted instances must give permuted rows. A clipped sum must
    stay the same; a weighted one must not, because the weights stay where they are. Fewer than four instances have too
    few orders for a verdict on the time.
    """
    times: list[float] = []
    familiar: list[float] = []
    suspicious = False
    for order in _new_orders(np.random.default_rng([seed, reference.batch_size]), reference.batch_size):
        if len(times) >= (2 if times and min(times) > SLOW_S else ENOUGH_FRESH) and not _is_slower(times, familiar):
            break
        if len(times) == FRESH_BATCHES and not suspicious:
            suspicious, times, familiar = True, [], []  # a machine that is disturbed makes the honest look so, once
        started = time.perf_counter()
        adapter.wait(step(known))
        familiar.append(time.perf_counter() - started)
        batch = place({name: value[order] for name, value in drawn.items()})
        started = time.perf_counter()
        output = adapter.wait(step(batch))
        times.append(time.perf_counter() - started)
        expected = reference.permuted_under_weights(order) if quantity == "weighted_sum" else reference.permuted(order)
        if expected is None:
            continue
        verdict = compare.check(fetch(output), expected, dtype, quantity)
        if verdict.status is not Status.OK:
            what = "the right sum" if quantity in compare.SUMS else "permuted rows"
            return f"permuted instances do not give {what}: {verdict.reason}"
    if suspicious and len(times) == FRESH_BATCHES and _is_slower(times, familiar):
        return (
            f"a batch never seen before takes {min(times):.3g} s, a known one {statistics.median(familiar):.3g} s: "
            "answers are cached"
        )
    return ""


def _is_slower(times: list[float], familiar: list[float]) -> bool:
    """Whether a batch that is new typically takes longer than the known one right before it, and never less than usual.

    In pairs, because a machine that changes its speed is mostly the same for two calls in a row.
    """
    typical = statistics.median((new - SLACK_S) / known for new, known in zip(times, familiar, strict=True))
    return typical > NEW_SHARE and min(times) > statistics.median(familiar)


def _new_orders(rng: np.random.Generator, size: int) -> Iterator[np.ndarray[Any, Any]]:
    """Different orders of the instances, not the old one: twice `FRESH_BATCHES`, fewer if there are no more."""
    seen = {tuple(range(size))}
    while len(seen) <= min(2 * FRESH_BATCHES, math.factorial(min(size, 8)) - 1):
        order = rng.permutation(size)
        if tuple(order) not in seen:
            seen.add(tuple(order))
            yield order
