"""Group the cases of runs into panels, within which they may be compared, and compare them there.

The cases of a panel differ in strategy and batch size only; see `harness.analysis.case_summary` for one of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.analysis import formats, heats, statistics
from harness.analysis.case_summary import CaseSummary, Conditions, samples, summarise
from harness.analysis.statistics import Estimate, Interval
from harness.core.records import Measurement, Status
from harness.core.store import Run

COLUMNS = (
    *Conditions._fields,
    *("strategy", "framework", "batch_size", "status", "reason", "detail"),
    *("passes", "passes_ok", "samples", "time_s", "time_low_s", "time_high_s"),
    *("speedup", "speedup_low", "speedup_high", "verdict"),
    *("import_s", "build_s", "first_call_s", "fetch_s", "case_s"),
    *("floor_s", "minor_faults", "cores_busy", "system_share"),
    *("digits", "max_relative_error", "worst_parameter", "worst_instance", "peak_bytes", "output_bytes"),
    *("retraces", "device_name", "stopping_rule", "marks", "facts", "reuses_output"),
)
"""Columns of the table of all cases, in order. Times end in `_s` (seconds)."""


@dataclass(frozen=True)
class NoiseFloor:
    """Below which factor two times are called a tie, and how that is known."""

    factor: float
    pairs: int
    source: str
    """`processes` (of one case, in pairs, the baseline's control among them) or `assumed`."""


@dataclass(frozen=True)
class Panel:
    """Cases that may be compared: they differ in strategy and batch size only.

    Attributes:
        control: the name under which the baseline was measured once more; empty without a control.
        cases: strategies in order of their speed at the largest batch size they reached, batch sizes ascending.
        parameters: how many parameters the workload has; None where the run does not tell.
    """

    conditions: Conditions
    baseline: str
    control: str
    floor: NoiseFloor
    cases: tuple[CaseSummary, ...]
    parameters: int | None = None

    @cached_property
    def ranked(self) -> list[CaseSummary]:
        """The cases that have a time and that a log axis can show; the control says nothing new, and is none."""
        timed = [case for case in self.cases if case.estimate and case.batch_size > 0]
        return [case for case in timed if case.strategy != self.control]

    @cached_property
    def shown(self) -> dict[str, str]:
        """Strategy -> its name as tables and figures show it."""
        return {case.strategy: case.shown for case in self.cases}

    @cached_property
    def strategies(self) -> list[str]:
        """All strategies, in the order of the cases."""
        return list(dict.fromkeys(case.strategy for case in self.cases))

    @cached_property
    def batch_sizes(self) -> list[int]:
        """All batch sizes, ascending."""
        return sorted({case.batch_size for case in self.cases})

    @cached_property
    def timed_sizes(self) -> list[int]:
        """The batch sizes at which anything is ranked, ascending."""
        return sorted({case.batch_size for case in self.ranked})

    def at(self, batch_size: int) -> list[CaseSummary]:
        """The ranked cases at one batch size, fastest first."""
        here = [case for case in self.ranked if case.batch_size == batch_size]
        return sorted(here, key=lambda case: case.time_s)


def panels(runs: Sequence[Run]) -> list[Panel]:
    """The cases of all runs, grouped by what may be compared; panels in the order of the plan.

    Runs are never mixed: each has its own panels, under its folder's name.
    """
    return [panel for name, run in zip(run_names(runs), runs, strict=True) for panel in _panels_of(name, run)]


def table(cases: Iterable[CaseSummary]) -> pd.DataFrame:
    """One line per case, with the columns of `COLUMNS`, for export and for drawing."""
    return pd.DataFrame([_line(case) for case in cases], columns=list(COLUMNS))


def known(value: object) -> bool:
    """Whether a value is a number that was measured (infinity is one, NaN is not)."""
    return isinstance(value, int | float) and not math.isnan(value)


def run_names(runs: Sequence[Run]) -> list[str]:
    """One name per run: its folder's name, numbered where two folders share one."""
    names = [run.name or "run" for run in runs]
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]


