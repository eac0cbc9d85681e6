"""The figures of one panel: time, speed-up, first call against steady state, agreement.

Every figure is a function of a panel alone. What cannot be shown (no time, zero on a log axis) is left out of the
drawing and named in the caption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from harness.analysis import Panel, known, speedup_of
from harness.records import Status
from harness.report import captions, drawing, formats
from harness.report.drawing import Chart
from harness.report.theme import LIGHT, hue, looks

LABELLED = 10
"""Strategies drawn in colour and labelled; the others stay grey, and are in the table."""

CLOCKS = (("build_s", "s", "build"), ("first_call_s", "D", "first call"), ("time_s", "o", "later calls"))
"""Column, marker and heading of what `first_call` compares."""

DTYPE_DIGITS = {"float16": 3.3, "bfloat16": 2.4, "float32": 7.2, "float64": 16.0}
"""Decimal digits that each type holds: -log10 of its unit roundoff."""


def of(panel: Panel, folder: Path, stem: str) -> list[Chart]:
    """All figures of a panel, written into `folder` with names that begin with `stem`.

    A panel without any time gets no figure of times; one without agreement none of that.
    """
    with drawing.style():
        drawn = [
            time(panel, folder, f"{stem}-time"),
            speedup(panel, folder, f"{stem}-speedup"),
            first_call(panel, folder, f"{stem}-first-call"),
            agreement(panel, folder, f"{stem}-agreement"),
        ]
    return [chart for chart in drawn if chart]


def time(panel: Panel, folder: Path, name: str) -> Chart | None:
    """Time per call against batch size, both logarithmic, with interval bands."""
    cases = panel.ok
    if cases.empty:
        return None
    figure, axes = drawing.canvas(_height(cases), right=0.31)
    drawing.log_scale(axes, "y", _extent(cases, "time"), formats.duration)
    _lines(panel, cases, axes, "time", formats.duration)
    drawing.headline(figure, "time per call (log scale), lower is better", f"Time per call: {_title(panel)}")
    ends = [formats.duration(value) for value in _last(cases)["time_s"]]
    caption = _caption(
        "Median over passes of the median of rounds; bands are 95 % bootstrap intervals.",
        _colours(cases),
        captions.gaps(captions.without_time(panel)),
    )
    alt = captions.lines(panel, "time per call", cases, ends)
    return drawing.finish(figure, folder, name, "Time per call", alt, caption)


def speedup(panel: Panel, folder: Path, name: str) -> Chart | None:
    """How many times faster than the baseline, against batch size."""
    cases = panel.ok[panel.ok["speedup"].notna() & (panel.ok["strategy"] != panel.baseline)]
    if cases.empty:
        return None
    figure, axes = drawing.canvas(_height(cases), right=0.31)
    drawing.log_scale(axes, "y", [*_extent(cases, "speedup"), 1.0], _times)
    axes.axhspan(1 / panel.floor.factor, panel.floor.factor, color=LIGHT["faint"], alpha=0.25, linewidth=0)
    axes.axhline(1, color=LIGHT["muted"], linewidth=1.2)
    _lines(panel, cases, axes, "speedup", _direction)
    baseline = drawing.label(panel.baseline)
    drawing.headline(
        figure,
        f"times faster than {baseline} (log scale), higher is better",
        f"Speed-up over {baseline}: {_title(panel)}",
    )
    ends = [formats.speedup(speedup_of(line), short=True) for line in _last(cases).to_dict("records")]
    floor = formats.percent(panel.floor.factor)
    caption = _caption(
        f"The line at 1 is {baseline} itself; within the grey band around it ({floor}) two times are a tie. "
        "Bands are 95 % bootstrap intervals of the ratio.",
        _colours(cases),
        captions.gaps(_without_speedup(panel)),
    )
    alt = captions.lines(panel, f"speed-up over {baseline}", cases, ends)
    return drawing.finish(figure, folder, name, f"Speed-up over {baseline}", alt, caption)


def first_call(panel: Panel, folder: Path, name: str) -> Chart | None:
    """Build, first call and steady state of each strategy at the largest batch size it reached."""
    reached = panel.ok.groupby("strategy", sort=False).tail(1)
    if reached.empty:
        return None
    cases = reached[reached["strategy"].isin(leading(panel, reached))]
    common = int(reached["batch_size"].max())
    names = [
        drawing.label(name, 26) + ("" if size == common else f" (B={size:,})")
        for name, size in zip(cases["strategy"], cases["batch_size"], strict=True)
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
        captions.gaps(panel.cases[~panel.cases["strategy"].isin(reached["strategy"])]),
    )
    alt = captions.rows(panel, "build, first call and later calls (log scale)", entries)
    return drawing.finish(figure, folder, name, "First call against later calls", alt, caption)


def agreement(panel: Panel, folder: Path, name: str) -> Chart | None:
    """Digits in which each strategy agrees with the float64 reference, one dot per batch size."""
    checked = panel.cases[panel.cases["digits"].notna()]
    if checked.empty:
        return None
    wrong = set(checked[checked["status"] == Status.DISAGREES]["strategy"])
    cases = checked[checked["strategy"].isin({*leading(panel, checked), *wrong})]
    worst = cases.loc[cases.groupby("strategy", sort=False)["digits"].idxmin()]
    holds = DTYPE_DIGITS.get(panel.place.dtype)
    finite = [value for value in cases["digits"] if math.isfinite(value)]
    end = max([*finite, holds or 0.0, 1.0]) + 1
    figure, axes = _row_canvas([drawing.label(name, 30) for name in worst["strategy"]])
    axes.set_xlim(min([0.0, *finite]) - 0.2, end)
    axes.grid(axis="x", color=LIGHT["rule"], linewidth=0.8)
    if holds:
        axes.axvline(holds, color=LIGHT["muted"], linewidth=1.2)
        axes.text(holds, -0.95, f"all that {panel.place.dtype} holds ", color=LIGHT["muted"], ha="right", va="center")
    row_of = {name: row for row, name in enumerate(worst["strategy"])}
    for disagrees, marker in ((False, "o"), (True, "X")):
        some = cases[cases["strategy"].isin(wrong) == disagrees]
        hues = LIGHT["bad"] if disagrees else _hues(some)
        rows = [row_of[name] for name in some["strategy"]]
        axes.scatter(some["digits"].clip(upper=end), rows, s=44, marker=marker, c=hues, alpha=0.75, clip_on=False)
    notes = [_note(line, line["strategy"] in wrong) for line in worst.to_dict("records")]
    _column(axes, 1.03, ["worst digits, where", *notes])
    drawing.headline(figure, "decimal digits of agreement, higher is better", f"Agreement: {_title(panel)}")
    entries = [f"{drawing.label(name)} {note}" for name, note in zip(worst["strategy"], notes, strict=True)]
    caption = _caption(
        "Agreement with float64 gradients of another engine, per instance and parameter; one dot per batch size.",
        _others(checked["strategy"].nunique() - len(worst)),
        captions.gaps(panel.cases[panel.cases["digits"].isna()]),
    )
    alt = captions.rows(panel, "digits of agreement with the reference", entries)
    return drawing.finish(figure, folder, name, "Agreement in digits", alt, caption)


def leading(panel: Panel, cases: pd.DataFrame) -> list[str]:
    """The strategies drawn in colour: the first of the panel's order, and the baseline always."""
    names = list(dict.fromkeys(cases["strategy"]))
    if len(names) <= LABELLED:
        return names
    first = [name for name in names if name != panel.baseline][: LABELLED - (panel.baseline in names)]
    return [name for name in names if name in first or name == panel.baseline]


