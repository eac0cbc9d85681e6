"""The tables of the page as plain text cells: every cell says something, never a blank.

Dimensions that all cases share (one device, one dtype) are said once above the table; those that differ are
columns, so cases of two devices can never be read as one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.analysis import formats
from harness.analysis.case_summary import CaseSummary, Conditions
from harness.analysis.panels import Panel, known
from harness.analysis.statistics import Verdict
from harness.core.records import Status
from harness.report.data import captions
from harness.report.data.answer import leaders

SIGNS = {
    Status.OK: "✓",
    Status.DISAGREES: "≠",
    Status.NONFINITE: "∞",
    Status.UNSUPPORTED: "⊘",
    Status.UNAVAILABLE: "○",
    Status.ERROR: "✕",
    Status.CRASHED: "‼",
    Status.TIMEOUT: "◔",
    Status.OUT_OF_MEMORY: "▲",
    Status.SKIPPED: "↷",
}

MEANINGS = {
    Status.OK: "measured, and equal to the reference",
    Status.DISAGREES: "computes other numbers than the reference; never ranked",
    Status.NONFINITE: "returned NaN or infinity; never ranked",
    Status.UNSUPPORTED: "the strategy cannot do this, and says so",
    Status.UNAVAILABLE: "a package or device is missing here",
    Status.ERROR: "raised an exception",
    Status.CRASHED: "its process died",
    Status.TIMEOUT: "passed the time limit of a case, build included",
    Status.OUT_OF_MEMORY: "did not fit into memory",
    Status.SKIPPED: "not tried, for the reason given",
}

NOT_MEASURED = "not measured"
UNMEASURED = (NOT_MEASURED, "no time", "not ranked", "no baseline", "baseline")
"""What a cell says instead of a number; shown muted."""

MOST_LINES = 5000
"""Cases that the page's table of all cases holds; a browser takes seconds for each ten thousand."""

_DETAIL = 4000
"""Characters of a traceback or of stderr that the page shows."""


@dataclass(frozen=True)
class Column:
    """One column of the table of all cases."""

    title: str
    meaning: str
    numeric: bool = True


MEASURES = (
    Column("status", "what became of the case, in its worst pass", numeric=False),
    Column(
        "result",
        "kept: it stays as it is; overwritten (↻): it is valid until the strategy's next call only, which saves the "
        "price of fresh memory",
        numeric=False,
    ),
    Column("time per call", "median over processes of the median over turns, and its 95 % interval"),
    Column("against the baseline", "ratio of the two times with direction and 95 % interval, or a tie"),
    Column("build", "everything before the first call: graph, tracing set up, wrappers; paid once"),
    Column("first call", "the first call on top of that, which includes compilation; paid once"),
    Column("fetch", "copying one result to NumPy, outside the time per call"),
    Column("memory", "peak above the state before the build"),
    Column(
        "of ceiling",
        "share reached of what the machine could do: its least time for this case over the time; empty where the "
        "result fits into a cache, or where not every entry is written anew, as of an embedding's table",
    ),
    Column("digits", "worst decimal digits of agreement with the float64 reference"),
    Column("calls", "timed calls, and the passes they come from"),
    Column("remarks", "reason of a status that is not ok, and warnings noted beside the time", numeric=False),
)
"""Columns that every table of cases has, after the dimensions, the strategy and the batch size."""


@dataclass(frozen=True)
class Shown:
    """One case as the page shows it."""

    dimensions: tuple[str, ...]
    strategy: str
    framework: str
    batch_size: str
    status: str
    sign: str
    result: str
    cells: tuple[tuple[str, str], ...]
    """The numbers of `MEASURES` between result and remarks: value, and what stands small beside it."""
    remarks: str
    detail: str


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix of strategies and batch sizes."""

    sign: str
    status: str
    time: str
    speedup: str
    interval: str
    leads: bool


@dataclass(frozen=True)
class Matrix:
    """Strategies down, batch sizes across."""

    batch_sizes: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    """Strategy, framework, cells."""


def varying(panels: Sequence[Panel]) -> list[str]:
    """The dimensions in which the panels differ."""
    return [name for name in Conditions._fields if len({getattr(panel.conditions, name) for panel in panels}) > 1]


def shared(panels: Sequence[Panel]) -> list[tuple[str, str]]:
    """The dimensions that all panels share, with their value."""
    if not panels:
        return []
    return [(name, getattr(panels[0].conditions, name)) for name in Conditions._fields if name not in varying(panels)]


def lines(panels: Sequence[Panel]) -> list[Shown]:
    """Every case of every panel; of more than `MOST_LINES` each panel's fastest strategies, and what failed."""
    names = varying(panels)
    total = sum(len(panel.cases) for panel in panels)
    share = total if total <= MOST_LINES else MOST_LINES // len(panels)
    return [
        _line(panel, names, case)
        for panel in panels
        for number, case in enumerate(panel.cases)
        if number < share or case.status.is_failure
    ]


