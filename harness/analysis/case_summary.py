"""Summarise all passes of one case: its worst status, its time with an interval, medians of everything else.

A case that was measured in several passes takes its worst status: a strategy that is wrong once is wrong. What was not
measured is NaN, never 0, and only a case with the status `ok` has a time.
"""

from __future__ import annotations

import math
import statistics as exact
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.analysis import formats, statistics
from harness.analysis.statistics import Estimate, Interval, Spread
from harness.core.records import Mark, MarkKind, Measurement, Status

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

MOST_CEILING_SHARE = 1.05
"""Beyond it the bound is none: what is left for noise."""

NOT_REACHED = "the run ended before this case was measured"

NO_SPEEDUP = Interval(math.nan, None, None)


class Conditions(NamedTuple):
    """What two cases must share to be compared; a strategy and a batch size make a case of it."""

    run: str
    workload: str
    quantity: str
    device: str
    dtype: str
    allocator: str


@dataclass(frozen=True)
class CaseSummary:
    """One case with all its passes. Times end in `_s` (seconds); numbers that were not measured are NaN.

    Attributes:
        passes: how many passes have a row of it, `passes_ok` of them with the status `ok`.
        samples: timed calls in all passes, over all turns.
        estimate: its time with all that is needed to compare it; None unless `ok`.
        speedup: over the baseline at the same batch size; its value is NaN if there is none.
        verdict: whether that speed-up is beyond the noise, a value of `statistics.Verdict`; empty if there is none.
        digits: agreement with the reference in decimal digits, the worst of all passes; infinite if exact.
        retraces: the most traces or compilations within the timed calls of a pass.
        reuses_output: whether the strategy's result is valid until its next call only.
        environment: variables that the strategy needs before its framework is imported, as `NAME=value`.
    """

    conditions: Conditions
    strategy: str
    framework: str
    batch_size: int
    status: Status
    reason: str
    detail: str
    passes: int
    passes_ok: int
    samples: int
    estimate: Estimate | None
    import_s: float
    build_s: float
    first_call_s: float
    fetch_s: float
    case_s: float
    floor_s: float
    minor_faults: float
    cores_busy: float
    system_share: float
    digits: float
    max_relative_error: float
    worst_parameter: str
    worst_instance: float
    peak_bytes: float
    output_bytes: float
    retraces: float
    device_name: str
    stopping_rule: str
    marks: tuple[Mark, ...]
    facts: Mapping[str, str]
    speedup: Interval = NO_SPEEDUP
    verdict: str = ""
    reuses_output: bool = False
    environment: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The strategy's name as tables show it."""
        return formats.marked(formats.clipped(self.strategy, 60), self.reuses_output)

    @property
    def time_s(self) -> float:
        """The time of one call; NaN unless `ok`."""
        return self.estimate.value if self.estimate else math.nan

    @property
    def ceiling_share(self) -> float:
        """The least time that the machine allows over the time; NaN where that is no bound.

        It is none where less is written than the result holds, as where most of an embedding's table stays zero.
        """
        share = self.floor_s / self.time_s if self.floor_s > 0 else math.nan
        return share if share <= MOST_CEILING_SHARE else math.nan

    @property
    def time_low_s(self) -> float:
        """The lower end of its interval; NaN if there is none."""
        return _or_nan(self.estimate.low if self.estimate else None)

    @property
    def time_high_s(self) -> float:
        """The upper end of its interval; NaN if there is none."""
        return _or_nan(self.estimate.high if self.estimate else None)


