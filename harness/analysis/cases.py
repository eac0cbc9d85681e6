"""All passes of one case -> one line of the table.

A case that was measured in several passes takes its worst status: a strategy that is wrong once is wrong. What was
not measured is NaN, never 0, and only a case with the status `ok` has a time.

Rows may come from elsewhere and hold anything, so every value is converted once, here, and nothing further on has
to doubt its type.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.analysis import statistics
from harness.analysis.statistics import Estimate
from harness.core.records import Measurement, Status

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


def as_line(place: Place, strategy: str, batch_size: int, rows: Sequence[Measurement]) -> dict[str, Any]:
    """One line of the table: a case with all its passes, not yet compared with any other."""
    worst = max(rows, key=lambda row: SEVERITY.index(row.status), default=None)
    status = worst.status if worst else Status.SKIPPED
    passes = [_samples(row) for row in rows]
    name = "|".join((*place[1:], strategy, str(batch_size)))
    estimate = _estimate(passes, name) if status is Status.OK else None
    facts = worst.facts if worst and isinstance(worst.facts, Mapping) else {}
    return {
        **place._asdict(),
        "strategy": strategy,
        "framework": (text(worst.framework) if worst else "") or strategy.split("/")[0],
        "batch_size": batch_size,
        "status": status.value,
        "reason": _reason(worst, estimate, len(rows)),
        "detail": text(worst.detail) if worst else "",
        "passes": len(rows),
        "passes_ok": sum(row.status is Status.OK for row in rows),
        "samples": sum(map(len, passes)),
        "time_s": estimate.value if estimate else math.nan,
        "time_low_s": or_nan(estimate.low) if estimate else math.nan,
        "time_high_s": or_nan(estimate.high) if estimate else math.nan,
        **{column: _median(getattr(row, column) for row in rows) for column in MEDIANS},
        **_agreement(rows),
        "peak_bytes": max(numbers(row.peak_bytes for row in rows), default=math.nan),
        "output_bytes": max(numbers(row.output_bytes for row in rows), default=math.nan),
        "retraces": max(numbers(row.retraces for row in rows), default=math.nan),
        "device_name": text(worst.device_name) if worst else "",
        "stopping_rule": ", ".join(dict.fromkeys(text(row.stopping_rule) for row in rows if row.stopping_rule)),
        "marks": tuple(dict.fromkeys(mark for row in rows for mark in row.marks)),
        "facts": {text(key): text(value) for key, value in facts.items()},
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
    reason = text(worst.reason) or "no reason is on record"
    return reason if passes == 1 else f"{reason} (in pass {pass_of(worst)})"


def _agreement(rows: Sequence[Measurement]) -> dict[str, Any]:
    """The worst agreement over all passes; an error of exactly 0 has infinitely many digits."""
    errors = [(error, row) for row in rows if (error := number(row.max_relative_error)) is not None and error >= 0]
    if not errors:
        digits = min(numbers(row.digits for row in rows), default=math.nan)
        return {"digits": digits, "max_relative_error": math.nan, "worst_parameter": "", "worst_instance": math.nan}
    error, worst = max(errors, key=lambda pair: pair[0])
    return {
        "digits": -math.log10(error) if error else math.inf,
        "max_relative_error": error,
        "worst_parameter": text(worst.worst_parameter),
        "worst_instance": or_nan(number(worst.worst_instance)),
    }


def _samples(row: Measurement) -> NDArray[np.float64]:
    """Seconds per timed call; a row without samples counts with its median."""
    try:
        samples = np.asarray(row.samples_ns, dtype=np.float64) * 1e-9
    except (TypeError, ValueError):  # a row from elsewhere, with something else among its numbers
        samples = np.array(numbers(row.samples_ns)) * 1e-9
    usable = samples[np.isfinite(samples) & (samples > 0)]
    return usable if len(usable) else np.array([median for median in numbers([row.median_s]) if median > 0])


def _median(values: Iterable[object]) -> float:
    found = sorted(numbers(values))
    middle = len(found) // 2
    if not found:
        return math.nan
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2


def numbers(values: Iterable[object]) -> list[float]:
    """The finite numbers among the values."""
    return [found for found in map(number, values) if found is not None]


def number(value: object) -> float | None:
    """The value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def or_nan(value: float | None) -> float:
    """NaN stands for what was not measured."""
    return math.nan if value is None else value


def is_count(value: object) -> bool:
    """Whether the value is a whole number from 0 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def pass_of(row: Measurement) -> int:
    """The row's pass, 0 where that is not a number."""
    return row.pass_number if is_count(row.pass_number) else 0


def as_list(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def text(value: object) -> str:
    """The value as text; None is an empty one."""
    return "" if value is None else str(value)
