"""One worker process: it imports one framework, measures one job, and tells its parent row by row.

Started by `harness.runner.workers` as `python -m harness.measure.worker FD` with the job on standard input. It
writes one JSON object per line to file descriptor FD: `{"event": "begin", ...}` before a case,
`{"event": "row", "row": {...}}` after it, `{"event": "end"}` at the end. What a strategy prints goes elsewhere and
cannot be taken for a row.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import statistics
import sys
import sysconfig
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import frameworks
from harness.analysis import predict
from harness.core import find_strategies, find_workloads, plugins
from harness.core import strategy as strategy_
from harness.core.framework import Framework, framework
from harness.core.records import Job, Mark, MarkKind, Measurement, SkipCause, Status, Task, job_from_json
from harness.core.strategy import Strategy
from harness.frameworks import instrumentation
from harness.measure.case import Evaluations, Instruments, Subject, least_seconds, measure, trial
from harness.measure.timer import Stopwatch
from harness.system import gpu
from harness.system.interference import calibration_s

GPU_STATE = ("clock_mhz", "temperature_c", "power_w", "throttled", "processes", "free_bytes")
"""What changes of a GPU, and is stored with every row."""

Emit = Callable[[dict[str, Any]], None]

POISONED = re.compile(
    r"(CUDA|HIP) error|CUDA_ERROR_(ILLEGAL|LAUNCH|ASSERT|MISALIGNED|HARDWARE|ECC)|device-side assert|"
    r"(cuda|hip)Error(Illegal|Launch|Assert|Misaligned)|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"
)
"""What is said of an error after which a process can use a GPU no more: CUDA runtime API, cudaErrorLaunchFailure."""


class Worker:
    """A pytest plugin that carries the job: it parametrises `harness.measure.pytest_item` and measures every case."""

    def __init__(self, job: Job, emit: Emit) -> None:
        self.job = job
        self.emit = emit
        self.measured: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        task = job[0]
        forks = instrumentation.forks()
        started = time.perf_counter()
        self.adapter = frameworks.load(task.framework, task.threads, task.device)
        self.import_s = time.perf_counter() - started
        self.device = self.adapter.device(task.device)
        self.wait_s = empty_wait_s(self.adapter, self.device) if task.device != "cpu" else None
        self.instruments = Instruments(self.adapter.count_compilations(), forks, Evaluations())

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One item per case, workload after workload, batch sizes ascending."""
        cases = [(task, size) for task in self.job for size in task.batch_sizes]
        metafunc.parametrize(("task", "batch_size"), cases)

    @pytest.fixture
    def worker(self) -> Worker:
        """This plugin, for `harness.measure.pytest_item`."""
        return self

    def case(self, task: Task, batch_size: int, stopwatch: Stopwatch) -> None:
        """Measure one case and send its row."""
        self.emit({"event": "begin", "workload": task.workload, "batch_size": batch_size})
        on_gpu = task.device == "gpu"
        before = gpu.card() if on_gpu else None
        started, clock, pulse = datetime.now(UTC), time.perf_counter(), calibration_s()
        row = self._row(task, batch_size, stopwatch)
        if on_gpu:
            row = with_gpu(row, before, gpu.card())
        row = replace(
            row,
            import_s=self.import_s,
            wait_s=self.wait_s,
            case_s=time.perf_counter() - clock,
            pulse_s=max(pulse, calibration_s()),
            started=started.isoformat(timespec="seconds"),
        )
        if (least := least_seconds(row)) is not None:
            self.measured[task.strategy, task.workload].append((batch_size, least))
        self.emit({"event": "row", "row": row.as_json()})
        if row.status is Status.ERROR and POISONED.search(f"{row.reason} {row.detail}"):
            self.emit({"event": "renew"})
            os._exit(0)  # every later case would fail in this process, whatever it does

    def _row(self, task: Task, batch_size: int, stopwatch: Stopwatch) -> Measurement:
        try:
            workload = find_workloads.find(task.source or task.workload)
            strategy = _strategy(task)
            subject = Subject(task, strategy, workload, self.adapter, self.device, self.instruments)
            if (expected := self._expected_s(subject, batch_size)) > task.limit_s:
                reason = f"{expected:.0f} s expected from smaller batches, the limit is {task.limit_s:g} s"
                return task.row(batch_size, Status.SKIPPED, reason, skip_cause=SkipCause.LIMIT)
            return measure(subject, batch_size, stopwatch)
        except Exception as error:
            status, reason = classify(error, framework(task.framework))
            if status is Status.OUT_OF_MEMORY:
                self._release_memory()
            return task.row(batch_size, status, reason, detail="" if status is Status.UNSUPPORTED else _last_frames())

    def _release_memory(self) -> None:
        """Give back what a case that ran out of memory still holds."""
        gc.collect()
        self.adapter.release_memory()

    def _expected_s(self, subject: Subject, batch_size: int) -> float:
        """What the case will take at least, judged by smaller ones; 0 if they raise no doubt.

        After a large step in the batch size, smaller trials come first where a cost that grows with B squared
        would pass the limit: giving up after them costs less than being stopped.
        """
        task = subject.task
        history, limit_s = self.measured[task.strategy, task.workload], task.limit_s
        while (size := predict.trial_size(history, batch_size, limit_s)) is not None:
            history.append((size, trial(subject, size)))
        return predict.extrapolate(history, batch_size)