def matrix(panel: Panel) -> Matrix:
    """All cases of one panel at a glance."""
    sizes = panel.batch_sizes
    best = {size: leaders(panel, size) for size in sizes}
    records = {(line.strategy, line.batch_size): line for line in panel.cases}
    frameworks = {case.strategy: case.framework for case in panel.cases}
    rows = []
    for name in panel.strategies:
        cells = tuple(_cell(panel, records.get((name, size)), name in best[size]) for size in sizes)
        rows.append((panel.shown[name], frameworks[name], cells))
    return Matrix(tuple(f"{size:,}" for size in sizes), tuple(rows))


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is written to CSV: numbers in seconds and bytes, no objects."""
    return table.drop(columns=["facts"]).assign(
        marks=["; ".join(mark.text for mark in marks) for marks in table["marks"]]
    )


FORMULA = re.compile(r"[=+\-@\t\r]")
"""How a text begins that a spreadsheet would compute: OWASP, "CSV Injection"."""


def to_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table, its texts as texts: reasons come from anywhere, and a spreadsheet would run a formula."""
    table.map(lambda cell: f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell).to_csv(
        path, index=False
    )


def against(panel: Panel, line: CaseSummary) -> tuple[str, str]:
    """Speed-up over the baseline: value with direction, and interval."""
    if line.strategy == panel.baseline and known(line.time_s):
        return "baseline", ""
    if not known(line.speedup.value):
        return ("no baseline" if known(line.time_s) else "not ranked"), ""
    value, _, interval = formats.speedup(line.speedup, short=True).partition(" [")
    return value, f"[{interval}"


def _line(panel: Panel, names: Sequence[str], line: CaseSummary) -> Shown:
    status = Status(line.status)
    interval = known(line.time_low_s)
    low_high = formats.duration_interval(line.time_low_s, line.time_high_s) if interval else ""
    time = (formats.duration(line.time_s), low_high or "[no interval]") if known(line.time_s) else ("no time", "")
    digits = formats.digits(line.digits) if known(line.digits) else NOT_MEASURED
    where = formats.clipped(line.worst_parameter, 30)
    return Shown(
        dimensions=tuple(formats.clipped(getattr(panel.conditions, name), 60) for name in names),
        strategy=line.shown,
        framework=line.framework,
        batch_size=f"{line.batch_size:,}",
        status=captions.words(status.value),
        sign=SIGNS[status],
        result="overwritten" if line.reuses_output else "kept",
        cells=(
            time,
            _with_verdict(against(panel, line), line.verdict),
            (_duration(line.build_s), ""),
            (_duration(line.first_call_s), ""),
            (_duration(line.fetch_s), ""),
            (formats.size(line.peak_bytes) if known(line.peak_bytes) else NOT_MEASURED, ""),
            (_share(line), ""),
            (digits, where if digits != NOT_MEASURED else ""),
            (f"{line.samples:,}", f"{line.passes_ok} of {line.passes} passes ok"),
        ),
        remarks=formats.clipped("; ".join(_remarks(line)), 300) or "none",
        detail=line.detail[-_DETAIL:],
    )


def _cell(panel: Panel, line: CaseSummary | None, leads: bool) -> Cell:
    if line is None:
        return Cell("–", "not planned", "", "", "", False)
    status = Status(line.status)
    sign, word = SIGNS[status], captions.words(status.value)
    if not known(line.time_s):
        return Cell(sign, "no time" if status is Status.OK else word, "", "", "", False)
    value, interval = against(panel, line)
    return Cell(sign, word, formats.duration(line.time_s), f"{_about(line)}{value}", interval, leads)


def _with_verdict(pair: tuple[str, str], verdict: str) -> tuple[str, str]:
    words = {Verdict.SAME.value: ", a tie", Verdict.AMBIGUOUS.value: ", undecided"}
    return pair[0] + words.get(verdict, ""), pair[1]


def _remarks(line: CaseSummary) -> list[str]:
    retraces = int(line.retraces) if known(line.retraces) else 0
    traced = f"{retraces} {captions.plural('retrace', retraces)} within the timed calls" if retraces else ""
    return [text for text in (line.reason, traced, *(mark.text for mark in line.marks)) if text]


def _about(line: CaseSummary) -> str:
    return "≈ " if line.verdict in (Verdict.SAME, Verdict.AMBIGUOUS) else ""


def _share(line: CaseSummary) -> str:
    return formats.share(line.ceiling_share) if known(line.ceiling_share) else NOT_MEASURED


def _duration(value: float) -> str:
    return formats.duration(value) if known(value) else NOT_MEASURED
