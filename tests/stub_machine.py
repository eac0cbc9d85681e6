"""A machine with made-up times, in place of worker processes: what decides by times is tested without any clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from harness.core.records import Measurement, Status
from harness.core.task import Job


class Machine:
    """Stands in for worker processes: every strategy has a time, and every process errs by a factor of its own."""

    def __init__(self, microseconds: Mapping[str, float], spread: float = 0.0) -> None:
        self.microseconds = microseconds
        self.spread = spread
        self.rng = np.random.default_rng(0)
        self.jobs: list[list[str]] = []

    def measure(self, job: Job) -> Iterator[Measurement]:
        self.jobs.append([task.strategy for task in job])
        for task in job:
            typical = self.microseconds[task.strategy.partition("/")[2]]
            if typical < 0:
                yield task.row(task.batch_sizes[0], Status.DISAGREES, "wrong on purpose")
                continue
            of_process = typical * float(np.exp(self.rng.normal(0, self.spread)))
            samples = of_process * self.rng.uniform(0.99, 1.01, 50) * 1000
            yield task.row(
                task.batch_sizes[0],
                Status.OK,
                samples_ns=tuple(int(sample) for sample in samples),
                median_s=of_process * 1e-6,
                build_s=0.1,
                first_call_s=0.2,
                import_s=0.0,
                case_s=0.0,
            )
