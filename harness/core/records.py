"""Define the records of a run: cases, measurements, statuses.

Everything here is a frozen data class of plain values, so that it can be pickled to another machine and
written as one line of strict JSON. Nothing here measures, judges or draws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import msgspec

FEWEST_ROUNDS = 5
"""Turns per case at least, however slow; a turn is one call at least."""

SCHEMA_VERSION = 1
"""Version of `run.json` and of the rows of `measurements.jsonl`; raised when a column changes its meaning."""


class Status(StrEnum):
    """What became of a case. Only `ok` cases are ranked; a missing time is null, never 0."""

    OK = "ok"
    DISAGREES = "disagrees"
    NONFINITE = "nonfinite"
    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    SKIPPED = "skipped"

    @property
    def is_failure(self) -> bool:
        """Whether this status makes `pergrad run` end with exit status 1."""
        return self not in (Status.OK, Status.UNSUPPORTED, Status.UNAVAILABLE, Status.SKIPPED)


class SkipCause(StrEnum):
    """Why a case was skipped."""

    LIMIT = "limit"
    """Smaller batches took, or predict, longer than `--limit`."""
    SIZE = "size"
    """Its result would take more memory than any that is measured."""
    BUDGET = "budget"
    """The time of the whole run was over."""
    EARLIER_PASS = "earlier pass"
    """It took too long in an earlier pass."""


class MarkKind(StrEnum):
    """What a remark beside a time is about."""

    UNSETTLED = "unsettled"
    RETRACES = "retraces"
    HIDDEN_LOOPS = "hidden loops"
    LEAK = "leak"
    FORKS = "forks"
    EVALUATIONS = "evaluations"
    OUTSIDE_TURN = "outside turn"
    TWO_SPEEDS = "two speeds"
    SLOW_FALLBACK = "slow fallback"
    UNSTABLE = "unstable"


@dataclass(frozen=True)
class Mark:
    """A remark that stands beside a time: what it is about, and a sentence."""

    kind: MarkKind
    text: str


@dataclass(frozen=True)
class Case:
    """One cell of the plan: workload x strategy x quantity x device x dtype x batch size (x allocator)."""

    workload: str
    strategy: str
    quantity: str
    device: str
    dtype: str
    batch_size: int
    allocator: str = "default"


@dataclass(frozen=True)
class Measurement:
    """One row of `measurements.jsonl`: one case in one pass, failures included.

    Times end in `_s` (seconds) except `samples_ns` (nanoseconds per call, one entry per turn: the median of its calls).
    Whatever was not measured is None, which is null in the file.
    """

    workload: str
    strategy: str
    framework: str
    quantity: str
    device: str
    dtype: str
    batch_size: int
    pass_number: int
    status: Status
    skip_cause: SkipCause | None = None
    """Why it was skipped; None unless it was."""
    reason: str = ""
    """Why the status is not `ok`, in one sentence; empty for `ok`."""
    broken: str = ""
    """The requirement of `harness.measure.contract` that a strategy which disagrees does not meet."""
    detail: str = ""
    """Last frames of a traceback, last lines of stderr: whatever helps to repair a failure."""
    allocator: str = "default"
    import_s: float | None = None
    build_s: float | None = None
    first_call_s: float | None = None
    fetch_s: float | None = None
    """Copying one result to NumPy, outside the steady state (0 work for `tf1`, whose session returns NumPy)."""
    case_s: float | None = None
    """The whole case on the wall: batches, build, first call, warm-up, timed calls, checks."""
    samples_ns: tuple[int, ...] = ()
    """Of runs before turns: one entry per timed call."""
    calls: int | None = None
    """Timed calls in all turns; as many as samples where that is not told."""
    timed_s: float | None = None
    """Seconds inside them."""
    median_s: float | None = None
    heat: int | None = None
    """Which heat of its pass it took part in: strategies of one heat take turns; each heat has the baseline in it."""
    baseline_s: float | None = None
    """`median_s` of the baseline in that heat."""
    machine: str = ""
    """Which machine of a fleet measured it; empty where there was only one."""
    warmup_calls: int | None = None
    stopping_rule: str = ""
    """Which rule ended the turns: `precision`, `time`, `few rounds` or `hopeless`; `rounds` in older runs."""
    max_relative_error: float | None = None
    of_tolerance: float | None = None
    """The largest error relative to what is allowed there: how near to the limit an honest strategy comes."""
    """Largest |difference| over all checked rows, relative to the largest true entry of its parameter's row."""
    digits: float | None = None
    """Agreement in decimal digits: -log10(max_relative_error)."""
    worst_parameter: str = ""
    worst_instance: int | None = None
    rows_checked: int | None = None
    peak_bytes: int | None = None
    """Peak memory above the state before the build."""
    output_bytes: int | None = None
    minor_faults: float | None = None
    """Minor page faults per timed call."""
    cores_busy: float | None = None
    """CPU seconds over wall seconds, over all timed calls."""
    system_share: float | None = None
    """Share of those CPU seconds spent in the kernel."""
    retraces: int | None = None
    """Traces and compilations in the timed calls; there should be none."""
    floor_s: float | None = None
    """The ceiling: the least time this machine could take, from the bytes written and the flops computed."""
    pulse_s: float | None = None
    """Seconds that a short fixed kernel took, before or after the case; see `harness.system.interference`."""
    wait_s: float | None = None
    """Waiting for a device on which nothing is pending, which every timed call contains; None on the CPU."""
    gpu_state: Mapping[str, Any] = field(default_factory=dict)
    """What the driver told of the GPU after the case: clock, temperature, power, what held the clock back."""
    device_name: str = ""
    """The device that really held the result, as the framework names it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the strategy recorded about itself (threads, graph operations, ...)."""
    marks: tuple[Mark, ...] = ()
    """Remarks shown beside the time, such as a warning of a slow fallback."""
    started: str = ""
    """UTC, ISO 8601."""

    @property
    def case(self) -> Case:
        """The cell of the plan this row belongs to."""
        return Case(
            self.workload, self.strategy, self.quantity, self.device, self.dtype, self.batch_size, self.allocator
        )

    def as_json(self) -> dict[str, Any]:
        """A JSON object of plain values; `pass_number` is called `pass`, as in the design."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        return {"pass" if name == "pass_number" else name: value for name, value in values.items()}

    @staticmethod
    def from_json(values: object) -> Measurement:
        """Read a row; columns unknown to this version are ignored, missing ones take their defaults.

        Raises:
            ValueError: if it is no JSON object, or a column holds something else than it should; the message names it.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"a row is an object, not {type(values).__name__}")
        row = {"pass_number" if name == "pass" else name: value for name, value in values.items()}
        row = {name: value for name, value in row.items() if name in _COLUMNS}
        row["status"] = Status(row["status"])
        row["samples_ns"] = tuple(row.get("samples_ns") or ())
        row["marks"] = tuple(_mark(value) for value in row.get("marks") or ())
        if row["status"] is Status.SKIPPED:
            row["skip_cause"] = _skip_cause(row.get("skip_cause"), str(row.get("reason") or ""))
        return msgspec.convert(row, Measurement)


