"""Rows of a run -> panels, and one table with one line per case.

A panel holds the cases that may be compared: they differ in strategy and batch size only. What was not measured is
NaN in the table, never 0. Only cases with the status `ok` have a time and a speed-up; see `harness.analysis.cases`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import pandas as pd

from harness.analysis import statistics
from harness.analysis.cases import MEDIANS, Place, as_line, as_list, is_count, number, or_nan, pass_of, text
from harness.analysis.statistics import Estimate, Interval
from harness.core.records import Measurement
from harness.core.store import Run

COLUMNS = (
    *Place._fields,
    *("strategy", "framework", "batch_size", "status", "reason", "detail"),
    *("passes", "passes_ok", "samples", "time_s", "time_low_s", "time_high_s"),
    *("speedup", "speedup_low", "speedup_high", "verdict"),
    *MEDIANS,
    *("digits", "max_relative_error", "worst_parameter", "worst_instance", "peak_bytes", "output_bytes"),
    *("retraces", "device_name", "stopping_rule", "marks", "facts", "estimate"),
)
"""Columns of the table, in order. Times end in `_s` (seconds)."""


Line = Mapping[Any, Any]
"""One line of the table: column -> value."""


@dataclass(frozen=True)
class NoiseFloor:
    """Below which factor two times are called a tie, and how that is known."""

    factor: float
    pairs: int
    source: str
    """`control` (the baseline listed twice), `passes` (one case in two passes) or `assumed`."""


@dataclass(frozen=True)
class Panel:
    """Cases that may be compared: they differ in strategy and batch size only."""

    place: Place
    baseline: str
    control: str
    """The name under which the baseline was measured once more; empty without a control."""
    floor: NoiseFloor
    cases: pd.DataFrame
    """One line per case with the columns of `COLUMNS`; strategies in order of their speed at the largest batch size
    they reached, batch sizes ascending. `estimate` holds a `statistics.Estimate`, or None unless ok."""
    parameters: int | None = None
    """How many parameters the workload has; None where the run does not tell."""

    @cached_property
    def ok(self) -> pd.DataFrame:
        """The cases that are ranked and that a log axis can show; the control says nothing new, and is neither."""
        timed = self.cases["time_s"].notna() & (self.cases["batch_size"] > 0)
        return self.cases[timed & (self.cases["strategy"] != self.control)]

    @cached_property
    def lines(self) -> list[Line]:
        """All cases, one mapping from column to value each."""
        return _records(self.cases)

    @cached_property
    def ranked(self) -> list[Line]:
        """The cases of `ok` in the same form."""
        return _records(self.ok)

    @cached_property
    def strategies(self) -> list[str]:
        """All strategies, in the order of the cases."""
        return list(dict.fromkeys(self.cases["strategy"]))

    @cached_property
    def batch_sizes(self) -> list[int]:
        """All batch sizes, ascending."""
        return sorted({int(size) for size in self.cases["batch_size"]})

    @cached_property
    def timed_sizes(self) -> list[int]:
        """The batch sizes at which anything is ranked, ascending."""
        return sorted({int(size) for size in self.ok["batch_size"]})

    def at(self, batch_size: int) -> list[Line]:
        """The ranked cases at one batch size, fastest first."""
        here = [line for line in self.ranked if line["batch_size"] == batch_size]
        return sorted(here, key=lambda line: float(line["time_s"]))


def panels(runs: Sequence[Run]) -> list[Panel]:
    """The cases of all runs, grouped by what may be compared; panels in the order of the plan.

    Runs are never mixed: each has its own panels, under its folder's name.
    """
    return [panel for name, run in zip(run_names(runs), runs, strict=True) for panel in _panels_of(name, run)]


def table(panels: Sequence[Panel]) -> pd.DataFrame:
    """One line per case, with the columns of `COLUMNS`."""
    if not panels:
        return pd.DataFrame(columns=list(COLUMNS))
    return pd.concat([panel.cases for panel in panels], ignore_index=True)


def speedup_of(line: Mapping[Any, Any]) -> Interval:
    """The speed-up over the baseline of one line of the table; its value is NaN if there is none."""
    low, high = (line[name] if known(line[name]) else None for name in ("speedup_low", "speedup_high"))
    return Interval(line["speedup"], low, high)


def known(value: object) -> bool:
    """Whether a cell of the table holds a number (infinity is one, NaN is not)."""
    return isinstance(value, int | float) and not math.isnan(value)


def run_names(runs: Sequence[Run]) -> list[str]:
    """One name per run: its folder's name, numbered where two folders share one."""
    names = [run.name or "run" for run in runs]
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]


def _records(cases: pd.DataFrame) -> list[Line]:
    columns = [cases[name].tolist() for name in cases.columns]
    return [dict(zip(cases.columns, values, strict=True)) for values in zip(*columns, strict=True)]


