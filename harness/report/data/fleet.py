"""Several machines in a report: the winner on each kind, where the order differs, what money buys, their noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis import formats, machines, statistics
from harness.analysis.case_summary import CaseSummary
from harness.analysis.panels import Panel
from harness.analysis.statistics import Verdict
from harness.core.store import Run


@dataclass(frozen=True)
class Winner:
    """The fastest strategy on one kind of machine, and what an hour or a unit of money of it buys."""

    strategy: str
    time: str
    buys: str


@dataclass(frozen=True)
class Line:
    """One place and batch size: the winner per kind, and whether they are the same."""

    place: str
    batch_size: int
    winners: tuple[Winner, ...]
    order: str


@dataclass(frozen=True)
class Fleet:
    """What a report says of several machines; nothing of it where there was one.

    Attributes:
        kinds: labels of the kinds that measured the whole plan, in the order of the runs.
        notices: sentences about machines that shared a run.
    """

    kinds: tuple[str, ...]
    lines: tuple[Line, ...]
    notices: tuple[str, ...]

    @property
    def differing(self) -> int:
        """In how many lines the order differs."""
        return sum(bool(line.order) for line in self.lines)


def gather(names: Sequence[str], runs: Sequence[Run], panels: Sequence[Panel]) -> Fleet:
    """What the runs say of machines.

    Args:
        names: of the runs, as the panels have them.
    """
    about = {name: fleet for name, run in zip(names, runs, strict=True) if (fleet := _fleet(run)).get("mode") == "each"}
    notices = tuple(notice for name, run in zip(names, runs, strict=True) for notice in _notices(name, run, len(runs)))
    if len(about) < 2:
        return Fleet((), (), notices)
    groups: dict[tuple[str, ...], dict[str, Panel]] = {}
    for panel in panels:
        if panel.conditions.run in about:
            groups.setdefault(tuple(panel.conditions[1:]), {})[panel.conditions.run] = panel
    lines = [line for group in groups.values() if len(group) == len(about) for line in _lines(group, about)]
    return Fleet(tuple(str(fleet.get("kind")) for fleet in about.values()), tuple(lines), notices)


def _fleet(run: Run) -> Mapping[str, Any]:
    found = run.info.get("fleet")
    return found if isinstance(found, Mapping) else {}


def _lines(group: Mapping[str, Panel], about: Mapping[str, Mapping[str, Any]]) -> list[Line]:
    first = next(iter(group.values())).conditions
    sizes = sorted(set.intersection(*(set(panel.timed_sizes) for panel in group.values())))
    place = f"{formats.clipped(first.workload, 40)}, {first.quantity.replace('_', ' ')}, {first.device}"
    found = []
    for size in sizes:
        ranked = {name: group[name].at(size) for name in about}
        winners = tuple(_winner(ranked[name][0], size, about[name].get("price_per_hour")) for name in about)
        found.append(Line(place, size, winners, _order(ranked, group, about)))
    return found


def _winner(best: CaseSummary, size: int, price: object) -> Winner:
    per_hour = 3600 * size / best.time_s
    buys = f"{formats.number(per_hour / 1e6)} million instances an hour"
    if isinstance(price, int | float) and price > 0:
        buys += f", {formats.number(per_hour / price / 1e6)} million for a price of 1"
    name = formats.marked(formats.clipped(best.strategy, 40), best.reuses_output)
    return Winner(name, formats.duration(best.time_s), buys)


def _order(
    ranked: Mapping[str, Sequence[CaseSummary]],
    group: Mapping[str, Panel],
    about: Mapping[str, Mapping[str, Any]],
) -> str:
    """By how much the winner of the first kind loses on the others; empty where it wins or ties."""
    first = next(iter(about))
    favourite = ranked[first][0]
    said = []
    for name in list(about)[1:]:
        best, label = ranked[name][0], about[name].get("kind")
        here = next((case for case in ranked[name] if case.strategy == favourite.strategy), None)
        if best.strategy == favourite.strategy:
            continue
        if here is None or here.estimate is None or best.estimate is None:
            said.append(f"on {label} {formats.clipped(favourite.strategy, 40)} has no time")
            continue
        behind = statistics.ratio(here.estimate, best.estimate)
        if statistics.verdict(behind, group[name].floor.factor) is Verdict.FASTER:
            said.append(
                f"on {label} {formats.clipped(favourite.strategy, 40)} is {formats.factor(behind.value)} times slower "
                f"than {formats.clipped(best.strategy, 40)}"
            )
    return "; ".join(said)


def _notices(name: str, run: Run, count: int) -> list[str]:
    found = machines.compare(run.rows)
    if found is None:
        return []
    speeds = ", ".join(f"{formats.clipped(one, 40)} {formats.factor(slow)}" for one, slow in found.slowness.items())
    which = f"Run {name}: heats" if count > 1 else "Heats"
    said = (
        f"{which} were divided among {len(found.slowness)} machines, whose times relative to all of them are {speeds}."
    )
    if found.across is None:
        return [f"{said} No case was measured on two of them, so the noise between machines is not known."]
    said += (
        f" Ratios to the baseline typically differ by {formats.percent(found.across)} between machines "
        f"({found.pairs_other:,} pairs of processes)"
    )
    if found.within is None or found.between is None:
        return [f"{said}; no case was measured twice on one, so how much of it is theirs is not known."]
    own = formats.percent(found.between) if found.between > 1 else "nothing that can be told from the rest"
    return [f"{said} and by {formats.percent(found.within)} on one ({found.pairs_same:,} pairs): machines add {own}."]