def empty_wait_s(adapter: frameworks.Adapter, device: frameworks.Device) -> float:
    """Seconds of waiting for a device on which nothing is pending, the median of many; it is warm after them."""
    placed = adapter.place({"nothing": np.zeros(1, np.float32)}, device)
    times = []
    for _ in range(100):
        started = time.perf_counter()
        adapter.wait(placed)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def with_gpu(row: Measurement, before: gpu.Card | None, after: gpu.Card | None) -> Measurement:
    """A row with what its GPU told before and after the case, and without what is about the host only."""
    marks = (Mark(MarkKind.UNSTABLE, text) for text in gpu.disturbances(before, after))
    state = after.as_json() if after else {}
    return replace(
        row,
        marks=(*row.marks, *marks),
        gpu_state={name: state[name] for name in GPU_STATE if name in state},
        minor_faults=None,
        cores_busy=None,
        system_share=None,
    )


def _strategy(task: Task) -> Strategy:
    """The strategy of a task, if all that it needs is installed."""
    strategy = find_strategies.load(task.loads or task.strategy, task.plugin)
    if task.device not in strategy.devices:
        raise strategy_.Unsupported(f"{task.strategy} runs on {' and '.join(strategy.devices)} only")
    for package in strategy.requires:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"{package} is not installed; {task.strategy} needs it", name=package)
    return strategy


def classify(error: BaseException, known: Framework) -> tuple[Status, str]:
    """The status that an exception of a strategy means, and the reason in one line."""
    text = str(error).strip().partition("\n")[0][:500]
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, strategy_.Unsupported):
        return Status.UNSUPPORTED, text or "no reason given"
    if _says(known.data_dependent, named):
        return Status.UNSUPPORTED, f"data-dependent control flow: {text}"
    if isinstance(error, ModuleNotFoundError | plugins.PluginError):
        return Status.UNAVAILABLE, text
    if isinstance(error, MemoryError) or _says(known.out_of_memory, f"{named} {error}"[:5000]):
        return Status.OUT_OF_MEMORY, text if isinstance(error, MemoryError) and text else named
    return Status.ERROR, named


def _says(patterns: Iterable[str], text: str) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def run(job: Job, emit: Emit) -> None:
    """Measure a job. A missing framework, package or device becomes the status of all its cases."""
    try:
        worker = Worker(job, emit)
    except (ImportError, frameworks.DeviceAbsent) as error:
        for task in job:
            for batch_size in task.batch_sizes:
                emit({"event": "row", "row": task.row(batch_size, Status.UNAVAILABLE, str(error)).as_json()})
        return
    with tempfile.TemporaryDirectory() as scratch:
        pytest.main(
            [
                str(Path(__file__).with_name("pytest_item.py")),
                *("-c", os.devnull, "--rootdir", scratch, "-q", "-s", "--assert=plain"),
                *("-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "pytest_benchmark.plugin"),
                *("--benchmark-disable-gc", "--benchmark-warmup=off", "--benchmark-storage", f"file://{scratch}"),
            ],
            plugins=[worker],
        )


def main() -> None:
    """Read the job from standard input, write events to the file descriptor given as the only argument."""
    die_with_parent()
    job = job_from_json(sys.stdin.read())
    if job[0].cpus is not None:
        os.sched_setaffinity(0, job[0].cpus)  # before the frameworks count the cores
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    with os.fdopen(descriptor, "w", encoding="utf-8") as channel:

        def emit(event: dict[str, Any]) -> None:
            channel.write(json.dumps(event, allow_nan=False) + "\n")
            channel.flush()

        run(job, emit)
        emit({"event": "end"})
    # Frameworks leave threads behind that can hang or crash at interpreter exit; every row has been sent.
    os._exit(0)


def die_with_parent() -> None:
    """Have the kernel kill this process when the sweep dies, however it dies (Linux; elsewhere nothing happens)."""
    with suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _last_frames() -> str:
    """The end of the traceback, with paths relative to the project, since rows travel to other people."""
    text = traceback.format_exc(limit=-4).strip()
    for folder in (sysconfig.get_path("purelib"), str(Path(__file__).resolve().parents[2])):
        text = text.replace(folder + os.sep, "")
    return text[-3000:]


if __name__ == "__main__":
    main()
