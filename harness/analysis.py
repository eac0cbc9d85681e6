"""Rows of a run -> panels, and one table with one line per case.

A panel holds the cases that may be compared: they differ in strategy and batch size only. A case that was measured
in several passes takes its worst status: a strategy that is wrong once is wrong. What was not measured is NaN in
the table, never 0. Only cases with the status `ok` have a time and a speed-up.

Rows may come from elsewhere and hold anything, so every value is converted once, here, and nothing further on has
to doubt its type.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness import statistics
from harness.records import Measurement, Status
from harness.statistics import Estimate, Interval
from harness.store import Run

DEFAULT_BASELINE = "tf1/session-loop"

SEVERITY = (
    Status.OK,
    Status.UNSUPPORTED,
    Status.UNAVAILABLE,
    Status.SKIPPED,
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
    Status.ERROR,
    Status.CRASHED,
    Status.NONFINITE,
    Status.DISAGREES,
)
"""Statuses from the best to the worst. A wrong number is worse than none."""

NOT_REACHED = "the run ended before this case was measured"

MEDIANS = (
    *("import_s", "build_s", "first_call_s", "fetch_s", "case_s"),
    *("floor_s", "minor_faults", "cores_busy", "system_share"),
)
"""Columns read once per pass, of which the table holds the median over passes."""


class Place(NamedTuple):
    """What two cases must share to be compared; a strategy and a batch size make a case of it."""

    run: str
    workload: str
    quantity: str
    device: str
    dtype: str
    allocator: str


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

    @property
    def ok(self) -> pd.DataFrame:
        """The cases that are ranked and that a log axis can show; the control says nothing new, and is neither."""
        timed = self.cases["time_s"].notna() & (self.cases["batch_size"] > 0)
        return self.cases[timed & (self.cases["strategy"] != self.control)]

    @property
    def strategies(self) -> list[str]:
        """All strategies, in the order of the cases."""
        return list(dict.fromkeys(self.cases["strategy"]))

    @property
    def batch_sizes(self) -> list[int]:
        """All batch sizes, ascending."""
        return sorted({int(size) for size in self.cases["batch_size"]})

    def at(self, batch_size: int) -> pd.DataFrame:
        """The ranked cases at one batch size, fastest first."""
        return self.ok[self.ok["batch_size"] == batch_size].sort_values("time_s", kind="stable")


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


def _panels_of(name: str, run: Run) -> list[Panel]:
    baseline = _text(run.info.get("baseline")) or DEFAULT_BASELINE
    control = _text(run.info.get("control"))
    cases: dict[tuple[Place, str, int], dict[int, Measurement]] = {}
    for row in run.rows:
        if _is_count(row.batch_size):
            place = Place(name, *map(_text, (row.workload, row.quantity, row.device, row.dtype, row.allocator)))
            passes = cases.setdefault((place, _text(row.strategy), row.batch_size), {})
            passes[_pass_of(row)] = row  # a case that was measured again replaces the first try
    for place, strategy, size in _planned(name, run.info):
        cases.setdefault((place, strategy, size), {})
    lines: dict[Place, list[dict[str, Any]]] = {}
    for (place, strategy, size), rows in cases.items():
        lines.setdefault(place, []).append(_line(place, strategy, size, list(rows.values())))
    order = _order(run.info)
    return [_panel(place, lines[place], baseline, control) for place in sorted(lines, key=order)]


def _order(info: Mapping[str, Any]) -> Callable[[Place], tuple[int, bool, Place]]:
    """Workloads as planned, rows of gradients before what needs no rows; what was measured first is chance."""
    plan = info.get("plan")
    workloads = [_text(name) for name in _list(plan.get("workloads"))] if isinstance(plan, Mapping) else []
    position = {name: number for number, name in enumerate(workloads)}
    return lambda place: (position.get(place.workload, len(position)), place.quantity != "gradients", place)


def _panel(place: Place, lines: list[dict[str, Any]], baseline: str, control: str) -> Panel:
    floor = _noise_floor(lines, baseline, control)
    base = _estimates(lines, baseline)
    for line in lines:
        speedup = _speedup(line, base, baseline)
        line["speedup"] = speedup.value if speedup else math.nan
        line["speedup_low"] = _or_nan(speedup.low) if speedup else math.nan
        line["speedup_high"] = _or_nan(speedup.high) if speedup else math.nan
        compared = speedup is not None and line["strategy"] != baseline
        line["verdict"] = statistics.verdict(speedup, floor.factor).value if speedup and compared else ""
    return Panel(place, baseline, control, floor, pd.DataFrame(_ranked(lines), columns=list(COLUMNS)))


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


def _line(place: Place, strategy: str, batch_size: int, rows: Sequence[Measurement]) -> dict[str, Any]:
    worst = max(rows, key=lambda row: SEVERITY.index(row.status), default=None)
    status = worst.status if worst else Status.SKIPPED
    passes = [_samples(row) for row in rows]
    name = "|".join((*place[1:], strategy, str(batch_size)))
    estimate = _estimate(passes, name) if status is Status.OK else None
    facts = worst.facts if worst and isinstance(worst.facts, Mapping) else {}
    return {
        **place._asdict(),
        "strategy": strategy,
        "framework": (_text(worst.framework) if worst else "") or strategy.split("/")[0],
        "batch_size": batch_size,
        "status": status.value,
        "reason": _reason(worst, estimate, len(rows)),
        "detail": _text(worst.detail) if worst else "",
        "passes": len(rows),
        "passes_ok": sum(row.status is Status.OK for row in rows),
        "samples": sum(map(len, passes)),
        "time_s": estimate.value if estimate else math.nan,
        "time_low_s": _or_nan(estimate.low) if estimate else math.nan,
        "time_high_s": _or_nan(estimate.high) if estimate else math.nan,
        **{column: _median(getattr(row, column) for row in rows) for column in MEDIANS},
        **_agreement(rows),
        "peak_bytes": max(_numbers(row.peak_bytes for row in rows), default=math.nan),
        "output_bytes": max(_numbers(row.output_bytes for row in rows), default=math.nan),
        "retraces": max(_numbers(row.retraces for row in rows), default=math.nan),
        "device_name": _text(worst.device_name) if worst else "",
        "stopping_rule": ", ".join(dict.fromkeys(_text(row.stopping_rule) for row in rows if row.stopping_rule)),
        "marks": tuple(dict.fromkeys(_text(mark) for row in rows for mark in row.marks)),
        "facts": {_text(key): _text(value) for key, value in facts.items()},
        "estimate": estimate,
    }


def _estimate(passes: Sequence[NDArray[np.float64]], name: str) -> Estimate | None:
    """Seeded by the case's own name: its interval does not depend on what else the run holds."""
    return statistics.estimate(passes, seed=zlib.crc32(name.encode())) if any(map(len, passes)) else None


