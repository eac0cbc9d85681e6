"""`pergrad advise`: which strategy for this model, this batch size, this quantity, within a minute.

The most promising strategies, by what earlier runs tell, are measured first; those of one framework share a process,
since importing a framework takes longer than measuring a strategy roughly. Then those that can still win are
measured again and again, each in a process of its own as in a run, and after every round those are dropped whose
interval says that they cannot win any more. Source: Jamieson and Talwalkar, "Non-stochastic best arm identification"
(2016), successive halving, with intervals in place of a fixed share.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from harness.advise import prior
from harness.advise.prior import Model, PriorResult
from harness.analysis import statistics
from harness.analysis.statistics import Estimate
from harness.core.find_strategies import FOLDER, Catalogue
from harness.core.framework import framework
from harness.core.records import Measurement, Status
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.frameworks.child_process import python_of
from harness.runner import workers

PROMISING = 4.0
"""Strategies that are expected to take longer than this many times the fastest come after all others."""

UNKNOWN = 3.0
"""What is expected of a strategy of pergrad that no earlier run has measured."""

ROUGHLY = 2.0
"""A first measurement, in a process that other strategies have used, may be wrong by this factor."""

FIRST_TARGET_S, TARGET_S = 0.1, 0.4
"""Seconds of timed calls per case: in the first round, in the second; doubled in every later one."""

FIRST_LIMIT_S = 10.0
"""What a case of the first round may take; a strategy that needs longer is no answer within a minute."""

FEW = 4
"""A batch in which a plain loop may be the fastest."""

TIE = 1.02
"""Two strategies this close are not worth another round."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Question:
    """What is asked: a workload, which `workloads.find` finds by its source, and the file with the reference for it."""

    name: str
    source: str
    frameworks: tuple[str, ...]
    model: Model
    batch_size: int
    quantity: str
    dtype: str
    reference: str
    device: str = "cpu"
    gpu: str = ""
    through_ops: bool = True


@dataclass
class Race:
    """Measurements so far: `first` roughly, then `rounds`, in which every strategy has a process of its own."""

    question: Question
    first: dict[str, Measurement] = field(default_factory=dict)
    rounds: dict[str, list[Measurement]] = field(default_factory=dict)
    reusing: frozenset[str] = frozenset()
    """The strategies whose result is valid until their next call only."""

    def rows(self, name: str) -> list[Measurement]:
        """What is known of a strategy: its rounds, before them the first look; nothing if it was not measured."""
        return self.rounds.get(name) or ([self.first[name]] if name in self.first else [])

    def estimate(self, name: str) -> Estimate | None:
        """The time of a strategy: from the rounds if it took part in one, otherwise from the first look."""
        rows = self.rows(name)
        if not rows or any(row.status is not Status.OK for row in rows):
            return None
        passes = [[ns * 1e-9 for ns in row.samples_ns] for row in rows]
        return statistics.estimate(passes, zlib.crc32(name.encode()), statistics.spread_of(self.noise()))

    def ranking(self) -> list[tuple[str, Estimate]]:
        """Strategies with a time, the fastest first."""
        found = [(name, estimate) for name in self.first if (estimate := self.estimate(name))]
        return sorted(found, key=lambda entry: entry[1].value)

    def contests(self) -> list[list[str]]:
        """Those that can still win: the interval of their time over the leader's reaches the noise.

        Among all; and, where the leader overwrites its last result, among those that keep theirs.
        """
        ranking = self.ranking()
        keeping = [place for place in ranking if place[0] not in self.reusing]
        groups = [ranking, keeping] if keeping[:1] != ranking[:1] else [ranking]
        return [[name for name, time in group if self.can_win(name, time, *group[0])] for group in groups if group]

    def survivors(self) -> list[str]:
        """Those that can still win a contest."""
        return list(dict.fromkeys(name for contest in self.contests() for name in contest))

    def can_win(self, name: str, time: Estimate, leader: str, best: Estimate) -> bool:
        """Whether a strategy may yet turn out to be the fastest."""
        if name == leader:
            return True
        behind = statistics.ratio(time, best)
        least = behind.value if behind.low is None else behind.low
        return least < (ROUGHLY if not (self.rounds.get(name) and self.rounds.get(leader)) else self.noise())

    def noise(self) -> float:
        """The noise floor: what the rounds of one strategy differ by.

        Few pairs may agree by luck, so that what is assumed without any pair is given up by and by only.
        """
        pairs = [
            statistics.estimate([one.samples_ns]).value / statistics.estimate([two.samples_ns]).value
            for rows in self.rounds.values()
            for one, two in itertools.pairwise(rows)
            if one.samples_ns and two.samples_ns
        ]
        assumed = math.pow(statistics.ASSUMED_FLOOR, 1 / math.sqrt(max(1, len(pairs))))
        return max(assumed, statistics.noise_floor(pairs) or 1.0)