_COLUMNS = frozenset(f.name for f in fields(Measurement))

OLD_MARKS = {
    r"warm-up had not settled": MarkKind.UNSETTLED,
    r"\d+ retraces": MarkKind.RETRACES,
    r"\d+ hidden loops": MarkKind.HIDDEN_LOOPS,
    r"unstable": MarkKind.UNSTABLE,
    r"memory grows": MarkKind.LEAK,
    r"forks a process": MarkKind.FORKS,
    r"evaluates the loss": MarkKind.EVALUATIONS,
}
"""How the marks of runs begin that were recorded before marks had a kind; all others were a framework's warnings."""


def _mark(value: Any) -> Mark:
    if isinstance(value, Mapping):
        return Mark(MarkKind(value["kind"]), str(value["text"]))
    text = str(value)
    kinds = (kind for start, kind in OLD_MARKS.items() if re.match(start, text))
    return Mark(next(kinds, MarkKind.SLOW_FALLBACK), text)


def _skip_cause(value: str | None, reason: str) -> SkipCause:
    """The cause that is recorded; of an old run, which has only the sentence, the one that this sentence tells."""
    if value is not None:
        return SkipCause(value)
    if reason.startswith("left out"):
        return SkipCause.BUDGET
    if " in pass " in reason:
        return SkipCause.EARLIER_PASS
    return SkipCause.SIZE if "GiB" in reason else SkipCause.LIMIT


def plain(value: Any) -> Any:
    """The value as strict JSON allows it: enums and NumPy scalars unwrapped, NaN and infinities as None."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mark):
        return {"kind": value.kind.value, "text": value.text}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