def _lines(panel: Panel, cases: pd.DataFrame, axes: Axes, what: str, write: Callable[[float], str]) -> None:
    """Lines, bands and labels; `what` is the stem of the three columns."""
    value, low, high = _columns(what)
    drawing.batch_axis(axes, sorted({int(size) for size in cases["batch_size"]}))
    coloured = set(leading(panel, cases))
    found = looks(zip(panel.cases["strategy"], panel.cases["framework"], strict=True))
    others = cases[~cases["strategy"].isin(coloured)].groupby("strategy", sort=False)
    paths = [lines[["batch_size", value]].to_numpy(dtype=float) for _, lines in others]
    axes.add_collection(LineCollection(paths, colors=LIGHT["faint"], linewidths=1, zorder=2), autolim=False)
    ends = []
    for name, lines in cases[cases["strategy"].isin(coloured)].groupby("strategy", sort=False):
        look = found[str(name)]
        colour = LIGHT[look.role]
        x, y = lines["batch_size"].to_numpy(dtype=float), lines[value].to_numpy(dtype=float)
        axes.fill_between(x, lines[low], lines[high], color=colour, alpha=0.25, linewidth=0)
        axes.plot(
            x, y, look.marker, color=colour, linestyle=look.dash, linewidth=2, markersize=6, zorder=3, clip_on=False
        )
        early = f" at {int(x[-1]):,}" if x[-1] < cases["batch_size"].max() else ""
        ends.append((float(x[-1]), float(y[-1]), f"{drawing.label(str(name), 24)}  {write(y[-1])}{early}", look.role))
    drawing.label_ends(axes, ends)


