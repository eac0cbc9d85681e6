"""Runs, allocators and devices side by side: the same case under another condition, never mixed with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import formats, statistics
from harness.analysis.case_summary import CaseSummary
from harness.analysis.panels import Panel
from harness.analysis.statistics import Verdict

_MANY, _FEW = 15, 4
"""Strategies shown of a place where it stands alone, and where it shares its table with others."""


@dataclass(frozen=True)
class Sides:
    """One place under several conditions: strategies down, conditions across."""

    dimension: str
    title: str
    batch_size: int
    conditions: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Strategy, and per condition the time and what it is against the first condition; the fastest first."""
    shown: Mapping[str, str]
    """Strategy -> its name as tables show it."""


@dataclass(frozen=True)
class Table:
    """All places that were measured under the same conditions, in one table."""

    dimension: str
    conditions: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]
    """Strategy, place with batch size, and the cells."""
    left_out: int
    """Lines that only the CSV file holds."""


def tables(found: Sequence[Sides]) -> list[Table]:
    """One table per set of conditions; of many places only the leading strategies are shown."""
    groups: dict[tuple[str, tuple[str, ...]], list[Sides]] = {}
    for one in found:
        groups.setdefault((one.dimension, one.conditions), []).append(one)
    return [_table(dimension, conditions, group) for (dimension, conditions), group in groups.items()]


def _table(dimension: str, conditions: tuple[str, ...], group: Sequence[Sides]) -> Table:
    most = _MANY if len(group) == 1 else _FEW
    rows = [
        (one.shown[name], f"{one.title}, B={one.batch_size:,}", cells)
        for one in group
        for name, cells in one.rows[:most]
    ]
    return Table(dimension, conditions, tuple(rows), sum(len(one.rows) for one in group) - len(rows))


def sides(panels: Sequence[Panel], dimension: str) -> list[Sides]:
    """One table per place that was measured under several values of `dimension` (a field of `Place`)."""
    groups: dict[tuple[str, ...], list[Panel]] = {}
    for panel in panels:
        shared = tuple(value for name, value in panel.conditions._asdict().items() if name != dimension)
        groups.setdefault(shared, []).append(panel)
    found = [_sides(group, dimension) for group in groups.values() if len(group) > 1]
    return [sides for sides in found if sides]


def _sides(group: Sequence[Panel], dimension: str) -> Sides | None:
    lines = [_lines(panel) for panel in group]
    sizes = set.intersection(*({size for _, size in found} for found in lines))
    if not sizes:
        return None
    size = max(sizes)
    names = [name for name in group[0].strategies if sum((name, size) in found for found in lines) > 1]
    floor = max(panel.floor.factor for panel in group)
    rows = [(name, tuple(_cell(found, lines[0], name, size, floor) for found in lines)) for name in names]
    place = group[0].conditions
    conditions = tuple(getattr(panel.conditions, dimension) for panel in group)
    title = f"{place.workload}, {place.quantity}" + (f", {place.device}" if dimension != "device" else "")
    return Sides(dimension, title, size, conditions, tuple(rows), group[0].shown)


def _lines(panel: Panel) -> dict[tuple[str, int], CaseSummary]:
    return {(line.strategy, int(line.batch_size)): line for line in panel.ranked}


def _cell(
    found: dict[tuple[str, int], CaseSummary],
    first: dict[tuple[str, int], CaseSummary],
    name: str,
    size: int,
    floor: float,
) -> tuple[str, str]:
    line, base = found.get((name, size)), first.get((name, size))
    if line is None:
        return "no time", ""
    time = formats.duration(line.time_s)
    if found is first or base is None or base.estimate is None or line.estimate is None:
        return time, ""
    against = statistics.ratio(base.estimate, line.estimate)
    verdict = statistics.verdict(against, floor)
    if verdict in (Verdict.SAME, Verdict.AMBIGUOUS):
        return time, "a tie" if verdict is Verdict.SAME else "undecided"
    return time, formats.speedup(against, short=True)