def _line(case: CaseSummary) -> dict[str, Any]:
    fields = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
    low, high = (math.nan if end is None else end for end in (case.speedup.low, case.speedup.high))
    return {
        **fields,
        **case.conditions._asdict(),
        "status": case.status.value,
        **{"time_s": case.time_s, "time_low_s": case.time_low_s, "time_high_s": case.time_high_s},
        **{"speedup": case.speedup.value, "speedup_low": low, "speedup_high": high},
    }


def _panels_of(name: str, run: Run) -> list[Panel]:
    baseline, control = str(run.info.get("baseline") or ""), str(run.info.get("control") or "")
    rows: dict[tuple[Conditions, str, int], dict[int, Measurement]] = {}
    for row in run.rows:
        conditions = Conditions(name, row.workload, row.quantity, row.device, row.dtype, row.allocator)
        passes = rows.setdefault((conditions, row.strategy, row.batch_size), {})
        passes[row.pass_number] = row  # a case that was measured again replaces the first try
    for planned in _planned(name, run.info):
        rows.setdefault(planned, {})
    cells: dict[tuple[Conditions, int], list[Measurement]] = defaultdict(list)
    for (conditions, _, size), passes in rows.items():
        cells[conditions._replace(quantity=""), size] += passes.values()
    slowness = {cell: heats.slowness(found) for cell, found in cells.items()}
    by_panel: dict[Conditions, list[_Case]] = defaultdict(list)
    for (conditions, strategy, size), passes in rows.items():
        speed = slowness[conditions._replace(quantity=""), size]
        found = tuple(passes.values())
        by_panel[conditions].append(_Case(strategy, size, found, [samples(row, speed) for row in found]))
    counts, reusing, variables = _parameter_counts(run.info), _reusing(run.info), _environments(run.info)
    return [
        _panel(conditions, by_panel[conditions], baseline, control, counts.get(conditions.workload), reusing, variables)
        for conditions in sorted(by_panel, key=_order(run.info))
    ]


@dataclass(frozen=True)
class _Case:
    """The rows of one case, and the seconds per call of each as on the machine of all heats."""

    strategy: str
    batch_size: int
    rows: tuple[Measurement, ...]
    passes: list[NDArray[np.float64]]

    @property
    def medians(self) -> list[float]:
        """Seconds, one per process that has a time."""
        timed = [times for row, times in zip(self.rows, self.passes, strict=True) if row.status is Status.OK]
        return [statistics.median(times) for times in timed if len(times)]


def _order(info: Mapping[str, Any]) -> Callable[[Conditions], tuple[int, bool, Conditions]]:
    """Workloads as planned, rows of gradients before what needs no rows; what was measured first is chance."""
    position = {name: number for number, name in enumerate(_list(_plan(info).get("workloads")))}
    return lambda found: (position.get(found.workload, len(position)), found.quantity != "gradients", found)


def _panel(
    conditions: Conditions,
    found: Sequence[_Case],
    baseline: str,
    control: str,
    parameters: int | None,
    reusing: frozenset[str],
    variables: Mapping[str, tuple[str, ...]],
) -> Panel:
    processes = _processes(found, baseline, control)
    spread, floor = statistics.pooled_spread(processes), _noise_floor(processes)
    cases = [summarise(conditions, c.strategy, c.batch_size, c.rows, c.passes, spread) for c in found]
    cases = [
        replace(case, reuses_output=case.strategy in reusing, environment=variables.get(case.strategy, ()))
        for case in cases
    ]
    base = _estimates(cases, baseline)
    compared = tuple(_compared(case, base.get(case.batch_size), baseline, floor) for case in _ranked(cases))
    return Panel(conditions, baseline, control, floor, compared, parameters)


