"""One section per workload and condition: the rows of gradients, with what else was measured in the same place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.analysis import formats, statistics
from harness.analysis.panels import NoiseFloor, Panel
from harness.report.data import answer, captions, costs, needs, tables
from harness.report.data.answer import Answer
from harness.report.data.costs import Cost, Overtaking
from harness.report.data.tables import Matrix
from harness.report.figures import figures
from harness.report.figures.drawing import Chart


@dataclass(frozen=True)
class WithoutRows:
    """One strategy that gives another quantity than the rows."""

    title: str
    strategy: str
    time: str
    against: str


@dataclass(frozen=True)
class Section:
    """One place as the page shows it: a panel with figures, and the panels of other quantities beside it."""

    anchor: str
    stem: str
    title: str
    conditions: str
    answer: Answer
    matrix: Matrix
    charts: tuple[Chart, ...]
    costs: tuple[Cost, ...]
    overtakings: tuple[Overtaking, ...]
    without_rows: tuple[WithoutRows, ...]
    tally: str
    floor: str
    panel: Panel
    others: tuple[Panel, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels of the section."""
        return (self.panel, *self.others)

    @property
    def floors(self) -> tuple[str, ...]:
        """The noise floor of every panel, with its quantity where the section has several."""
        if not self.others:
            return (self.floor,)
        return tuple(f"{panel.conditions.quantity.replace('_', ' ')} {floor(panel.floor)}" for panel in self.panels)


def sections(panels: Sequence[Panel], folder: Path) -> list[Section]:
    """The sections in the order of the panels; their figures are written into `folder`."""
    groups = _groups(panels)
    names = stems([main for main, _ in groups])
    naming = {panel.conditions.device for panel in panels} != {"cpu"}
    return [
        _section(main, others, stem, figures.draw(main, folder, stem), naming)
        for (main, others), stem in zip(groups, names, strict=True)
    ]


def stems(panels: Sequence[Panel]) -> list[str]:
    """One file name stem per panel: the workload and whatever else tells the panels apart, safe in any path."""
    names = ["workload", *(name for name in tables.varying(panels) if name != "workload")]
    found: list[str] = []
    for panel in panels:
        words = "-".join(getattr(panel.conditions, name) for name in names)
        stem = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60].strip("-") or "panel"
        found.append(stem if stem not in found else f"{stem}-{len(found) + 1}")
    return found


def _groups(panels: Sequence[Panel]) -> list[tuple[Panel, list[Panel]]]:
    """Panels that differ in the quantity only; the first of them, which is the one of the rows, leads."""
    found: dict[tuple[str, ...], list[Panel]] = {}
    for panel in panels:
        found.setdefault(tuple(panel.conditions._replace(quantity="")), []).append(panel)
    return [(group[0], group[1:]) for group in found.values()]


def _section(panel: Panel, others: Sequence[Panel], stem: str, charts: Sequence[Chart], naming: bool) -> Section:
    return Section(
        anchor=f"panel-{stem}",
        stem=stem,
        title=formats.clipped(panel.conditions.workload, 40) or "unnamed",
        conditions=captions.conditions(panel),
        answer=answer.recommend(panel, naming),
        matrix=tables.matrix(panel),
        charts=tuple(charts),
        costs=tuple(costs.costs(panel, others)),
        overtakings=tuple(costs.overtakings(panel)),
        without_rows=tuple(line for other in others for line in _without_rows(panel, other)),
        tally=captions.tally(panel.cases),
        floor=floor(panel.floor),
        panel=panel,
        others=tuple(others),
    )


def _without_rows(panel: Panel, other: Panel) -> list[WithoutRows]:
    """Every strategy of another quantity at the largest batch size at which both it and the rows have a time."""
    titles = {need.quantity: need.title for need in needs.NEEDS}
    shared = sorted({*panel.timed_sizes} & {*other.timed_sizes})
    if not shared:
        return []
    size = shared[-1]
    rows = panel.at(size)[0]
    assert rows.estimate
    title = (
        f"{titles.get(other.conditions.quantity, formats.clipped(other.conditions.quantity, 40))}, batch size {size:,}"
    )
    return [
        WithoutRows(
            title,
            line.shown,
            formats.duration(line.time_s),
            f"{formats.speedup(statistics.ratio(rows.estimate, line.estimate), short=True)} than "
            f"{formats.clipped(rows.strategy, 40)}",
        )
        for line in other.at(size)
        if line.estimate
    ]


def floor(found: NoiseFloor) -> str:
    """The noise floor, and how it is known."""
    if found.source == "assumed":
        return f"{formats.percent(found.factor)}, assumed, because every case has one pass only"
    pairs = f"{found.pairs} {captions.plural('pair', found.pairs)} of processes of one strategy"
    return f"{formats.percent(found.factor)}, measured by {pairs}"
