"""What is known of a run while it is measured: which cases are done, which are hopeless, what is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.analysis import predict
from harness.core import find_workloads, store
from harness.core.records import Case, Measurement, SkipCause, Status
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.frameworks.base import no_device
from harness.reference.workload_info import WorkloadInfo, workload_info
from harness.runner.one_heat import Heat
from harness.runner.plan import Group, Plan
from harness.system import roofline
from harness.system.detect import Seen
from harness.system.roofline import Roofline

OnRow = Callable[[Measurement], None]

SHORTEST_HEAT_S = 5.0
"""With less of the budget left than this, no further heat is begun."""


@dataclass
class Ledger:
    """The rows of a run folder, on disk as soon as they are kept, and what follows from them for the cases to come.

    Attributes:
        seen: framework -> what the probe saw of it.
        on_row: called after a row has reached the disk.
        retry: whether the rows of cases that failed are dropped first, so that they are measured again.
        without_reference: workload and batch size -> status and reason of their cases.
    """

    wanted: Plan
    chosen: Sequence[Strategy]
    seen: Mapping[str, Seen]
    folder: Path
    on_row: OnRow
    retry: bool = False
    without_reference: dict[tuple[str, int], tuple[Status, str]] = field(default_factory=dict)

    def open(self) -> None:
        """Read what the folder holds already."""
        stored = store.repair(self.folder, lambda row: not (self.retry and row.status.is_failure))
        self._info: dict[str, Any] = dict(stored.info)
        ceilings = self._info.get("ceilings", {})
        self._ceilings: Mapping[str, Roofline | None] = {name: roofline.from_json(v) for name, v in ceilings.items()}
        self.facts: dict[str, WorkloadInfo] = {
            name: workload_info(find_workloads.find(self.wanted.source(name)), self.wanted.seed)
            for name in self.wanted.workloads
        }
        self._through_ops = {strategy.name for strategy in self.chosen if strategy.through_ops}
        self._done: dict[tuple[Case, int], Status] = {}
        self._dead: dict[Case, Measurement] = {}
        self._heat = max((row.heat or 0 for row in stored.rows), default=0)
        for row in stored.rows:
            self._learn(row)
        self._started = time.monotonic()

    def close(self, state: str) -> None:
        """Write how the run ended, and what is derived from its rows."""
        with contextlib.suppress(OSError):
            self._info["state"] = state
            self._info["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
            self._info["wall_s"] = self._info.get("wall_s", 0.0) + time.monotonic() - self._started
            store.write_info(self.folder, self._info)
            store.write_benchmark_file(store.load(self.folder))

    def next_heat(self) -> int:
        """A number for a heat, or a group of them, that no row has yet."""
        self._heat += 1
        return self._heat

    def heat(self, group: Group, number: int) -> Heat | None:
        """A heat of a group without the cases that are done, hopeless, or beyond the budget; those get their rows.

        None if nothing is left of it.
        """
        tasks = group.heats[number]
        promising = [task for task in map(self._promising, tasks) if task.batch_sizes]
        left_s = self.left_s()
        if left_s is not None and left_s < SHORTEST_HEAT_S:
            reason = f"left out: the budget of {self.wanted.budget_s:g} s was used up"
            for task in promising:
                self._refuse(task, task.batch_sizes, Status.SKIPPED, reason, SkipCause.BUDGET)
            return None
        if not promising:
            return None
        entered = [*promising, *self._baseline_again(tasks, promising)]
        if left_s is not None:
            entered = [replace(task, limit_s=min(task.limit_s, left_s)) for task in entered]
        return Heat(
            f"{group.pass_number} {group.number} {tasks[0].device} {tasks[0].allocator}",
            tuple(entered),
            self.wanted.baseline,
            self.wanted.precision,
            f"{self.wanted.seed} {group.pass_number} {number}",
        )

    def left_s(self) -> float | None:
        """What is left of the budget, in seconds; None if there is none."""
        return None if self.wanted.budget_s is None else self.wanted.budget_s - time.monotonic() + self._started

    def keep(self, row: Measurement) -> None:
        """Store a row that was measured, unless there is one of its case and pass."""
        if (row.case, row.pass_number) not in self._done:
            self._keep(self._with_floor(row))

    def _baseline_again(self, tasks: Sequence[Task], promising: Sequence[Task]) -> list[Task]:
        """The baseline, where it has been measured already: every heat is compared with it; it gets no second row."""
        return [
            replace(task, checks=False)
            for task in tasks
            if task.strategy == self.wanted.baseline
            and task not in promising
            and self._done.get((_case(task, task.batch_sizes[0]), task.pass_number)) is Status.OK
        ]

    def _promising(self, task: Task) -> Task:
        """The task with the batch sizes that are worth measuring; the others get their rows."""
        sizes = [size for size in task.batch_sizes if (_case(task, size), task.pass_number) not in self._done]
        known = self.facts[task.workload]
        if task.framework not in known.frameworks:
            reason = f"workload {task.workload} is written for {', '.join(known.frameworks)} only"
            self._refuse(task, sizes, Status.UNSUPPORTED, reason)
            return task.only([])
        if not known.through_ops and task.strategy in self._through_ops:
            reason = f"reads the layers of losses written through ops; workload {task.workload} is written without them"
            self._refuse(task, sizes, Status.UNSUPPORTED, reason)
            return task.only([])
        if reason := absent(task, self.seen[task.framework]):
            self._refuse(task, sizes, Status.UNAVAILABLE, reason)
            return task.only([])
        for size in sizes:
            if why_not := self.without_reference.get((task.workload, size)):
                self._refuse(task, [size], *why_not)
        sizes = [size for size in sizes if (task.workload, size) not in self.without_reference]
        if task.quantity == "gradients":
            row_bytes = known.gradient_bytes(task.dtype)
            too_large = {size: reason for size in sizes if (reason := predict.too_large(row_bytes, size))}
            for size, reason in too_large.items():
                self._refuse(task, [size], Status.SKIPPED, reason, SkipCause.SIZE)
            sizes = [size for size in sizes if size not in too_large]
        if why := self._dead.get(_case(task, 0)):
            hopeless = [size for size in sizes if size >= why.batch_size]
            sizes = [size for size in sizes if size < why.batch_size]
            here = why.pass_number == task.pass_number
            reason = f"{why.status}{'' if here else f' in pass {why.pass_number}'} at batch size {why.batch_size}"
            cause = SkipCause.LIMIT if here else SkipCause.EARLIER_PASS
            self._refuse(task, hopeless, Status.SKIPPED, f"{reason}: {why.reason}", cause)
        return task.only(sizes)

    def _refuse(
        self, task: Task, sizes: Sequence[int], status: Status, reason: str, cause: SkipCause | None = None
    ) -> None:
        for size in sizes:
            self._keep(task.row(size, status, reason, skip_cause=cause))

    def _with_floor(self, row: Measurement) -> Measurement:
        """The row with the least time that the machine's ceiling allows."""
        best, flops = self._ceilings.get(row.device), self.facts[row.workload].flops
        if best is None or row.output_bytes is None:
            return row
        return replace(row, floor_s=best.floor_s(row.output_bytes, flops and flops * row.batch_size))

    def _keep(self, row: Measurement) -> None:
        store.append(self.folder, row)
        self._learn(row)
        self.on_row(row)

    def _learn(self, row: Measurement) -> None:
        """Remember what is done; a case that takes too long is not tried again, nor is a larger one."""
        self._done[row.case, row.pass_number] = row.status
        if row.status is Status.TIMEOUT or row.skip_cause is SkipCause.LIMIT:
            self._dead.setdefault(replace(row.case, batch_size=0), row)


def absent(task: Task, seen: Seen) -> str:
    """Why the framework or the device is not there; empty if both are."""
    if seen["status"] != "ok":
        return str(seen["reason"])
    devices = seen["devices"]
    if any(device["kind"] == task.device for device in devices):
        return ""
    why = (seen.get("missing") or {}).get(task.device, "")
    return no_device(task.framework, task.device, [device["name"] for device in devices], why)


def _case(task: Task, size: int) -> Case:
    return task.row(size, Status.OK).case
