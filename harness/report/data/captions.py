"""What a figure shows, in words: alternative texts made from the numbers, and the gaps by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from harness.analysis import formats
from harness.analysis.case_summary import CaseSummary
from harness.analysis.panels import Panel
from harness.core.records import Status

_NAMED = 12
"""Gaps named in a caption before it says how many more there are."""


def setting(panel: Panel) -> str:
    """`policy, gradients, cpu, float32`: the workload and its conditions."""
    return f"{formats.clipped(panel.conditions.workload, 40)}, {conditions(panel)}"


def conditions(panel: Panel) -> str:
    """`gradients, cpu, float32`: what all cases of the panel share, the allocator only if it is unusual."""
    place = panel.conditions
    allocator = [] if place.allocator == "default" else [f"allocator {place.allocator}"]
    return ", ".join(formats.clipped(word, 40) for word in (place.quantity, place.device, place.dtype, *allocator))


def gaps(cases: Iterable[CaseSummary]) -> str:
    """`Not shown: tf1/unstack at batch size 256 (skipped).`, or an empty text if nothing is missing."""
    missing: dict[tuple[str, str], list[int]] = {}
    for case in cases:
        why = "no time" if case.status is Status.OK else words(case.status)
        missing.setdefault((case.strategy, why), []).append(case.batch_size)
    named = [
        f"{formats.clipped(name, 34)} at batch size {formats.enumeration([f'{size:,}' for size in sizes])} ({status})"
        for (name, status), sizes in missing.items()
    ]
    if not named:
        return ""
    more = f"; {len(named) - _NAMED} more are in the table" if len(named) > _NAMED else ""
    return f"Not shown: {'; '.join(named[:_NAMED])}{more}."


def without_time(panel: Panel) -> list[CaseSummary]:
    """The cases that a figure of times cannot show."""
    return [case for case in panel.cases if case.estimate is None or case.batch_size <= 0]


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


def tally(cases: Iterable[CaseSummary]) -> str:
    """`3 error, 1 timeout`: how often each status occurs, the most frequent first."""
    counts = Counter(case.status for case in cases)
    return ", ".join(f"{count} {words(status)}" for status, count in counts.most_common())


def words(status: object) -> str:
    """A status as it is written in a sentence."""
    return str(status).replace("_", " ")


def plural(word: str, count: int) -> str:
    """`1 strategy`, `2 strategies`."""
    return word if count == 1 else f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
