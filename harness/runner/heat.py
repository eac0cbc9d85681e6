"""Heats: cases that are compared take turns in random order, round after round, until what matters is known.

A machine that others use too changes its speed within seconds, and strategies measured one after another differ by
that as well. Those that take turns of 50 ms all meet the same machine: the ratio of two equal ones came out as 1.00
to 1.03 that way, and as 0.89 to 1.35 in blocks of half a second each.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import methodcaller

import numpy as np

from harness.analysis.statistics import log_variance_of_median
from harness.core.domain import usable_cores
from harness.core.records import FEWEST_ROUNDS, Measurement
from harness.runner.case_run import CaseRun

BEGINNING_AT_A_TIME = 4
"""Cases that are built, called for the first time, and checked side by side, before any takes a turn: most of that
uses one core. What the first call costs is therefore an upper bound."""

HOPELESS = 10.0
"""A strategy that is this many times slower than the best in every round gets the fewest rounds, unless it is the best
of its framework."""

ROUNDS_THAT_TELL_PRECISION = 10
"""With fewer, the spread itself is not known."""


def run(cases: Sequence[CaseRun], baseline: str, precision: float, rng: random.Random) -> Iterator[Measurement]:
    """Measure cases in turns; yields one row per case, of those that fail as soon as they do.

    Args:
        cases: each in a worker of its own, on one workload, batch size and device.
        baseline: the strategy that the others are compared with, besides the best.
        precision: a case ends when half the 95 % interval of its ratio to both is within this (0.02: 2 %).
        rng: decides who is first in each round.
    """
    standing: list[CaseRun] = []
    for case, row in zip(cases, _begin(cases), strict=True):
        if row:
            yield row
        else:
            standing.append(case)
    rules: dict[int, str] = {}
    going = list(standing)
    while going:
        rng.shuffle(going)
        for case in list(going):
            if row := case.turn():
                yield row
                going.remove(case)
                standing.remove(case)
        for case in list(going):
            if rule := _rule_that_ends(case, standing, baseline, precision):
                rules[id(case)] = rule
                going.remove(case)
    rows = [case.end(rules[id(case)]) for case in standing]
    baseline_s = next((row.median_s for row in rows if row.strategy == baseline), None)
    for row in rows:
        yield replace(row, baseline_s=baseline_s)


def _begin(cases: Sequence[CaseRun]) -> Iterator[Measurement | None]:
    """Begin all cases, as many at a time as there are cores; on a GPU, which is one, one at a time."""
    together = BEGINNING_AT_A_TIME if all(case.task.device == "cpu" for case in cases) else 1
    pool = ThreadPoolExecutor(min(together, len(usable_cores())))
    try:
        yield from pool.map(methodcaller("begin"), cases)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C, whoever still waits ends with its worker


def _rule_that_ends(case: CaseRun, standing: Sequence[CaseRun], baseline: str, precision: float) -> str:
    """The rule by which a case takes no further turn; empty if it goes on."""
    rivals = [other for other in standing if other.task.quantity == case.task.quantity]
    best = _best(rivals)
    rounds = len(case.turns)
    if rounds < FEWEST_ROUNDS:
        return ""
    compatriots = [other for other in rivals if other.task.framework == case.task.framework]
    if min(case.turns) > HOPELESS * max(best.turns) and case is not _best(compatriots):
        return "hopeless"
    if case.timed_s >= case.task.target_s:
        return "few rounds" if rounds == FEWEST_ROUNDS else "time"
    if case is best or rounds < ROUNDS_THAT_TELL_PRECISION:
        return ""
    references = [best, *(other for other in standing if other.task.strategy == baseline)]
    known = all(half_width(case.turns, other.turns) <= precision for other in references if other is not case)
    return "precision" if known else ""


def _best(cases: Sequence[CaseRun]) -> CaseRun:
    return min(cases, key=lambda case: statistics.median(case.turns))


def half_width(one: Sequence[float], other: Sequence[float]) -> float:
    """Half the 95 % interval of the logarithm of a ratio of two times, from turns that were taken in the same rounds.

    Args:
        one: times of a case, one per round.
        other: times of another, of which the first rounds are the same ones.

    Returns:
        Infinity without any common round.
    """
    ratios = np.array([a / b for a, b in zip(one, other, strict=False)])
    if not len(ratios):
        return math.inf
    return 1.96 * math.sqrt(log_variance_of_median(ratios))
