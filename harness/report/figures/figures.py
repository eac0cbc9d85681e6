"""The figures of one panel: time against batch size, and what has to be paid before the first result.

Two, because these two argue; whatever else is known stands in compact tables.

Every figure is a function of a panel alone. What cannot be shown (no time, zero on a log axis) is left out of the
drawing and named in the caption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.analysis import formats
from harness.analysis.panels import Panel, known, table
from harness.report.data import captions
from harness.report.figures import drawing
from harness.report.figures.drawing import Chart, Pick
from harness.report.figures.labels import End, label_ends
from harness.report.figures.theme import LIGHT, hue, looks

LABELLED = 10
"""Strategies drawn in colour and labelled; the others stay grey, and are in the table."""

CLOCKS = (("build_s", "s", "build"), ("first_call_s", "D", "first call"), ("time_s", "o", "later calls"))
"""Column, marker and heading of what `first_call` compares."""

_TIMES = ("time_s", "time_low_s", "time_high_s")

_ROOM = 0.06
"""Share of a figure's height that a line of text takes."""

_NEAR = 10.0
"""A strategy within this factor of the ceiling is near it."""


def draw(panel: Panel, folder: Path, stem: str) -> list[Chart]:
    """All figures of a panel, written into `folder` with names that begin with `stem`.

    A panel without any time gets none.
    """
    with drawing.style():
        drawn = [
            time(panel, folder, f"{stem}-time"),
            first_call(panel, folder, f"{stem}-first-call"),
        ]
    return [chart for chart in drawn if chart]


def time(panel: Panel, folder: Path, name: str) -> Chart | None:
    """Time per call against batch size, both logarithmic, with interval bands and the ceiling as shaded floor."""
    cases = table(panel.ranked)
    if cases.empty:
        return None
    figure, axes = drawing.canvas(_height(cases), right=0.31)
    floor = ceiling(cases)
    drawing.log_scale(axes, "y", [*_extent(cases), *_within_reach(floor, cases)], formats.duration)
    picks = _lines(panel, cases, axes)
    _shade(axes, floor)
    drawing.headline(figure, "time per call (log scale), lower is better", f"Time per call: {_title(panel)}")
    ends = [formats.duration(value) for value in _last(cases)["time_s"]]
    caption = _caption(
        "Median over processes of the median over turns; bands are 95 % intervals.",
        _about_ceiling(floor),
        _colours(cases),
        captions.gaps(captions.without_time(panel)),
    )
    alt = captions.lines(panel, "time per call", cases, ends)
    return drawing.finish(figure, folder, name, "Time per call", alt, caption, picks)


def ceiling(cases: pd.DataFrame) -> dict[int, float]:
    """Batch size -> the least time this machine could take; the same for all strategies, so their median."""
    known_floors = cases[cases["floor_s"] > 0]
    return {
        int(str(size)): float(value) for size, value in known_floors.groupby("batch_size")["floor_s"].median().items()
    }


