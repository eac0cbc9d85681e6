"""What a figure shows, in words: alternative texts made from the numbers, and the gaps by name."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.analysis import formats
from harness.analysis.table import Panel
from harness.core.records import Status

_NAMED = 12
"""Gaps named in a caption before it says how many more there are."""


def setting(panel: Panel) -> str:
    """`policy, gradients, cpu, float32`: the workload and its conditions."""
    return f"{formats.clipped(panel.place.workload, 40)}, {conditions(panel)}"


def conditions(panel: Panel) -> str:
    """`gradients, cpu, float32`: what all cases of the panel share, the allocator only if it is unusual."""
    place = panel.place
    allocator = [] if place.allocator == "default" else [f"allocator {place.allocator}"]
    return ", ".join(formats.clipped(word, 40) for word in (place.quantity, place.device, place.dtype, *allocator))


def gaps(cases: pd.DataFrame) -> str:
    """`Not shown: tf1/unstack at batch size 256 (skipped).`, or an empty text if nothing is missing."""
    missing: dict[tuple[str, str], list[int]] = {}
    for name, status, size in zip(cases["strategy"], cases["status"], cases["batch_size"], strict=True):
        missing.setdefault((name, "no time" if status == Status.OK else words(status)), []).append(int(size))
    named = [
        f"{formats.clipped(name, 34)} at batch size {formats.enumeration([f'{size:,}' for size in sizes])} ({status})"
        for (name, status), sizes in missing.items()
    ]
    if not named:
        return ""
    more = f"; {len(named) - _NAMED} more are in the table" if len(named) > _NAMED else ""
    return f"Not shown: {'; '.join(named[:_NAMED])}{more}."


def without_time(panel: Panel) -> pd.DataFrame:
    """The cases that a figure of times cannot show."""
    without: pd.DataFrame = panel.cases[panel.cases["time_s"].isna() | (panel.cases["batch_size"] <= 0)]
    return without


def lines(panel: Panel, what: str, cases: pd.DataFrame, values: Sequence[str]) -> str:
    """The alternative text of a line chart: its range, and the values at the largest batch size."""
    sizes = sorted({int(size) for size in cases["batch_size"]})
    last = cases[cases["batch_size"] == sizes[-1]]
    ends = [f"{formats.clipped(name, 34)} {value}" for name, value in zip(last["strategy"], values, strict=True)]
    span = f"batch sizes {sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"batch size {sizes[0]:,}"
    count = cases["strategy"].nunique()
    return (
        f"Line chart with logarithmic axes: {what} of {count} {plural('strategy', count)} on {setting(panel)}, for "
        f"{span}. At batch size {sizes[-1]:,}: {'; '.join(ends)}."
    )


def rows(panel: Panel, what: str, entries: Sequence[str]) -> str:
    """The alternative text of a chart with one row per strategy."""
    count = len(entries)
    return f"Dot chart: {what} of {count} {plural('strategy', count)} on {setting(panel)}. {'; '.join(entries)}."


def tally(cases: pd.DataFrame) -> str:
    """`3 error, 1 timeout`: how often each status occurs, the most frequent first."""
    counts = cases["status"].value_counts()
    return ", ".join(f"{count} {words(status)}" for status, count in counts.items())


def words(status: object) -> str:
    """A status as it is written in a sentence."""
    return str(status).replace("_", " ")


def plural(word: str, count: int) -> str:
    """`1 strategy`, `2 strategies`."""
    return word if count == 1 else f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
