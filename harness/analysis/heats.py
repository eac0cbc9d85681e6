"""Heats of one case of the plan, made comparable: what the machine's speed was in each of them.

Strategies of one heat take turns and meet the same machine. Strategies of two heats, minutes apart, do not; but some
were in both, each in another process, and the baseline is in every one.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

from harness.core.records import Measurement, Status

ROUNDS = 20
"""Alternations between the strategies' times and the heats' speeds; both have settled long before."""

_BASELINE = ""
"""The baseline of every heat, by what its rows say of it."""


def slowness(rows: Iterable[Measurement]) -> dict[int, float]:
    """How slow the machine was in each heat, relative to all of them: heat -> factor.

    On the logarithmic scale, the time of a strategy in a heat is the sum of the strategy's own and the heat's; the
    latter is the median over strategies that were in several heats (Tukey's median polish, "Exploratory data analysis",
    1977, with means for the strategies, which are in few heats each).

    Args:
        rows: of one workload, device, dtype, allocator and batch size; those without a time or a heat say nothing.
    """
    times: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row.status is Status.OK and row.heat is not None and row.median_s:
            times[row.strategy][row.heat] = math.log(row.median_s)
            if row.baseline_s:
                times[_BASELINE][row.heat] = math.log(row.baseline_s)
    shared = {name: heats for name, heats in times.items() if len(heats) > 1}
    effects: dict[int, float] = dict.fromkeys({heat for heats in times.values() for heat in heats}, 0.0)
    for _ in range(ROUNDS if len(effects) > 1 else 0):
        own = {name: _mean_without(heats, effects) for name, heats in shared.items()}
        for heat in effects:
            seen = [heats[heat] - own[name] for name, heats in shared.items() if heat in heats]
            effects[heat] = statistics.median(seen) if seen else 0.0
        middle = statistics.fmean(effects.values())
        effects = {heat: effect - middle for heat, effect in effects.items()}
    return {heat: math.exp(effect) for heat, effect in effects.items()}


def _mean_without(heats: Mapping[int, float], effects: Mapping[int, float]) -> float:
    return statistics.fmean(time - effects[heat] for heat, time in heats.items())
