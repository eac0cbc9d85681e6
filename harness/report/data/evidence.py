"""What a run has to say about one case, looked up by workload, quantity and a pattern of names.

Claims, decision tables and published numbers ask here. They name strategies by pattern, because a run may hold any
of them, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import statistics
from harness.analysis.case_summary import CaseSummary
from harness.analysis.panels import Panel
from harness.analysis.statistics import Estimate, Interval, Verdict


@dataclass(frozen=True)
class Series:
    """One strategy on one workload: its ranked cases, batch sizes ascending."""

    strategy: str
    panel: Panel
    lines: Mapping[int, CaseSummary]

    def time(self, batch_size: int) -> Estimate:
        """The time at a batch size that it has."""
        found = self.lines[batch_size].estimate
        assert found  # only ranked cases are in a series
        return found


@dataclass(frozen=True)
class Versus:
    """How many times faster `fast` is than `slow`, at one batch size."""

    slow: Series
    fast: Series
    batch_size: int
    ratio: Interval
    verdict: Verdict


@dataclass(frozen=True)
class Evidence:
    """All ranked cases of one run."""

    series: Mapping[tuple[str, str], tuple[Series, ...]]
    """(workload, quantity) -> its strategies, the fastest first."""

    @staticmethod
    def of(panels: Iterable[Panel]) -> Evidence:
        """Of the panels of one run; where devices or allocators differ, the first one planned speaks."""
        found: dict[tuple[str, str], tuple[Series, ...]] = {}
        for panel in sorted(panels, key=lambda panel: panel.conditions.allocator != "default"):
            place = (panel.conditions.workload, panel.conditions.quantity)
            series = _series(panel)
            if series and place not in found:
                found[place] = series
        return Evidence(found)

    def all(self, workload: str, pattern: str = ".*", quantity: str = "gradients") -> list[Series]:
        """The strategies whose whole name matches, the fastest first."""
        return [s for s in self.series.get((workload, quantity), ()) if re.fullmatch(pattern, s.strategy)]

    def one(self, workload: str, pattern: str, quantity: str = "gradients") -> Series | None:
        """The fastest of those, or None."""
        return next(iter(self.all(workload, pattern, quantity)), None)

    def workloads(self) -> list[str]:
        """Workloads of which anything has a time, in the order of the plan."""
        return list(dict.fromkeys(workload for workload, _ in self.series))


def compare(slow: Series, fast: Series, batch_size: int | None = None) -> Versus | None:
    """At the given batch size, or the nearest one that both have; None if they share none."""
    shared = sorted(slow.lines.keys() & fast.lines.keys())
    if not shared:
        return None
    size = shared[-1] if batch_size is None else min(shared, key=lambda size: abs(size - batch_size))
    ratio = statistics.ratio(slow.time(size), fast.time(size))
    floor = max(slow.panel.floor.factor, fast.panel.floor.factor)
    return Versus(slow, fast, size, ratio, statistics.verdict(ratio, floor))


def at_every_size(slow: Series, fast: Series) -> list[Versus]:
    """The comparison at every batch size that both have."""
    found = [compare(slow, fast, size) for size in sorted(slow.lines.keys() & fast.lines.keys())]
    return [comparison for comparison in found if comparison]


def _series(panel: Panel) -> tuple[Series, ...]:
    lines: dict[str, dict[int, CaseSummary]] = {}
    for record in panel.ranked:
        lines.setdefault(record.strategy, {})[int(record.batch_size)] = record
    return tuple(Series(name, panel, dict(sorted(found.items()))) for name, found in lines.items())


def largest(series: Sequence[Series]) -> int | None:
    """The largest batch size that any of them reached."""
    return max((size for one in series for size in one.lines), default=None)
