"""Runs a plan: one worker process after another, every row on disk before the next case begins."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import ceiling, plan, process, reference, store, workloads
from harness.ceiling import Ceiling
from harness.plan import Plan
from harness.probe import Seen
from harness.pulse import Usual
from harness.records import Case, Measurement, Status
from harness.strategies import Strategy
from harness.task import Task
from harness.workloads import cast

OnRow = Callable[[Measurement], None]

SHORTEST_TASK_S = 5.0
"""With less of the budget left than this, no further worker is started."""


@dataclass
class Sweep:
    """A plan on its way into a run folder.

    Attributes:
        seen: framework -> what the probe saw of it.
        on_row: called after a row has reached the disk.
    """

    wanted: Plan
    chosen: Sequence[Strategy]
    seen: Mapping[str, Seen]
    folder: Path
    on_row: OnRow
    ceilings: Mapping[str, Ceiling | None] = field(default_factory=dict)

    def run(self) -> None:
        """Measure whatever the folder does not hold yet.

        Whatever ends the sweep, Ctrl-C and a full disk included, leaves a run folder that can be read.
        """
        stored = store.repair(self.folder, lambda row: True)
        info = dict(stored.info)
        self.ceilings = {name: ceiling.from_json(values) for name, values in info.get("ceilings", {}).items()}
        self._usual = Usual()
        self._done = {(row.case, row.pass_number) for row in stored.rows}
        self._dead: dict[Case, Measurement] = {}
        for row in stored.rows:
            self._learn(row)
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="pergrad-") as scratch:
                truths = write_truths(self.wanted, Path(scratch))
                for task in plan.tasks(self.wanted, self.chosen, truths):
                    self._task(task, started)
            info["state"] = "complete"
        except BaseException:
            info["state"] = "interrupted"
            raise
        finally:
            with contextlib.suppress(OSError):
                info["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
                info["wall_s"] = info.get("wall_s", 0.0) + time.monotonic() - started
                store.write_info(self.folder, info)
                store.write_benchmark_file(store.load(self.folder))

    def _task(self, task: Task, started: float) -> None:
        """Measure one task, without the cases that are done, hopeless, or beyond the budget."""
        sizes = [size for size in task.batch_sizes if (_case(task, size), task.pass_number) not in self._done]
        if not sizes:
            return
        if reason := absent(task, self.seen[task.framework]):
            self._refuse(task, sizes, Status.UNAVAILABLE, reason)
            return
        if why := self._dead.get(_case(task, 0)):
            hopeless = [size for size in sizes if size >= why.batch_size]
            sizes = [size for size in sizes if size < why.batch_size]
            reason = f"{why.status} in pass {why.pass_number} at batch size {why.batch_size}: {why.reason}"
            self._refuse(task, hopeless, Status.SKIPPED, reason)
        if self.wanted.budget_s is not None:
            left = self.wanted.budget_s - (time.monotonic() - started)
            if left < SHORTEST_TASK_S:
                reason = f"left out: the budget of {self.wanted.budget_s:g} s was used up"
                self._refuse(task, sizes, Status.SKIPPED, reason)
                return
            task = replace(task, limit_s=min(task.limit_s, left))
        if sizes:
            for row in process.measure_task(task.only(sizes)):
                self._keep(self._judge(row))

    def _refuse(self, task: Task, sizes: Sequence[int], status: Status, reason: str) -> None:
        for size in sizes:
            self._keep(task.row(size, status, reason))

    def _judge(self, row: Measurement) -> Measurement:
        """The row with what only the sweep knows: the machine's ceiling, and whether it was disturbed."""
        known = self.ceilings.get(row.device)
        if known is not None and row.output_bytes is not None:
            row = replace(row, floor_s=known.floor_s(row.output_bytes, None))
        if row.pulse_s is not None and self._usual.is_disturbed(row.pulse_s):
            row = replace(row, marks=(*row.marks, "unstable: the machine was disturbed"))
        return row

    def _keep(self, row: Measurement) -> None:
        store.append(self.folder, row)
        self._learn(row)
        self.on_row(row)

    def _learn(self, row: Measurement) -> None:
        """A case that takes too long is not tried again in later passes, nor is a larger one."""
        if row.status is Status.TIMEOUT or (row.status is Status.SKIPPED and "limit" in row.reason):
            self._dead.setdefault(replace(row.case, batch_size=0), row)


def write_truths(wanted: Plan, folder: Path) -> dict[str, dict[int, str]]:
    """Compute the truth about every batch once, into files that all workers read: workload -> size -> path."""
    truths: dict[str, dict[int, str]] = {}
    for name in wanted.workloads:
        workload = workloads.find(name)
        parameters = cast(workload.initial_parameters(wanted.seed), wanted.dtype)
        for size in wanted.batch_sizes:
            path = folder / f"{name}-{size}.npz"
            batches = workload.batches(wanted.seed, size, reference.BATCHES)
            reference.save(
                path, [reference.compute(workload, parameters, cast(batch, wanted.dtype)) for batch in batches]
            )
            truths.setdefault(name, {})[size] = str(path)
    return truths


def absent(task: Task, seen: Seen) -> str:
    """Why the framework or the device is not there; empty if both are."""
    if seen["status"] != "ok":
        return str(seen["reason"])
    devices = seen["devices"]
    if any(device["kind"] == task.device for device in devices):
        return ""
    return f"{task.framework} sees no {task.device} here, only: {', '.join(device['name'] for device in devices)}"


def steady_share(run: store.Run) -> float | None:
    """The share of a run's wall time that was spent inside steady-state calls."""
    wall = run.info.get("wall_s")
    return sum(sum(row.samples_ns) for row in run.rows) * 1e-9 / wall if wall else None


def _case(task: Task, size: int) -> Case:
    return task.row(size, Status.OK).case