def _reason(worst: Measurement | None, estimate: Estimate | None, passes: int) -> str:
    if worst is None:
        return NOT_REACHED
    if worst.status is Status.OK:
        return "" if estimate else "no timed call is on record"
    reason = _text(worst.reason) or "no reason is on record"
    return reason if passes == 1 else f"{reason} (in pass {_pass_of(worst)})"


def _agreement(rows: Sequence[Measurement]) -> dict[str, Any]:
    """The worst agreement over all passes; an error of exactly 0 has infinitely many digits."""
    errors = [(error, row) for row in rows if (error := _number(row.max_relative_error)) is not None and error >= 0]
    if not errors:
        digits = min(_numbers(row.digits for row in rows), default=math.nan)
        return {"digits": digits, "max_relative_error": math.nan, "worst_parameter": "", "worst_instance": math.nan}
    error, worst = max(errors, key=lambda pair: pair[0])
    return {
        "digits": -math.log10(error) if error else math.inf,
        "max_relative_error": error,
        "worst_parameter": _text(worst.worst_parameter),
        "worst_instance": _or_nan(_number(worst.worst_instance)),
    }


def _planned(name: str, info: Mapping[str, Any]) -> list[tuple[Place, str, int]]:
    """The planned cases of a run that did not finish, so that what it never reached is named, not missing."""
    plan = info.get("plan")
    if info.get("state") not in ("interrupted", "running") or not isinstance(plan, Mapping):
        return []
    entries = [entry for entry in _list(info.get("strategies")) if isinstance(entry, Mapping)]
    quantities = {_text(entry.get("name")): _text(entry.get("quantity")) for entry in entries}
    strategies = [*map(_text, _list(plan.get("strategies"))), *filter(None, [_text(info.get("control"))])]
    allocators = _list(plan.get("allocators")) or [_text(plan.get("allocator")) or "default"]
    dtype = _text(plan.get("dtype")) or "float32"
    lists = [_list(plan.get(key)) for key in ("workloads", "devices", "batch_sizes")]
    return [
        (
            Place(
                name, _text(workload), quantities.get(strategy) or "gradients", _text(device), dtype, _text(allocator)
            ),
            strategy,
            size,
        )
        for workload, device, size, allocator, strategy in product(*lists, allocators, strategies)
        if _is_count(size)
    ]


def _samples(row: Measurement) -> NDArray[np.float64]:
    """Seconds per timed call; a row without samples counts with its median."""
    try:
        samples = np.asarray(row.samples_ns, dtype=np.float64) * 1e-9
    except (TypeError, ValueError):  # a row from elsewhere, with something else among its numbers
        samples = np.array(_numbers(row.samples_ns)) * 1e-9
    usable = samples[np.isfinite(samples) & (samples > 0)]
    return usable if len(usable) else np.array([median for median in _numbers([row.median_s]) if median > 0])


def _median(values: Iterable[object]) -> float:
    numbers = sorted(_numbers(values))
    middle = len(numbers) // 2
    if not numbers:
        return math.nan
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def _numbers(values: Iterable[object]) -> list[float]:
    return [number for number in map(_number, values) if number is not None]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _pass_of(row: Measurement) -> int:
    return row.pass_number if _is_count(row.pass_number) else 0


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _text(value: object) -> str:
    return "" if value is None else str(value)
