"""Which cases are measured, in which order, and which are not worth starting."""

from __future__ import annotations

import math
import os
import random
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.domain import usable_cores
from harness.core.find_strategies import Catalogue
from harness.core.find_workloads import builtin, find, others, unavailable
from harness.core.framework import framework, framework_names
from harness.core.strategy import Strategy
from harness.core.task import Task

DEFAULT_WORKLOADS = ("policy", "cnn", "mlp")
"""The smallest results first: a process that has freed large ones gets memory in another way afterwards."""

QUICK_WORKLOADS = ("policy", "cnn")


class PlanError(Exception):
    """A plan that cannot be measured here; the message says what was given and what is allowed."""


@dataclass(frozen=True)
class Plan:
    """Everything that was asked for.

    Attributes:
        workload_files: name -> file of those workloads that did not come with pergrad.
        limit_s: what one case may take, build included, before it is stopped.
        target_s: seconds of timed calls to aim for per case and pass.
        precision: rounds end when the ratio to the best and to the baseline is known this well (0.02: 2 %).
        threads: threads within one operation, the same for every framework; None leaves their defaults.
        cpus: the cores that workers are bound to; None leaves them all.
        allocators: memory policies, each measured: `default`, `reuse`.
        baseline: the strategy that speed-ups are relative to; empty if there is none.
        gpu: which GPU is measured, as `harness.frameworks.child_process.visible` takes it; the first if empty.
        budget_s: what the whole run may take; None leaves it as long as it needs.
    """

    workloads: tuple[str, ...]
    strategies: tuple[str, ...]
    devices: tuple[str, ...]
    workload_files: Mapping[str, str] = field(default_factory=dict)
    batch_sizes: tuple[int, ...] = (1, 10, 100)
    passes: int = 2
    dtype: str = "float32"
    limit_s: float = 60.0
    target_s: float = 1.2
    precision: float = 0.02
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    allocators: tuple[str, ...] = ("default",)
    baseline: str = ""
    budget_s: float | None = None
    seed: int = 0
    gpu: str = ""

    def source(self, workload: str) -> str:
        """What `workloads.find` takes to find a workload of this plan."""
        return self.workload_files.get(workload, workload)

    def allocators_of(self, device: str) -> tuple[str, ...]:
        """The memory policies that are measured on a device; the C library decides nothing on a GPU."""
        return self.allocators if device == "cpu" else ("default",)

    def given(self, **values: Any) -> Plan:
        """The plan with those values that are given, and not None."""
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    def quick(self) -> Plan:
        """A first impression: one pass over two batch sizes, with less time for each case."""
        return replace(self, batch_sizes=(1, 64), passes=1, target_s=0.25)


def plan_for(workloads: Mapping[str, str], strategies: Sequence[str]) -> Plan:
    """A plan with everything else by default. `workloads` maps names to where they are found (`workloads.find`)."""
    files = {name: source for name, source in workloads.items() if name != source}
    return Plan(tuple(workloads), tuple(strategies), devices=("cpu",), workload_files=files)


def requested_workloads(given: Sequence[str], default: Sequence[str] = DEFAULT_WORKLOADS) -> dict[str, str]:
    """Name -> where it is found, of the workloads asked for; `all` means those that `pergrad list workloads` shows.

    Without any they are those of `default` and those of the current folder and of installed packages.

    Raises:
        PluginError: if there is none of a name.
    """
    found = [find(name) for name in given or default if name != "all"]
    if "all" in given:
        found = [*map(find, DEFAULT_WORKLOADS), *builtin(), *found]
    if "all" in given or not given:
        found += others()
        for name, reason in unavailable().items():
            print(f"{name}: unavailable: {reason}", file=sys.stderr)
    return {workload.name: workload.source for workload in found}


def frameworks_of(workloads: Mapping[str, str]) -> set[str]:
    """The frameworks that can run one of these workloads, by their files alone; no others need be looked at."""
    return {framework for source in workloads.values() for framework in find(source).frameworks}


def with_baseline(plan: Plan, catalogue: Catalogue, frameworks: Container[str], may_add: bool) -> Plan:
    """The plan with its baseline: the one asked for, else the plain loop of the first framework that is there.

    Args:
        frameworks: those that can be imported here.
        may_add: whether a loop that was not asked for may be added, where none of the plan's strategies is one.
    """
    if plan.baseline:
        named = catalogue.find(plan.baseline).name
        added = () if named in plan.strategies else (named,)
        return replace(plan, baseline=named, strategies=(*added, *plan.strategies))
    chosen = [catalogue.find(name) for name in plan.strategies]
    there = {strategy.framework for strategy in chosen if strategy.framework in frameworks}
    loops = sorted(
        (s for s in catalogue.strategies if s.loop and s.framework in there),
        key=lambda s: framework_names().index(s.framework),
    )
    measured = [loop.name for loop in loops if loop.name in plan.strategies]
    if measured or not (loops and may_add):
        return replace(plan, baseline=measured[0] if measured else "")
    return replace(plan, baseline=loops[0].name, strategies=(loops[0].name, *plan.strategies))


