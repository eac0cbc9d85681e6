"""Runs a plan: heat after heat, every row on disk before the next heat begins."""

from __future__ import annotations

import contextlib
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from harness.analysis import predict
from harness.core import find_workloads, store
from harness.core.domain import usable_cores
from harness.core.records import Case, Mark, MarkKind, Measurement, SkipCause, Status, Task
from harness.core.strategy import Strategy
from harness.frameworks import child_process
from harness.frameworks.base import no_device
from harness.reference import build
from harness.reference.workload_info import workload_info
from harness.runner import heat as heats
from harness.runner import plan
from harness.runner.case_run import CaseRun
from harness.runner.plan import Group, Plan
from harness.runner.worker_process import Overdue, Worker
from harness.system import gpu, roofline
from harness.system.detect import Seen
from harness.system.info import available_bytes
from harness.system.interference import UsualTime
from harness.system.roofline import Roofline

OnRow = Callable[[Measurement], None]

SHORTEST_HEAT_S = 5.0
"""With less of the budget left than this, no further heat is begun."""

GPU_WORKER_BYTES = 3 << 29
"""Memory of a GPU that a worker takes: CUDA's context, the libraries' workspaces, and the results of a case."""

WORKER_BYTES = 750 << 20
"""What a worker takes that waits for its turn: its framework, its parameters and batches, what it keeps."""


@dataclass
class Sweep:
    """A plan on its way into a run folder.

    Attributes:
        seen: framework -> what the probe saw of it.
        on_row: called after a row has reached the disk.
        retry: whether the rows of cases that failed are dropped first, so that they are measured again.
    """

    wanted: Plan
    chosen: Sequence[Strategy]
    seen: Mapping[str, Seen]
    folder: Path
    on_row: OnRow
    retry: bool = False
    ceilings: Mapping[str, Roofline | None] = field(default_factory=dict)

    def run(self) -> None:
        """Measure whatever the folder does not hold yet.

        Whatever ends the sweep, Ctrl-C and a full disk included, leaves a run folder that can be read.
        """
        stored = store.repair(self.folder, lambda row: not (self.retry and row.status.is_failure))
        info = dict(stored.info)
        self.ceilings = {name: roofline.from_json(values) for name, values in info.get("ceilings", {}).items()}
        self._usual = UsualTime()
        self._facts = {
            name: workload_info(find_workloads.find(self.wanted.source(name)), self.wanted.seed)
            for name in self.wanted.workloads
        }
        self._done: dict[tuple[Case, int], Status] = {}
        self._heat = max((row.heat or 0 for row in stored.rows), default=0)
        self._without_reference: dict[tuple[str, int], tuple[Status, str]] = {}
        self._dead: dict[Case, Measurement] = {}
        for row in stored.rows:
            self._learn(row)
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="pergrad-") as scratch:
                references = self._write_references(Path(scratch))
                for group in plan.groups(self.wanted, self.chosen, references, most_workers(self.wanted)):
                    self._measure(group, started)
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
        remembered with the reason, for that batch size.
        """
        quantities = sorted({strategy.quantity for strategy in self.chosen})
        references: dict[str, dict[int, str]] = {}
        for name in self.wanted.workloads:
            row_bytes = self._facts[name].gradient_bytes(self.wanted.dtype)
            paths = {
                size: folder / f"{name}-{size}.npz"
                for size in sorted(self.wanted.batch_sizes)
                if quantities != ["gradients"] or not predict.too_large(row_bytes, size)
            }
            source, seed, dtype = self.wanted.source(name), self.wanted.seed, self.wanted.dtype
            without = build.write_or_say_why_not(paths, source, seed, dtype, quantities)
            self._without_reference |= {(name, size): why_not for size, why_not in without.items()}
            references[name] = {size: str(path) for size, path in paths.items() if path.exists()}
        return references

    def _measure(self, group: Group, started: float) -> None:
        """Measure one group, without the cases that are done, hopeless, or beyond the budget."""
        self._heat += 1
        with Workers() as workers:
            for number, tasks in enumerate(group.heats):
                promising = [task for task in map(self._promising, tasks) if task.batch_sizes]
                left_s = math.inf if self.wanted.budget_s is None else self.wanted.budget_s - time.monotonic() + started
                if left_s < SHORTEST_HEAT_S:
                    reason = f"left out: the budget of {self.wanted.budget_s:g} s was used up"
                    for task in promising:
                        self._refuse(task, task.batch_sizes, Status.SKIPPED, reason, SkipCause.BUDGET)
                elif promising:
                    heat = [*promising, *self._baseline_again(tasks, promising)]
                    cases = workers.cases([replace(task, limit_s=min(task.limit_s, left_s)) for task in heat])
                    rng = random.Random(f"{self.wanted.seed} {group.pass_number} {number}")
                    for row in heats.run(cases, self.wanted.baseline, self.wanted.precision, rng):
                        if (row.case, row.pass_number) not in self._done:
                            self._keep(replace(self._judge(row), heat=self._heat))

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
        known = self._facts[task.workload]
        if task.framework not in known.frameworks:
            reason = f"workload {task.workload} is written for {', '.join(known.frameworks)} only"
            self._refuse(task, sizes, Status.UNSUPPORTED, reason)
            return task.only([])
        if reason := absent(task, self.seen[task.framework]):
            self._refuse(task, sizes, Status.UNAVAILABLE, reason)
            return task.only([])
        for size in sizes:
            if why_not := self._without_reference.get((task.workload, size)):
                self._refuse(task, [size], *why_not)
        sizes = [size for size in sizes if (task.workload, size) not in self._without_reference]
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


class Workers:
    """One worker per strategy, which stands ready as long as its group is measured."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.kill()

    def cases(self, tasks: Sequence[Task]) -> list[CaseRun]:
        """The case of each task in the worker of its strategy.

        As many frameworks are imported at the same time as there are cores.
        """
        starting: list[Worker] = []
        for task in tasks:
            if task.strategy not in self._workers or self._workers[task.strategy].dead:
                self._workers[task.strategy] = Worker(task)
                starting.append(self._workers[task.strategy])
            if len(starting) >= len(usable_cores()):
                _wait_for(starting)
        _wait_for(starting)
        return [CaseRun(self._workers[task.strategy], task, task.batch_sizes[0]) for task in tasks]


def _wait_for(starting: list[Worker]) -> None:
    """Until all have started; who takes too long is asked again, and stopped, when its case begins."""
    for worker in starting:
        with contextlib.suppress(Overdue):
            worker.wait_until_started()
    starting.clear()


def most_workers(wanted: Plan) -> int:
    """How many workers may stand ready at the same time: what half the free memory holds, the GPU's too."""
    count = available_bytes() // 2 // WORKER_BYTES
    if "gpu" in wanted.devices:
        card = gpu.card(child_process.visible("gpu", wanted.gpu, os.environ))
        if card and card.free_bytes is not None:
            count = min(count, card.free_bytes // 2 // GPU_WORKER_BYTES)
    return max(2, count)


def steady_share(run: store.Run) -> float | None:
    """The share of a run's wall time that was spent inside steady-state calls."""
    wall = run.info.get("wall_s")
    timed = sum(sum(row.samples_ns) * 1e-9 if row.timed_s is None else row.timed_s for row in run.rows)
    return timed / wall if wall else None


def _case(task: Task, size: int) -> Case:
    return task.row(size, Status.OK).case