def first_call(panel: Panel, folder: Path, name: str) -> Chart | None:
    """Build, first call and steady state of each strategy at the largest batch size it reached."""
    reached = table(panel.ranked).groupby("strategy", sort=False).tail(1)
    if reached.empty:
        return None
    cases = reached[reached["strategy"].isin(leading(panel, reached))]
    common = int(reached["batch_size"].max())
    names = [
        formats.marked(drawing.label(name, 26), reuses) + ("" if size == common else f" (B={size:,})")
        for name, size, reuses in zip(cases["strategy"], cases["batch_size"], cases["reuses_output"], strict=True)
    ]
    figure, axes = _row_canvas(names)
    clocks = cases[[column for column, _, _ in CLOCKS]].where(lambda values: values > 0)  # a log axis has no 0
    drawing.log_scale(axes, "x", [value for value in clocks.to_numpy().ravel() if known(value)], formats.duration)
    hues = _hues(cases)
    rows = range(len(cases))
    axes.hlines(rows, clocks.min(axis=1), clocks.max(axis=1), colors=hues, linewidth=1, alpha=0.45)
    for position, (column, marker, title) in enumerate(CLOCKS):
        filled = marker == "o"
        axes.scatter(
            clocks[column], rows, s=48, marker=marker, edgecolors=hues, c=hues if filled else LIGHT["ground"], zorder=3
        )
        x = 1.05 + 0.16 * position
        _key(axes, x - 0.02, marker, filled)
        _column(axes, x, [title, *(_duration(value) for value in cases[column])])
    drawing.headline(
        figure,
        f"time (log scale), at batch size {common:,} unless another is named",
        f"First call and later calls: {_title(panel)}",
    )
    entries = [
        f"{drawing.label(line['strategy'])} at batch size {line['batch_size']:,}: build {_duration(line['build_s'])}, "
        f"first call {_duration(line['first_call_s'])}, later calls {_duration(line['time_s'])}"
        for line in cases.to_dict("records")
    ]
    caption = _caption(
        "Build and first call are paid once. Every strategy is shown at the largest batch size that it reached.",
        _others(len(reached) - len(cases)),
        captions.gaps(case for case in panel.cases if case.strategy not in set(reached["strategy"])),
    )
    alt = captions.rows(panel, "build, first call and later calls (log scale)", entries)
    return drawing.finish(figure, folder, name, "First call against later calls", alt, caption)


def leading(panel: Panel, cases: pd.DataFrame) -> list[str]:
    """The strategies drawn in colour: the first of the panel's order, and the baseline always."""
    names = list(dict.fromkeys(cases["strategy"]))
    if len(names) <= LABELLED:
        return names
    first = [name for name in names if name != panel.baseline][: LABELLED - (panel.baseline in names)]
    return [name for name in names if name in first or name == panel.baseline]


def _lines(panel: Panel, cases: pd.DataFrame, axes: Axes) -> list[Pick]:
    """Lines, bands and labels, each under the number by which a reader can pick it."""
    sizes = sorted({int(size) for size in cases["batch_size"]})
    drawing.batch_axis(axes, sizes)
    coloured = set(leading(panel, cases))
    found = looks((case.strategy, case.framework) for case in panel.cases)
    ends, picks = [], []
    for number, (name, lines) in enumerate(cases.groupby("strategy", sort=False)):
        strategy, look, gid = str(name), found[str(name)], drawing.line_id(number)
        picks.append(Pick(number, panel.shown[strategy], look.role, strategy in coloured))
        y, low, high = (_with_gaps(sizes, lines, column) for column in _TIMES)
        if strategy not in coloured:
            axes.add_line(Line2D(sizes, y, color=LIGHT["faint"], linewidth=1, zorder=2, gid=gid, **_dots(y)))
            continue
        colour = LIGHT[look.role]
        axes.fill_between(sizes, low, high, color=colour, alpha=0.25, linewidth=0, gid=gid)
        line = Line2D(sizes, y, color=colour, linestyle=look.dash, linewidth=2, zorder=3, clip_on=False, gid=gid)
        line.set(marker=look.marker, markersize=6)
        axes.add_line(line)
        x, last = int(lines["batch_size"].iloc[-1]), float(lines["time_s"].iloc[-1])
        early = f" at {x:,}" if x < sizes[-1] else ""
        named = formats.marked(drawing.label(strategy, 24), bool(lines["reuses_output"].iloc[-1]))
        ends.append(End(x, last, f"{named}  {formats.duration(last)}{early}", look.role, gid))
    label_ends(axes, ends)
    return picks


def _with_gaps(sizes: Sequence[int], lines: pd.DataFrame, column: str) -> list[float]:
    """One value per size; a size without a time is a gap, never bridged."""
    found = dict(zip(lines["batch_size"], lines[column], strict=True))
    return [found.get(size, math.nan) for size in sizes]


def _dots(values: Sequence[float]) -> dict[str, Any]:
    """Grey lines have no markers, except where one point alone would draw no line at all."""
    here = [False, *map(math.isfinite, values), False]
    alone = any(here[i] and not (here[i - 1] or here[i + 1]) for i in range(1, len(here) - 1))
    return {"marker": "o", "markersize": 2.5} if alone else {}