def candidates(
    catalogue: Catalogue, question: Question, prior_results: Sequence[PriorResult]
) -> list[tuple[Strategy, float]]:
    """Strategies that may answer the question, with the ratio to the fastest that is expected; promising ones first.

    A strategy of the reader's own, which no earlier run knows, is expected to be the fastest.
    """
    found = []
    for strategy in catalogue.strategies:
        needed = (framework(strategy.framework).package, *strategy.requires)
        # What another interpreter has cannot be seen from here; the worker finds out.
        installed = python_of(strategy.framework) != sys.executable or all(map(find_spec, needed))
        runs_it = strategy.framework in question.frameworks and (question.through_ops or not strategy.through_ops)
        possible = installed and runs_it and question.device in strategy.devices
        if possible and strategy.quantity == question.quantity:
            ratio = prior.expected_ratio(prior_results, strategy.name, question.model, question.batch_size)
            own = FOLDER not in strategy.path.parents
            found.append((strategy, ratio or (1.0 if own else UNKNOWN)))
    # A loop over more than a few instances is rarely an answer; it comes after whatever is as promising.
    loops_late = question.batch_size > FEW
    return sorted(found, key=lambda entry: (entry[0].loop and loops_late, entry[1], entry[0].full_only))


def race(question: Question, found: Sequence[tuple[Strategy, float]], until: float, say: Say) -> Race:
    """Measure until `until` on `time.monotonic()`, or until only one strategy can win.

    Args:
        found: what `candidates` returned.
        until: no measurement is begun that would probably end later.
        say: told in a sentence what goes on.
    """
    state = Race(question, reusing=frozenset(strategy.name for strategy, _ in found if strategy.reuses_output))
    _first_round(state, found, until, say)
    strategies = {strategy.name: strategy for strategy, _ in found}
    for number in itertools.count():
        left = state.survivors()
        if _is_decided(state, number):
            break
        say(f"round {number + 1}: {', '.join(left)}")
        for name in left:
            row = state.rows(name)[-1]
            target = TARGET_S * 2**number
            expected = (row.import_s or 0) + (row.case_s or 0) + target + 0.5
            if time.monotonic() + expected > until:
                return state
            task = _task(question, strategies[name], target, until - time.monotonic(), checks=number == 0)
            state.rounds.setdefault(name, []).extend(workers.measure((task,)))
    return state


def _first_round(state: Race, found: Sequence[tuple[Strategy, float]], until: float, say: Say) -> None:
    """One rough measurement of every promising strategy; of all others if these give no answer."""
    best = min((ratio for _, ratio in found), default=1.0)
    promising = [strategy for strategy, ratio in found if ratio <= PROMISING * best]
    others = [strategy for strategy, ratio in found if ratio > PROMISING * best]
    begun = time.monotonic()
    share = begun + 0.6 * (until - begun)
    for group in _groups(promising):
        say(f"a first look at {', '.join(strategy.name for strategy in group)}")
        _look(state, group, share)
    if len(state.ranking()) < 2:
        for group in _groups(others):
            say(f"a first look at {', '.join(strategy.name for strategy in group)}")
            _look(state, group, share)
    if not state.ranking():
        _insist(state, found, until, say)


