"""The stopwatch: one pytest-benchmark item per case, run by pytest inside a worker process.

This file is not part of the test suite. `harness.measure.worker` hands it to pytest together with itself as a plugin,
which parametrises `test_case` and provides the fixture `worker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from harness.core.records import Task
    from harness.measure.worker import Worker


def test_case(benchmark: BenchmarkFixture, worker: Worker, task: Task, batch_size: int) -> None:
    """Measure one case; whatever happens to it becomes a row, never a failed test."""
    worker.case(task, batch_size, benchmark)