def _processes(found: Sequence[_Case], baseline: str, control: str) -> list[list[float]]:
    """For each case the medians of its processes; those of the control are the baseline's."""
    medians: dict[tuple[str, int], list[float]] = defaultdict(list)
    for case in found:
        name = baseline if control and case.strategy == control else case.strategy
        medians[name, case.batch_size] += case.medians
    return list(medians.values())


def _compared(case: CaseSummary, base: Estimate | None, baseline: str, floor: NoiseFloor) -> CaseSummary:
    """The case with its speed-up over the baseline, and whether that is beyond the noise."""
    if case.estimate is None or base is None:
        return case
    if case.strategy == baseline:
        return replace(case, speedup=Interval(1.0, 1.0, 1.0))
    speedup = statistics.ratio(base, case.estimate)
    return replace(case, speedup=speedup, verdict=statistics.verdict(speedup, floor.factor).value)


def _noise_floor(processes: Sequence[Sequence[float]]) -> NoiseFloor:
    """From all pairs of processes of one strategy, which measure the same twice."""
    ratios = [one / other for medians in processes for one, other in combinations(medians, 2)]
    factor = statistics.noise_floor(ratios)
    return (
        NoiseFloor(factor, len(ratios), "processes") if factor else NoiseFloor(statistics.ASSUMED_FLOOR, 0, "assumed")
    )


def _estimates(cases: Iterable[CaseSummary], strategy: str) -> dict[int, Estimate]:
    return {case.batch_size: case.estimate for case in cases if case.strategy == strategy and case.estimate}


def _ranked(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """A strategy that stopped at a smaller batch size stands behind all that went further."""
    rank: dict[str, tuple[int, float]] = {}
    for case in cases:
        if case.estimate is not None:
            here = (-case.batch_size, case.time_s)
            rank[case.strategy] = min(here, rank.get(case.strategy, here))
    last = (1, math.inf)
    return sorted(cases, key=lambda case: (rank.get(case.strategy, last), case.strategy, case.batch_size))


def _reusing(info: Mapping[str, Any]) -> frozenset[str]:
    """The strategies whose result is valid until the next call only. Runs of before say so in the code they hold."""
    return frozenset(
        str(entry.get("name"))
        for entry in _entries(info, "strategies")
        if entry.get("reuses_output", "reuses_output=True" in str(entry.get("code")))
    )


def _environments(info: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Strategy -> the variables that it needs before its framework is imported."""
    return {
        str(entry.get("name")): formats.variables((entry.get("environment") or {}).items())
        for entry in _entries(info, "strategies")
    }


def _parameter_counts(info: Mapping[str, Any]) -> dict[str, int]:
    counts = {str(entry.get("name")): entry.get("parameter_count") for entry in _entries(info, "workloads")}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def _planned(name: str, info: Mapping[str, Any]) -> list[tuple[Conditions, str, int]]:
    """The planned cases of a run that did not finish, so that what it never reached is named, not missing."""
    plan = _plan(info)
    if info.get("state") not in ("interrupted", "running") or not plan:
        return []
    quantities = {str(entry.get("name")): str(entry.get("quantity")) for entry in _entries(info, "strategies")}
    strategies = [*_list(plan.get("strategies")), *filter(None, [info.get("control")])]
    allocators = _list(plan.get("allocators")) or [plan.get("allocator") or "default"]
    dtype = plan.get("dtype") or "float32"
    lists = [_list(plan.get(key)) for key in ("workloads", "devices", "batch_sizes")]
    return [
        (Conditions(name, workload, quantities.get(strategy) or "gradients", device, dtype, allocator), strategy, size)
        for workload, device, size, allocator, strategy in product(*lists, allocators, strategies)
        if isinstance(size, int) and (device == "cpu" or allocator == allocators[0])
    ]


def _entries(info: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list of `run.json`, which anybody may have edited."""
    return [entry for entry in _list(info.get(key)) if isinstance(entry, Mapping)]


def _plan(info: Mapping[str, Any]) -> Mapping[str, Any]:
    plan = info.get("plan")
    return plan if isinstance(plan, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
