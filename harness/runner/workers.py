"""Cases measured by themselves, one after another, where there is nothing that they are compared with."""

from __future__ import annotations

import random
from collections.abc import Iterator

from harness.core.records import Measurement, SkipCause, Status
from harness.core.task import Job, Task
from harness.runner import heat
from harness.runner.case_run import CaseRun
from harness.runner.worker_process import Worker


def measure(job: Job) -> Iterator[Measurement]:
    """Measure all cases of a job by themselves; yields one row per case, whatever happens to the worker.

    A worker that dies costs the case it was at, and a new one goes on with the others. A case that takes too long
    also costs the larger batch sizes of its task, which would take longer still.
    """
    worker: Worker | None = None
    too_slow: dict[tuple[str, str], int] = {}
    try:
        for task in job:
            for size in task.batch_sizes:
                if (slow := too_slow.get((task.strategy, task.workload))) is not None:
                    yield beyond_the_limit(task, size, slow)
                    continue
                if worker is None or worker.dead:
                    worker = Worker(task)
                (row,) = heat.run([CaseRun(worker, task, size)], baseline="", precision=0.0, rng=random.Random())
                if row.status is Status.TIMEOUT:
                    too_slow[task.strategy, task.workload] = size
                yield row
    finally:
        if worker is not None:
            worker.kill()


def beyond_the_limit(task: Task, batch_size: int, slow: int) -> Measurement:
    """The row of a case that was not begun because one at the batch size `slow` took too long."""
    reason = f"batch size {slow} already took longer than the limit of {task.limit_s:g} s"
    return task.row(batch_size, Status.SKIPPED, reason, skip_cause=SkipCause.LIMIT)