def _insist(state: Race, found: Sequence[tuple[Strategy, float]], until: float, say: Say) -> None:
    """Where nothing was measured, use all the time that is left for one: on a busy machine limits are passed early."""
    for strategy, _ in found:
        left = until - time.monotonic() - framework(strategy.framework).start_s
        if left < 1:
            return
        if strategy.name in undecided(state, found):
            say(f"nothing is measured yet: all the time is given to {strategy.name}")
            task = _task(state.question, strategy, FIRST_TARGET_S, left, checks=False)
            state.first |= {row.strategy: row for row in workers.measure((task,))}
        if state.ranking():
            return


def _look(state: Race, group: Sequence[Strategy], until: float) -> None:
    left = until - time.monotonic() - framework(group[0].framework).start_s
    if left < 1:
        return
    tasks = tuple(_task(state.question, strategy, FIRST_TARGET_S, FIRST_LIMIT_S, checks=False) for strategy in group)
    for row in workers.measure(tasks):
        state.first[row.strategy] = row
        if time.monotonic() > until:
            break


def _groups(strategies: Sequence[Strategy]) -> list[list[Strategy]]:
    """Strategies that may share a process, in the order of the first of each group."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...], bool], list[Strategy]] = {}
    for strategy in strategies:
        groups.setdefault((strategy.framework, strategy.environment, strategy.every_device), []).append(strategy)
    return list(groups.values())


def _is_decided(state: Race, number: int) -> bool:
    """Whether another round would change nothing that matters."""
    open_ = [contest for contest in state.contests() if len(contest) > 1]
    if not open_:
        return number > 0 or not state.survivors()
    return number > 1 and all(_are_tied(state, contest) for contest in open_)


def _are_tied(state: Race, names: Sequence[str]) -> bool:
    times = [estimate for name in names if (estimate := state.estimate(name))]
    return all((statistics.ratio(time, times[0]).high or TIE) < TIE for time in times[1:])


def _task(question: Question, strategy: Strategy, target_s: float, limit_s: float, checks: bool) -> Task:
    return Task(
        strategy=strategy.name,
        framework=strategy.framework,
        plugin=strategy.plugin,
        workload=question.name,
        quantity=strategy.quantity,
        device=question.device,
        dtype=question.dtype,
        batch_sizes=(question.batch_size,),
        pass_number=1,
        references={question.batch_size: question.reference},
        seed=0,
        limit_s=max(limit_s, 1.0),
        target_s=target_s,
        checks=checks,
        source=question.source,
        environment=dict(strategy.environment),
        gpu="all" if strategy.every_device else question.gpu,
    )


def not_tried(state: Race, found: Sequence[tuple[Strategy, float]]) -> Mapping[str, float]:
    """Strategies that were not measured, with their time over that of the fastest as expected from earlier runs."""
    return {strategy.name: ratio for strategy, ratio in found if strategy.name not in state.first}


def undecided(state: Race, found: Sequence[tuple[Strategy, float]]) -> list[str]:
    """Strategies that may run this model for all that is known: not tried, or stopped before they could show it."""
    unknown = (Status.SKIPPED, Status.TIMEOUT)
    return [
        strategy.name
        for strategy, _ in found
        if (row := state.first.get(strategy.name)) is None or row.status in unknown
    ]


def left_out(state: Race, found: Sequence[tuple[Strategy, float]]) -> Mapping[str, str]:
    """Why strategies that were tried are not in the ranking."""
    reasons = {}
    for strategy, _ in found:
        row = state.first.get(strategy.name)
        if row is None:
            continue
        if row.status is not Status.OK:
            reasons[strategy.name] = f"{row.status}: {row.reason}"
        elif broken := next((r for r in state.rounds.get(strategy.name, []) if r.status is not Status.OK), None):
            reasons[strategy.name] = f"{broken.status}: {broken.reason}"
    return reasons