def _panels_of(name: str, run: Run) -> list[Panel]:
    baseline = text(run.info.get("baseline"))
    control = text(run.info.get("control"))
    cases: dict[tuple[Place, str, int], dict[int, Measurement]] = {}
    for row in run.rows:
        if is_count(row.batch_size):
            place = Place(name, *map(text, (row.workload, row.quantity, row.device, row.dtype, row.allocator)))
            passes = cases.setdefault((place, text(row.strategy), row.batch_size), {})
            passes[pass_of(row)] = row  # a case that was measured again replaces the first try
    for place, strategy, size in _planned(name, run.info):
        cases.setdefault((place, strategy, size), {})
    lines: dict[Place, list[dict[str, Any]]] = {}
    for (place, strategy, size), rows in cases.items():
        lines.setdefault(place, []).append(as_line(place, strategy, size, list(rows.values())))
    counts = _parameter_counts(run.info)
    return [
        _panel(place, lines[place], baseline, control, counts.get(place.workload))
        for place in sorted(lines, key=_order(run.info))
    ]


def _order(info: Mapping[str, Any]) -> Callable[[Place], tuple[int, bool, Place]]:
    """Workloads as planned, rows of gradients before what needs no rows; what was measured first is chance."""
    plan = info.get("plan")
    workloads = [text(name) for name in as_list(plan.get("workloads"))] if isinstance(plan, Mapping) else []
    position = {name: number for number, name in enumerate(workloads)}
    return lambda place: (position.get(place.workload, len(position)), place.quantity != "gradients", place)


def _panel(place: Place, lines: list[dict[str, Any]], baseline: str, control: str, parameters: int | None) -> Panel:
    floor = _noise_floor(lines, baseline, control)
    base = _estimates(lines, baseline)
    for line in lines:
        speedup = _speedup(line, base, baseline)
        line["speedup"] = speedup.value if speedup else math.nan
        line["speedup_low"] = or_nan(speedup.low) if speedup else math.nan
        line["speedup_high"] = or_nan(speedup.high) if speedup else math.nan
        compared = speedup is not None and line["strategy"] != baseline
        line["verdict"] = statistics.verdict(speedup, floor.factor).value if speedup and compared else ""
    cases = pd.DataFrame(_ranked(lines), columns=list(COLUMNS))
    return Panel(place, baseline, control, floor, cases, parameters)


def _speedup(line: Mapping[str, Any], base: Mapping[int, Estimate], baseline: str) -> Interval | None:
    if line["estimate"] is None or line["batch_size"] not in base:
        return None
    if line["strategy"] == baseline:
        return Interval(1.0, 1.0, 1.0)
    return statistics.ratio(base[line["batch_size"]], line["estimate"])


def _noise_floor(lines: Sequence[Mapping[str, Any]], baseline: str, control: str) -> NoiseFloor:
    """From the control if the run has one, else from pairs of passes, which measure one case twice as well."""
    one, other = _estimates(lines, baseline), _estimates(lines, control)
    ratios = [one[size].value / other[size].value for size in one.keys() & other.keys()]
    source = "control"
    if not ratios:
        medians = [line["estimate"].passes for line in lines if line["estimate"] is not None]
        ratios = [first / second for passes in medians for first, second in combinations(passes, 2)]
        source = "passes"
    factor = statistics.noise_floor(ratios)
    return NoiseFloor(factor, len(ratios), source) if factor else NoiseFloor(statistics.ASSUMED_FLOOR, 0, "assumed")


def _estimates(lines: Iterable[Mapping[str, Any]], strategy: str) -> dict[int, Estimate]:
    return {
        line["batch_size"]: line["estimate"]
        for line in lines
        if line["strategy"] == strategy and line["estimate"] is not None
    }


def _ranked(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A strategy that stopped at a smaller batch size stands behind all that went further."""
    rank: dict[str, tuple[int, float]] = {}
    for line in lines:
        if line["estimate"] is not None:
            here = (-line["batch_size"], line["time_s"])
            rank[line["strategy"]] = min(here, rank.get(line["strategy"], here))
    last = (1, math.inf)
    return sorted(lines, key=lambda line: (rank.get(line["strategy"], last), line["strategy"], line["batch_size"]))


def _parameter_counts(info: Mapping[str, Any]) -> dict[str, int]:
    entries = [entry for entry in as_list(info.get("workloads")) if isinstance(entry, Mapping)]
    counts = {text(entry.get("name")): number(entry.get("parameter_count")) for entry in entries}
    return {name: int(count) for name, count in counts.items() if count is not None}


def _planned(name: str, info: Mapping[str, Any]) -> list[tuple[Place, str, int]]:
    """The planned cases of a run that did not finish, so that what it never reached is named, not missing."""
    plan = info.get("plan")
    if info.get("state") not in ("interrupted", "running") or not isinstance(plan, Mapping):
        return []
    entries = [entry for entry in as_list(info.get("strategies")) if isinstance(entry, Mapping)]
    quantities = {text(entry.get("name")): text(entry.get("quantity")) for entry in entries}
    strategies = [*map(text, as_list(plan.get("strategies"))), *filter(None, [text(info.get("control"))])]
    allocators = as_list(plan.get("allocators")) or [text(plan.get("allocator")) or "default"]
    dtype = text(plan.get("dtype")) or "float32"
    lists = [as_list(plan.get(key)) for key in ("workloads", "devices", "batch_sizes")]
    return [
        (
            Place(name, text(workload), quantities.get(strategy) or "gradients", text(device), dtype, text(allocator)),
            strategy,
            size,
        )
        for workload, device, size, allocator, strategy in product(*lists, allocators, strategies)
        if is_count(size)
    ]