def _shade(axes: Axes, floor: Mapping[int, float]) -> None:
    """What no strategy can reach, as far as it lies within the figure."""
    if floor:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        sizes = [left, *floor, right]
        values = list(floor.values())
        heights = [values[0], *values, values[-1]]
        axes.fill_between(sizes, heights, bottom, color=LIGHT["rule"], alpha=0.75, linewidth=0, zorder=0.5)
        if values[-1] > bottom * (top / bottom) ** _ROOM:
            axes.text(right, bottom, "out of reach ", color=LIGHT["muted"], ha="right", va="bottom", zorder=0.6)


def _within_reach(floor: Mapping[int, float], cases: pd.DataFrame) -> list[float]:
    """The ceiling belongs into the figure where a strategy comes near it; elsewhere it would only squeeze the lines."""
    fastest = cases.groupby("batch_size")["time_s"].min()
    near = any(value * _NEAR >= fastest.get(size, math.inf) for size, value in floor.items())
    return [value for size, value in floor.items() if value * _NEAR**2 >= fastest.get(size, math.inf)] if near else []


def _about_ceiling(floor: Mapping[int, float]) -> str:
    if not floor:
        return ""
    last = max(floor)
    return (
        "Shaded, where it is near enough to be seen: times that this machine cannot reach, "
        f"{formats.duration(floor[last])} at batch size {last:,}."
    )


def _row_canvas(names: Sequence[str]) -> tuple[Figure, Axes]:
    """Axes with one row per name, and room for columns of text to their right."""
    figure, axes = drawing.canvas(1.65 + 0.3 * len(names), right=0.3, left=0.215, below=0.36)
    axes.set_ylim(len(names) - 0.4, -1.4)
    drawing.ticks(axes, "y", range(len(names)), names, role="ink")
    return figure, axes


def _key(axes: Axes, x: float, marker: str, filled: bool) -> None:
    """The marker in front of a column's heading."""
    face = LIGHT["ink"] if filled else LIGHT["ground"]
    place = axes.get_yaxis_transform()
    axes.scatter([x], [-0.95], s=36, marker=marker, c=face, edgecolors=LIGHT["ink"], transform=place, clip_on=False)


def _column(axes: Axes, x: float, texts: Sequence[str]) -> None:
    """A heading and one text per row, to the right of the axes."""
    place = axes.get_yaxis_transform()
    for row, text in enumerate(texts):
        colour = LIGHT["ink" if row else "muted"]
        axes.text(x, row - 1 if row else -0.95, text, transform=place, color=colour, va="center", parse_math=False)


def _hues(cases: pd.DataFrame) -> list[str]:
    return [LIGHT[hue(framework)] for framework in cases["framework"]]


def _others(count: int) -> str:
    return (
        f"{count} more {captions.plural('strategy', count)} {'is' if count == 1 else 'are'} in the table."
        if count
        else ""
    )


def _extent(cases: pd.DataFrame) -> list[float]:
    return [float(value) for column in _TIMES for value in cases[column] if value > 0]


def _last(cases: pd.DataFrame) -> pd.DataFrame:
    last: pd.DataFrame = cases[cases["batch_size"] == cases["batch_size"].max()]
    return last


def _height(cases: pd.DataFrame) -> float:
    """Room for one label per line."""
    return max(5.4, 1.6 + 0.21 * min(cases["strategy"].nunique(), LABELLED))


def _title(panel: Panel) -> str:
    return captions.setting(panel)


def _duration(value: float) -> str:
    return formats.duration(value) if known(value) else "not measured"


def _colours(cases: pd.DataFrame) -> str:
    count = cases["strategy"].nunique()
    more = f" {count - LABELLED} more strategies are grey; all are in the table." if count > LABELLED else ""
    reused = f" {formats.OVERWRITTEN}: valid until the next call only." if cases["reuses_output"].any() else ""
    return f"One hue per framework, one marker and dash per strategy.{reused}{more}"


def _caption(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
