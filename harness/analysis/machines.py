"""How much the machines of one run differ: in speed, which cancels within a heat, and in ratios, which is noise."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.analysis import heats
from harness.core.records import Measurement, Status

NORMAL = 0.6745
"""The median of the absolute value of a standard normal variable."""


@dataclass(frozen=True)
class Machines:
    """The machines that shared the heats of a run.

    Attributes:
        slowness: machine -> how slow it was, relative to all of them (1.05: 5 % slower).
        pairs_same: pairs of processes of one case that one machine measured.
        pairs_other: pairs of which each was measured by another machine.
        within: factor by which ratios to the baseline typically differ in the first kind of pair; None without any.
        across: the same in the second kind.
    """

    slowness: Mapping[str, float]
    pairs_same: int
    pairs_other: int
    within: float | None
    across: float | None

    @property
    def between(self) -> float | None:
        """What machines add to the noise of a ratio, as a factor; None where it cannot be told from the rest.

        The component of variance between machines: what pairs across machines differ by, less what pairs on one
        machine do.
        """
        if self.within is None or self.across is None:
            return None
        return math.exp(math.sqrt(max(0.0, math.log(self.across) ** 2 - math.log(self.within) ** 2)))


def compare(rows: Iterable[Measurement]) -> Machines | None:
    """What the rows of a run tell of the machines that measured them; None unless there were several.

    The differences are those of the logarithm of a case's time over the baseline's in the same heat; their typical size
    is the median's, so that a few disturbed heats do not decide. Source of the decomposition: Kalibera and Jones,
    "Rigorous benchmarking in reasonable time" (2013), with machines as one more level.
    """
    timed = [row for row in rows if row.status is Status.OK and row.machine and row.median_s]
    if len({row.machine for row in timed}) < 2:
        return None
    cases: dict[object, list[Measurement]] = defaultdict(list)
    places: dict[object, list[Measurement]] = defaultdict(list)
    for row in timed:
        cases[row.case].append(row)
        places[row.workload, row.device, row.dtype, row.allocator, row.batch_size].append(row)
    same: list[float] = []
    other: list[float] = []
    for found in cases.values():
        compared = [row for row in found if row.baseline_s and row.baseline_s != row.median_s]
        for one, two in itertools.combinations(compared, 2):
            (same if one.machine == two.machine else other).append(abs(_log_ratio(one) - _log_ratio(two)))
    return Machines(_slowness(places.values()), len(same), len(other), _typical(same), _typical(other))


def _slowness(places: Iterable[Iterable[Measurement]]) -> dict[str, float]:
    """The median over heats, relative to all heats of the same place and batch size."""
    seen: dict[str, list[float]] = defaultdict(list)
    for rows in places:
        found = list(rows)
        machine_of = {row.heat: row.machine for row in found}
        for heat, factor in heats.slowness(found).items():
            seen[machine_of[heat]].append(math.log(factor))
    return {machine: math.exp(statistics.median(logs)) for machine, logs in sorted(seen.items())}


def _log_ratio(row: Measurement) -> float:
    return math.log(row.median_s or math.nan) - math.log(row.baseline_s or math.nan)


def _typical(differences: list[float]) -> float | None:
    """The standard deviation of one of two values that differ so, as a factor."""
    return math.exp(statistics.median(differences) / NORMAL / math.sqrt(2)) if differences else None