def bind_to_cores(plan: Plan) -> Plan:
    """The plan with its cores checked; `threads` alone binds to as many cores, the only way to limit XLA's threads.

    Raises:
        PlanError: if this process may not use one of the cores.
    """
    available = usable_cores()
    if plan.cpus and not set(plan.cpus) <= set(available):
        raise PlanError(f"--cpus {','.join(map(str, plan.cpus))}: available here are {','.join(map(str, available))}")
    if plan.cpus and not hasattr(os, "sched_setaffinity"):  # macOS
        raise PlanError("--cpus: this system binds no process to cores; limit the frameworks with --threads")
    return replace(plan, cpus=plan.cpus or cores_for(plan.threads))


def cores_for(threads: int | None) -> tuple[int, ...] | None:
    """The cores of this machine that so many threads are bound to; None, for all of them, if they need no fewer."""
    available = usable_cores()
    if not threads or threads >= len(available) or not hasattr(os, "sched_setaffinity"):
        return None
    return tuple(available[:threads])


@dataclass(frozen=True)
class Group:
    """Strategies whose workers stand ready side by side, each in a process of its own, and the heats they meet in.

    A heat is what is compared: every task of it has the same workload and one batch size, the same one.

    Attributes:
        number: counts the groups of a pass from 1; all of them have the baseline in them.
    """

    pass_number: int
    number: int
    heats: tuple[tuple[Task, ...], ...]


def groups(
    plan: Plan, strategies: Sequence[Strategy], references: Mapping[str, Mapping[int, str]], most_workers: int
) -> list[Group]:
    """All groups, pass after pass; strategies are in another random order in each.

    Usually a group is a whole pass. It is less where memory does not allow as many workers, and with a budget: then
    the first groups hold what is most useful, the baseline and one strategy of each framework in turn.

    Args:
        references: for every workload and batch size the file with the reference.
        most_workers: how many workers may stand ready at the same time, at least 2.
    """
    rng = random.Random(plan.seed)
    found: list[Group] = []
    for pass_number in range(1, plan.passes + 1):
        conditions = [(device, allocator) for device in plan.devices for allocator in plan.allocators_of(device)]
        for device, allocator in conditions:
            shuffled = rng.sample(strategies, len(strategies))
            size = most_workers if plan.budget_s is None else min(most_workers, len(framework_names()) + 1)
            for number, members in enumerate(_split(_most_useful_first(plan, shuffled), plan.baseline, size), start=1):
                heats: list[tuple[Task, ...]] = []
                for workload in plan.workloads:
                    files = references[workload]
                    tasks = [_task(plan, one, device, allocator, workload, pass_number, files) for one in members]
                    heats += [tuple(task.only([size]) for task in tasks) for size in sorted(plan.batch_sizes)]
                found.append(Group(pass_number, number, tuple(heats)))
    return found


def _split(strategies: Sequence[Strategy], baseline: str, size: int) -> Iterator[list[Strategy]]:
    """Parts of at most `size`, as equal as may be, the baseline first in each."""
    first = [strategy for strategy in strategies if strategy.name == baseline]
    others = [strategy for strategy in strategies if strategy.name != baseline]
    count = math.ceil(len(others) / max(1, size - len(first)))
    step = math.ceil(len(others) / max(1, count))
    for start in range(0, len(others), step) if others else ():
        yield [*first, *others[start : start + step]]
    if not others:
        yield first


def _task(
    plan: Plan,
    strategy: Strategy,
    device: str,
    allocator: str,
    workload: str,
    pass_number: int,
    references: Mapping[int, str],
) -> Task:
    return Task(
        strategy=strategy.name,
        framework=strategy.framework,
        plugin=strategy.plugin,
        workload=workload,
        quantity=strategy.quantity,
        device=device,
        dtype=plan.dtype,
        batch_sizes=tuple(sorted(plan.batch_sizes)),
        pass_number=pass_number,
        references=references,
        seed=plan.seed,
        limit_s=plan.limit_s,
        target_s=plan.target_s,
        threads=plan.threads,
        cpus=plan.cpus,
        allocator=allocator,
        checks=pass_number == 1,
        source=plan.source(workload),
        environment=dict(strategy.environment),
        gpu="all" if strategy.every_device else plan.gpu,
    )


def _most_useful_first(plan: Plan, strategies: Sequence[Strategy]) -> list[Strategy]:
    """The baseline first, then one strategy of each framework in turn."""
    seen: Counter[str] = Counter()
    ranked = []
    for strategy in sorted(strategies, key=lambda strategy: strategy.name != plan.baseline):
        seen[strategy.framework] += 1
        ranked.append((seen[strategy.framework], strategy))
    return [strategy for _, strategy in sorted(ranked, key=lambda entry: entry[0])]


CASE_S = 0.8
"""Seconds of a case beside its timed calls and their warm-up: batches, build, first call, checks."""


def expected_s(plan: Plan, strategies: Sequence[Strategy]) -> float:
    """About how long a run of this plan takes, on two cores, before anything is known of the machine."""
    cases = len(plan.workloads) * len(plan.batch_sizes)
    per_pass = sum(
        framework(strategy.framework).start_s + cases * (CASE_S + 1.1 * plan.target_s) for strategy in strategies
    )
    seconds = per_pass * plan.passes * sum(len(plan.allocators_of(device)) for device in plan.devices)
    return seconds if plan.budget_s is None else min(seconds, plan.budget_s)
