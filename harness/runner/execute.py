"""Runs a plan: one worker process after another, every row on disk before the next case begins."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from harness.analysis import predict
from harness.core import find_workloads, store
from harness.core.records import Case, Job, Mark, MarkKind, Measurement, SkipCause, Status, Task
from harness.core.strategy import Strategy
from harness.frameworks.base import no_device
from harness.frameworks.child_process import ChildProcessFailed
from harness.reference import build
from harness.reference.workload_info import workload_info
from harness.runner import plan, workers
from harness.runner.plan import Plan
from harness.system import roofline
from harness.system.detect import Seen
from harness.system.interference import UsualTime
from harness.system.roofline import Roofline

OnRow = Callable[[Measurement], None]

SHORTEST_JOB_S = 5.0
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
    ceilings: Mapping[str, Roofline | None] = field(default_factory=dict)

    def run(self) -> None:
        """Measure whatever the folder does not hold yet.

        Whatever ends the sweep, Ctrl-C and a full disk included, leaves a run folder that can be read.
        """
        stored = store.repair(self.folder, lambda row: True)
        info = dict(stored.info)
        self.ceilings = {name: roofline.from_json(values) for name, values in info.get("ceilings", {}).items()}
        self._usual = UsualTime()
        self._facts = {
            name: workload_info(find_workloads.find(self.wanted.source(name)), self.wanted.seed)
            for name in self.wanted.workloads
        }
        self._done = {(row.case, row.pass_number) for row in stored.rows}
        self._without_reference: dict[str, str] = {}
        self._dead: dict[Case, Measurement] = {}
        for row in stored.rows:
            self._learn(row)
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="pergrad-") as scratch:
                references = self._write_references(Path(scratch))
                for job in plan.jobs(self.wanted, self.chosen, references):
                    self._measure(job, started)
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

    def _write_references(self, folder: Path) -> dict[str, dict[int, str]]:
        """Compute the reference for every batch once, into files that all workers read: workload -> size -> file.

        A workload without a reference (its instances are coupled, its gradient is not finite, its framework fails) is
        remembered with the reason.
        """
        quantities = sorted({strategy.quantity for strategy in self.chosen})
        references: dict[str, dict[int, str]] = {}
        for name in self.wanted.workloads:
            row_bytes = self._facts[name].gradient_bytes(self.wanted.dtype)
            references[name] = {}
            for size in sorted(self.wanted.batch_sizes):
                if quantities == ["gradients"] and predict.too_large(row_bytes, size):
                    continue
                path = folder / f"{name}-{size}.npz"
                try:
                    source, seed, dtype = self.wanted.source(name), self.wanted.seed, self.wanted.dtype
                    build.write(path, source, size, seed, dtype, quantities)
                except (build.Coupled, build.NotFinite, ChildProcessFailed) as error:
                    self._without_reference[name] = str(error)
                    break
                references[name][size] = str(path)
        return references

    def _measure(self, job: Job, started: float) -> None:
        """Measure one job, without the cases that are done, hopeless, or beyond the budget."""
        left_s = None if self.wanted.budget_s is None else self.wanted.budget_s - (time.monotonic() - started)
        promising = tuple(task for task in map(self._promising, job) if task.batch_sizes)
        if left_s is not None and left_s < SHORTEST_JOB_S:
            reason = f"left out: the budget of {self.wanted.budget_s:g} s was used up"
            for task in promising:
                self._refuse(task, task.batch_sizes, Status.SKIPPED, reason, SkipCause.BUDGET)
        elif promising:
            if left_s is not None:
                promising = tuple(replace(task, limit_s=min(task.limit_s, left_s)) for task in promising)
            for row in workers.measure(promising):
                self._keep(self._judge(row))

    def _promising(self, task: Task) -> Task:
        """The task with the batch sizes that are worth measuring; the others get their rows."""
        sizes = [size for size in task.batch_sizes if (_case(task, size), task.pass_number) not in self._done]
        if reason := absent(task, self.seen[task.framework]):
            self._refuse(task, sizes, Status.UNAVAILABLE, reason)
            return task.only([])
        if reason := self._without_reference.get(task.workload, ""):
            self._refuse(task, sizes, Status.UNSUPPORTED, reason)
            return task.only([])
        known = self._facts[task.workload]
        if task.framework not in known.frameworks:
            reason = f"workload {task.workload} is written for {', '.join(known.frameworks)} only"
            self._refuse(task, sizes, Status.UNSUPPORTED, reason)
            return task.only([])
        if task.quantity == "gradients":
            row_bytes = known.gradient_bytes(task.dtype)
            too_large = {size: reason for size in sizes if (reason := predict.too_large(row_bytes, size))}
            for size, reason in too_large.items():
                self._refuse(task, [size], Status.SKIPPED, reason, SkipCause.SIZE)
            sizes = [size for size in sizes if size not in too_large]
        if why := self._dead.get(_case(task, 0)):
            reason = f"{why.status} in pass {why.pass_number} at batch size {why.batch_size}: {why.reason}"
            hopeless = [size for size in sizes if size >= why.batch_size]
            self._refuse(task, hopeless, Status.SKIPPED, reason, SkipCause.EARLIER_PASS)
            sizes = [size for size in sizes if size < why.batch_size]
        return task.only(sizes)

    def _refuse(
        self, task: Task, sizes: Sequence[int], status: Status, reason: str, cause: SkipCause | None = None
    ) -> None:
        for size in sizes:
            self._keep(task.row(size, status, reason, skip_cause=cause))

    def _judge(self, row: Measurement) -> Measurement:
        """The row with what only the sweep knows: the machine's ceiling, and whether it was disturbed."""
        best, flops = self.ceilings.get(row.device), self._facts[row.workload].flops
        if best is not None and row.output_bytes is not None:
            row = replace(row, floor_s=best.floor_s(row.output_bytes, flops and flops * row.batch_size))
        if row.pulse_s is not None and self._usual.is_disturbed(row.pulse_s):
            row = replace(row, marks=(*row.marks, Mark(MarkKind.UNSTABLE, "unstable: the machine was disturbed")))
        return row

    def _keep(self, row: Measurement) -> None:
        store.append(self.folder, row)
        self._learn(row)
        self.on_row(row)

    def _learn(self, row: Measurement) -> None:
        """A case that takes too long is not tried again in later passes, nor is a larger one."""
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


def steady_share(run: store.Run) -> float | None:
    """The share of a run's wall time that was spent inside steady-state calls."""
    wall = run.info.get("wall_s")
    return sum(sum(row.samples_ns) for row in run.rows) * 1e-9 / wall if wall else None


def _case(task: Task, size: int) -> Case:
    return task.row(size, Status.OK).case