def _row_canvas(names: Sequence[str]) -> tuple[Figure, Axes]:
    """Axes with one row per name, and room for columns of text to their right."""
    figure, axes = drawing.canvas(1.65 + 0.3 * len(names), right=0.3, left=0.215, below=0.36)
    axes.set_ylim(len(names) - 0.4, -1.4)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
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


def _note(line: dict[Any, Any], wrong: bool) -> str:
    where = f", {formats.clipped(line['worst_parameter'], 18)}" if line["worst_parameter"] else ""
    return f"{'disagrees: ' if wrong else ''}{formats.digits(line['digits'])}{where}"


def _hues(cases: pd.DataFrame) -> list[str]:
    return [LIGHT[hue(framework)] for framework in cases["framework"]]


def _others(count: int) -> str:
    return (
        f"{count} more {captions.plural('strategy', count)} {'is' if count == 1 else 'are'} in the table."
        if count
        else ""
    )


def _columns(what: str) -> tuple[str, str, str]:
    return ("time_s", "time_low_s", "time_high_s") if what == "time" else (what, f"{what}_low", f"{what}_high")


def _extent(cases: pd.DataFrame, what: str) -> list[float]:
    return [float(value) for column in _columns(what) for value in cases[column] if value > 0]


def _last(cases: pd.DataFrame) -> pd.DataFrame:
    last: pd.DataFrame = cases[cases["batch_size"] == cases["batch_size"].max()]
    return last


def _height(cases: pd.DataFrame) -> float:
    """Room for one label per line."""
    return max(5.4, 1.6 + 0.21 * min(cases["strategy"].nunique(), LABELLED))


def _without_speedup(panel: Panel) -> pd.DataFrame:
    """Baseline and control have none to show, and are no gaps."""
    others = panel.cases[~panel.cases["strategy"].isin([panel.baseline, panel.control])]
    without: pd.DataFrame = others[others["speedup"].isna() | (others["batch_size"] <= 0)]
    return without


def _title(panel: Panel) -> str:
    return captions.setting(panel)


def _times(value: float) -> str:
    return f"{formats.factor(value)}×"


def _direction(value: float) -> str:
    return f"{formats.factor(max(value, 1 / value))}× {'faster' if value >= 1 else 'slower'}"


def _duration(value: float) -> str:
    return formats.duration(value) if known(value) else "not measured"


def _colours(cases: pd.DataFrame) -> str:
    count = cases["strategy"].nunique()
    more = f" {count - LABELLED} more strategies are grey; all are in the table." if count > LABELLED else ""
    return f"One hue per framework, one marker and dash per strategy.{more}"


def _caption(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
