"""Which cases are measured, in which order, and which are not worth starting."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.core.strategy import Strategy
from harness.core.task import Job, Task

BASELINE = "tf1/session-loop"
"""What speed-ups are relative to: how the question computed its gradients."""

CONTROL = "tf1/session-loop-again"
"""The baseline under a second name: how far the two are apart is noise."""

MOST_ROW_BYTES = 4 << 30
"""Results beyond this are skipped: with the copies that checking needs, they would not fit on common machines."""


@dataclass(frozen=True)
class Plan:
    """Everything that was asked for.

    Attributes:
        workload_files: name -> file of those workloads that did not come with pergrad.
        limit_s: what one case may take, build included, before it is stopped.
        target_s: seconds of timed calls to aim for per case and pass.
        most_rounds: timed calls per case and pass at most.
        threads: threads within one operation, the same for every framework; None leaves their defaults.
        cpus: the cores that workers are bound to; None leaves them all.
        allocators: memory policies, each measured: `default`, `reuse`.
        control: whether the baseline is measured under a second name too.
        budget_s: what the whole run may take; None leaves it as long as it needs.
    """

    workloads: tuple[str, ...]
    strategies: tuple[str, ...]
    devices: tuple[str, ...]
    workload_files: Mapping[str, str] = field(default_factory=dict)
    batch_sizes: tuple[int, ...] = (1, 4, 16, 64, 256)
    passes: int = 2
    dtype: str = "float32"
    limit_s: float = 60.0
    target_s: float = 1.0
    most_rounds: int = 1000
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    allocators: tuple[str, ...] = ("default",)
    control: bool = True
    budget_s: float | None = None
    seed: int = 0

    def source(self, workload: str) -> str:
        """What `workloads.find` takes to find a workload of this plan."""
        return self.workload_files.get(workload, workload)

    def quick(self) -> Plan:
        """A first impression: one pass over three batch sizes, with less patience."""
        return replace(self, batch_sizes=(1, 16, 256), passes=1, limit_s=20.0, target_s=0.3, control=False)


def plan_for(workloads: Mapping[str, str], strategies: Sequence[str]) -> Plan:
    """A plan with everything else by default. `workloads` maps names to where they are found (`workloads.find`)."""
    files = {name: source for name, source in workloads.items() if name != source}
    return Plan(tuple(workloads), tuple(strategies), devices=("cpu",), workload_files=files)


def jobs(plan: Plan, strategies: Sequence[Strategy], truths: Mapping[str, Mapping[int, str]]) -> list[Job]:
    """All jobs, pass after pass, in another random order in each, so that drift hits everyone alike.

    A job is one strategy on all workloads, in the order of the plan; one process measures it, which saves importing
    the framework again. With a budget the first pass begins with what is most useful: the baseline,
    then one strategy of each framework in turn. `truths` gives for every workload and batch size the file with the
    truth.
    """
    rng = random.Random(plan.seed)
    named = [(strategy.name, strategy) for strategy in strategies]
    if plan.control:
        named += [(CONTROL, strategy) for strategy in strategies if strategy.name == BASELINE]
    ordered: list[Job] = []
    for pass_number in range(1, plan.passes + 1):
        this_pass = [
            tuple(
                _task(plan, name, strategy, device, allocator, workload, pass_number, truths[workload])
                for workload in plan.workloads
            )
            for device in plan.devices
            for allocator in plan.allocators
            for name, strategy in named
        ]
        rng.shuffle(this_pass)
        ordered += _most_useful_first(this_pass) if plan.budget_s and pass_number == 1 else this_pass
    return ordered


def _task(
    plan: Plan,
    name: str,
    strategy: Strategy,
    device: str,
    allocator: str,
    workload: str,
    pass_number: int,
    truths: Mapping[int, str],
) -> Task:
    return Task(
        strategy=name,
        framework=strategy.framework,
        plugin=strategy.plugin,
        workload=workload,
        quantity=strategy.quantity,
        device=device,
        dtype=plan.dtype,
        batch_sizes=tuple(sorted(plan.batch_sizes)),
        pass_number=pass_number,
        truths=truths,
        seed=plan.seed,
        limit_s=plan.limit_s,
        target_s=plan.target_s,
        most_rounds=plan.most_rounds,
        threads=plan.threads,
        cpus=plan.cpus,
        allocator=allocator,
        checks=pass_number == 1,
        loads=strategy.name,
        source=plan.source(workload),
        environment=dict(strategy.environment),
    )


def _most_useful_first(this_pass: Sequence[Job]) -> list[Job]:
    """The baseline first, then one job of each framework in turn; the control last."""
    seen: Counter[str] = Counter()
    ranked = []
    for job in sorted(this_pass, key=lambda job: job[0].strategy != BASELINE):
        task = job[0]
        seen[task.framework] += 1
        ranked.append((task.strategy == CONTROL, seen[task.framework], job))
    return [job for *_, job in sorted(ranked, key=lambda entry: entry[:2])]


def too_large(row_bytes: int, batch_size: int) -> str:
    """Why the rows of such a batch are not measured; empty if they are."""
    needed = batch_size * row_bytes
    if needed <= MOST_ROW_BYTES:
        return ""
    return (
        f"{batch_size} rows take {needed / 2**30:.1f} GiB, "
        f"the limit is {MOST_ROW_BYTES / 2**30:g} GiB of gradients in one result"
    )


def extrapolate(history: Sequence[tuple[int, float]], batch_size: int) -> float:
    """The seconds a case will take, from (batch size, seconds) of smaller ones; 0 if they do not tell.

    The time is continued as a power of the batch size, with the exponent between the two largest. If the
    exponent has been rising, as it does while a cost that grows with B squared overtakes a fixed one, it is
    taken to rise by half as much again. Times under a second say little about what comes and are not
    extrapolated.
    """
    points = [(size, seconds) for size, seconds in sorted(history) if 0 < size < batch_size and seconds > 0]
    if len(points) < 2 or points[-1][1] < 1:
        return 0.0
    exponents = [math.log(t2 / t1) / math.log(b2 / b1) for (b1, t1), (b2, t2) in itertools.pairwise(points)]
    rise = max(0.0, exponents[-1] - exponents[-2]) if len(exponents) > 1 else 0.0
    exponent = exponents[-1] + 1.5 * rise
    size, seconds = points[-1]
    return seconds * math.pow(batch_size / size, min(max(exponent, 0.0), 3.0))


def trial_size(history: Sequence[tuple[int, float]], batch_size: int, limit_s: float) -> int | None:
    """A smaller batch size to try first, after a large step: if a cost that grows with B squared might not fit.

    A prediction from smaller sizes errs by a factor of two, and being stopped at the limit costs all of it. Two sizes,
    of which one was disturbed, tell nothing: what they make look hopeless is tried at twice the size.
    """
    size, seconds = max(history, default=(1, 1.0))
    step = batch_size / size
    if step < 4:
        return None
    if extrapolate(history, batch_size) > limit_s:
        return size * 2 if len(history) < 3 else None
    return size * (4 if step > 4 else 2) if seconds * step**2 > limit_s / 2 else None


START_S = {"tf1": 6.0, "tf2": 6.0, "jax": 2.0, "torch": 3.0, "numpy": 1.0}
"""Seconds from starting a worker to its first case, on two cores."""

CASE_S = 0.8
"""Seconds of a case beside its timed calls and their warm-up: batches, build, first call, checks."""


def expected_s(plan: Plan, strategies: Sequence[Strategy]) -> float:
    """About how long a run of this plan takes, on two cores, before anything is known of the machine."""
    names = [strategy for strategy in strategies if strategy.name == BASELINE] if plan.control else []
    workers = [*strategies, *names]
    cases = len(plan.workloads) * len(plan.batch_sizes)
    per_pass = sum(START_S[strategy.framework] + cases * (CASE_S + 1.1 * plan.target_s) for strategy in workers)
    seconds = per_pass * plan.passes * len(plan.devices) * len(plan.allocators)
    return seconds if plan.budget_s is None else min(seconds, plan.budget_s)