def summarise(
    conditions: Conditions,
    strategy: str,
    batch_size: int,
    rows: Sequence[Measurement],
    passes: Sequence[NDArray[np.float64]],
    spread: Spread,
) -> CaseSummary:
    """One case with all its passes, not yet compared with any other. Without rows it was not reached.

    Args:
        passes: the `samples` of every row.
        spread: between processes, pooled over the panel.
    """
    worst = max(rows, key=lambda row: SEVERITY.index(row.status), default=None)
    status = worst.status if worst else Status.SKIPPED
    name = "|".join((*conditions[1:], strategy, str(batch_size)))
    estimate = _estimate(passes, name, spread) if status is Status.OK else None
    error, wrong = max(
        ((row.max_relative_error, row) for row in rows if row.max_relative_error is not None),
        key=lambda pair: pair[0],
        default=(None, None),
    )
    return CaseSummary(
        conditions=conditions,
        strategy=strategy,
        framework=worst.framework if worst else strategy.split("/")[0],
        batch_size=batch_size,
        status=status,
        reason=_reason(worst, estimate, len(rows)),
        detail=worst.detail if worst else "",
        passes=len(rows),
        passes_ok=sum(row.status is Status.OK for row in rows),
        samples=sum(len(row.samples_ns) if row.calls is None else row.calls for row in rows),
        estimate=estimate,
        import_s=_median(row.import_s for row in rows),
        build_s=_median(row.build_s for row in rows),
        first_call_s=_median(row.first_call_s for row in rows),
        fetch_s=_median(row.fetch_s for row in rows),
        case_s=_median(row.case_s for row in rows),
        floor_s=_median(row.floor_s for row in rows),
        minor_faults=_median(row.minor_faults for row in rows),
        cores_busy=_median(row.cores_busy for row in rows),
        system_share=_median(row.system_share for row in rows),
        digits=_digits(error, rows),
        max_relative_error=_or_nan(error),
        worst_parameter=wrong.worst_parameter if wrong else "",
        worst_instance=_or_nan(wrong.worst_instance if wrong else None),
        peak_bytes=_largest(row.peak_bytes for row in rows),
        output_bytes=_largest(row.output_bytes for row in rows),
        retraces=_largest(row.retraces for row in rows),
        device_name=worst.device_name if worst else "",
        stopping_rule=", ".join(dict.fromkeys(row.stopping_rule for row in rows if row.stopping_rule)),
        marks=tuple(dict.fromkeys([*_marks(rows), *_two_speeds(estimate, spread)])),
        facts={key: str(value) for key, value in worst.facts.items()} if worst else {},
    )


def _marks(rows: Sequence[Measurement]) -> Iterator[Mark]:
    """The marks of all rows; a leak only where every process shows it, as allocators keep memory now and then."""
    timed = [row for row in rows if row.samples_ns]
    leaks = all(any(mark.kind is MarkKind.LEAK for mark in row.marks) for row in timed)
    for row in rows:
        yield from (mark for mark in row.marks if leaks or mark.kind is not MarkKind.LEAK)


def _estimate(passes: Sequence[NDArray[np.float64]], name: str, spread: Spread) -> Estimate | None:
    """Seeded by the case's own name: its interval does not depend on what else the run holds."""
    return statistics.estimate(passes, zlib.crc32(name.encode()), spread) if any(map(len, passes)) else None


def _two_speeds(estimate: Estimate | None, spread: Spread) -> Iterator[Mark]:
    """Processes of one strategy that fall into two groups, as where a call waits for another thread, or does not."""
    if estimate and (found := statistics.two_speeds(estimate.passes, spread)):
        fast, slow = map(formats.duration, found)
        yield Mark(MarkKind.TWO_SPEEDS, f"two speeds: {fast} in one process, {slow} in another")


def _reason(worst: Measurement | None, estimate: Estimate | None, passes: int) -> str:
    if worst is None:
        return NOT_REACHED
    if worst.status is Status.OK:
        return "" if estimate else "no timed call is on record"
    reason = worst.reason or "no reason is on record"
    return reason if passes == 1 else f"{reason} (in pass {worst.pass_number})"


def _digits(error: float | None, rows: Sequence[Measurement]) -> float:
    """Decimal digits of the worst agreement; an error of exactly 0 has infinitely many."""
    if error is None:
        return min((row.digits for row in rows if row.digits is not None), default=math.nan)
    return -math.log10(error) if error else math.inf


def samples(row: Measurement, slowness: Mapping[int, float]) -> NDArray[np.float64]:
    """Seconds per call, one entry per turn, as on the machine of all heats; without samples the row's median counts."""
    samples = np.asarray(row.samples_ns, dtype=np.float64) * 1e-9
    samples = samples if len(samples) else np.array([row.median_s or 0.0])
    samples = samples / slowness.get(row.heat or 0, 1.0)
    usable: NDArray[np.float64] = samples[(samples > 0) & np.isfinite(samples)]
    return usable


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return exact.median(known) if known else math.nan


def _largest(values: Iterable[float | None]) -> float:
    return max((float(value) for value in values if value is not None), default=math.nan)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
