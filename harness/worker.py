"""One worker process: it imports one framework, measures one task, and tells its parent row by row.

Started by `harness.process` as `python -m harness.worker FD` with the task on standard input. It writes one JSON
object per line to file descriptor FD: `{"event": "begin", "batch_size": B}` before a case and
`{"event": "row", "row": {...}}` after it. What a strategy prints goes elsewhere and cannot be taken for a row.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import frameworks, plan, strategies, workloads
from harness.measure import Stopwatch, Subject, least_seconds, measure, trial
from harness.records import Measurement, Status
from harness.task import Task

Emit = Callable[[dict[str, Any]], None]


class Worker:
    """A pytest plugin that carries the task: it parametrises `harness.stopwatch` and measures every case."""

    def __init__(self, task: Task, emit: Emit) -> None:
        self.task = task
        self.emit = emit
        started = time.perf_counter()
        self.adapter = frameworks.load(task.framework, task.threads)
        self.import_s = time.perf_counter() - started
        self.subject = Subject(
            task,
            strategies.load(task.strategy, task.plugin),
            workloads.find(task.workload),
            self.adapter,
            self.adapter.device(task.device),
        )
        self.history: list[tuple[int, float]] = []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One item per batch size, ascending."""
        metafunc.parametrize("batch_size", self.task.batch_sizes)

    @pytest.fixture
    def worker(self) -> Worker:
        """This plugin, for `harness.stopwatch`."""
        return self

    def case(self, batch_size: int, stopwatch: Stopwatch) -> None:
        """Measure one case and send its row."""
        self.emit({"event": "begin", "batch_size": batch_size})
        started, clock = datetime.now(UTC), time.perf_counter()
        row = self._row(batch_size, stopwatch)
        seconds = time.perf_counter() - clock
        row = replace(row, import_s=self.import_s, case_s=seconds, started=started.isoformat(timespec="seconds"))
        if (least := least_seconds(row)) is not None:
            self.history.append((batch_size, least))
        self.emit({"event": "row", "row": row.as_json()})

    def _row(self, batch_size: int, stopwatch: Stopwatch) -> Measurement:
        task = self.task
        try:
            if (expected := self._expected_s(batch_size)) > task.limit_s:
                reason = f"{expected:.0f} s expected from smaller batches, the limit is {task.limit_s:g} s"
                return task.row(batch_size, Status.SKIPPED, reason)
            return measure(self.subject, batch_size, stopwatch)
        except strategies.Unsupported as error:
            return task.row(batch_size, Status.UNSUPPORTED, str(error))
        except MemoryError as error:
            return task.row(batch_size, Status.OUT_OF_MEMORY, str(error) or "MemoryError", detail=_last_frames())
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            return task.row(batch_size, Status.ERROR, f"{type(error).__name__}: {text}", detail=_last_frames())

    def _expected_s(self, batch_size: int) -> float:
        """What the case will take at least, judged by smaller ones; 0 if they raise no doubt.

        After a large step in the batch size, smaller trials come first where a cost that grows with B squared
        would pass the limit: giving up after them costs less than being stopped.
        """
        expected = plan.extrapolate(self.history, batch_size)
        while expected <= self.task.limit_s and (size := self._trial_size(batch_size)) is not None:
            self.history.append((size, trial(self.subject, size)))
            expected = plan.extrapolate(self.history, batch_size)
        return expected

    def _trial_size(self, batch_size: int) -> int | None:
        size, seconds = max(self.history, default=(1, 1.0))
        step = batch_size / size
        return size * 4 if step > 4 and seconds * step**2 > self.task.limit_s else None


def run(task: Task, emit: Emit) -> None:
    """Measure a task. A missing framework or device becomes the status of all its cases."""
    try:
        worker = Worker(task, emit)
    except ImportError as error:
        _emit_all(task, emit, Status.UNAVAILABLE, f"{error}")
        return
    except frameworks.DeviceAbsent as error:
        _emit_all(task, emit, Status.UNAVAILABLE, str(error))
        return
    with tempfile.TemporaryDirectory() as scratch:
        pytest.main(
            [
                str(Path(__file__).with_name("stopwatch.py")),
                *("-c", os.devnull, "--rootdir", scratch, "-q", "-s", "--assert=plain"),
                *("-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin"),
                *("--benchmark-disable-gc", "--benchmark-warmup=off", "--benchmark-storage", f"file://{scratch}"),
            ],
            plugins=[worker],
        )


def main() -> None:
    """Read the task from standard input, write events to the file descriptor given as the only argument."""
    task = Task.from_json(sys.stdin.read())
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as channel:

        def emit(event: dict[str, Any]) -> None:
            channel.write(json.dumps(event, allow_nan=False) + "\n")
            channel.flush()

        run(task, emit)
    # Frameworks leave threads behind that can hang or crash at interpreter exit; every row has been sent.
    sys.stdout.flush()
    os._exit(0)


def _emit_all(task: Task, emit: Emit, status: Status, reason: str) -> None:
    for batch_size in task.batch_sizes:
        emit({"event": "row", "row": task.row(batch_size, status, reason).as_json()})


def _last_frames() -> str:
    return "".join(traceback.format_exc(limit=-4)).strip()[-2000:]


if __name__ == "__main__":
    main()
