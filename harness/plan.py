"""Which cases are measured, in which order, and which are not worth starting."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.strategies import Strategy
from harness.task import Task

BASELINE = "tf1/session-loop"
"""What speed-ups are relative to: how the question computed its gradients."""


@dataclass(frozen=True)
class Plan:
    """Everything that was asked for.

    Attributes:
        limit_s: what one case may take, build included, before it is stopped.
        target_s: seconds of timed calls to aim for per case and pass.
        most_rounds: timed calls per case and pass at most.
        threads: threads within one operation, the same for every framework.
    """

    workloads: tuple[str, ...]
    strategies: tuple[str, ...]
    devices: tuple[str, ...]
    batch_sizes: tuple[int, ...] = (1, 4, 16, 64, 256)
    passes: int = 3
    dtype: str = "float32"
    limit_s: float = 60.0
    target_s: float = 1.6
    most_rounds: int = 2000
    threads: int | None = None
    seed: int = 0

    def quick(self) -> Plan:
        """A first impression: one pass over three batch sizes, with less patience."""
        return replace(self, batch_sizes=(1, 16, 256), passes=1, limit_s=15.0, target_s=0.5)

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return asdict(self)


def tasks(plan: Plan, strategies: Sequence[Strategy], truths: Mapping[str, Mapping[int, str]]) -> list[Task]:
    """All tasks, pass after pass, in another random order in each, so that drift hits everyone alike.

    `truths` gives for every workload and batch size the file with the truth.
    """
    rng = random.Random(plan.seed)
    ordered: list[Task] = []
    for pass_number in range(1, plan.passes + 1):
        this_pass = [
            Task(
                strategy=strategy.name,
                framework=strategy.framework,
                plugin=strategy.plugin,
                workload=workload,
                quantity=strategy.quantity,
                device=device,
                dtype=plan.dtype,
                batch_sizes=tuple(sorted(plan.batch_sizes)),
                pass_number=pass_number,
                truths=truths[workload],
                seed=plan.seed,
                limit_s=plan.limit_s,
                target_s=plan.target_s,
                most_rounds=plan.most_rounds,
                threads=plan.threads,
            )
            for workload in plan.workloads
            for device in plan.devices
            for strategy in strategies
        ]
        rng.shuffle(this_pass)
        ordered += this_pass
    return ordered


def extrapolate(history: Sequence[tuple[int, float]], batch_size: int) -> float:
    """The seconds a case will take, from (batch size, seconds) of smaller ones; 0 if they do not tell.

    The time is continued as a power of the batch size, with the exponent between the two largest. If the
    exponent has been rising, as it does while a cost that grows with B squared overtakes a fixed one, it is
    taken to rise once more. Times under a second say little about what comes and are not extrapolated.
    """
    points = [(size, seconds) for size, seconds in sorted(history) if 0 < size < batch_size and seconds > 0]
    if len(points) < 2 or points[-1][1] < 1:
        return 0.0
    exponents = [math.log(t2 / t1) / math.log(b2 / b1) for (b1, t1), (b2, t2) in itertools.pairwise(points)]
    exponent = exponents[-1] + (max(0.0, exponents[-1] - exponents[-2]) if len(exponents) > 1 else 0.0)
    size, seconds = points[-1]
    return seconds * math.pow(batch_size / size, min(max(exponent, 0.0), 3.0))
