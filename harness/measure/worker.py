"""One worker process: it imports one framework and measures cases as its parent tells it, turn by turn.

Started by `harness.runner.worker_process` as `python -m harness.measure.worker IN OUT`, with two pipes of their own,
so that what a strategy reads or prints is never taken for a command or an event. One JSON object per line:

    {"task": {...}, "batch_size": 16}     answered by {"event": "ready"}, once the case is warm, or its row
    {"turn_s": 0.05}                      answered by {"event": "turn", "call_ns": ..., "calls": ..., "timed_s": ...}
    {"turn_s": null}                      ends the turns of a case: answered by {"event": "row", "row": {...}}

The first thing it says, after its framework's import, is {"event": "started"}. A case that fails at any point answers
with its row; `spoiled` beside it says that every later case would fail in this process, whatever it does. The worker
ends when its commands end.
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
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from harness import frameworks
from harness.analysis import predict
from harness.core import find_strategies, find_workloads, plugins
from harness.core import strategy as strategy_
from harness.core.framework import Framework, framework
from harness.core.records import Mark, MarkKind, Measurement, SkipCause, Status
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.frameworks import instrumentation
from harness.measure.case import least_seconds, measure, trial
from harness.measure.subject import Evaluations, Instruments, Subject
from harness.measure.timer import Turn
from harness.system import gpu
from harness.system.interference import calibration_s

GPU_STATE = ("clock_mhz", "temperature_c", "power_w", "throttled", "others", "free_bytes")
"""What changes of a GPU, and is stored with every row."""

Emit = Callable[[dict[str, Any]], None]

POISONED = re.compile(
    r"(CUDA|HIP) error|CUDA_ERROR_(ILLEGAL|LAUNCH|ASSERT|MISALIGNED|HARDWARE|ECC)|device-side assert|"
    r"(cuda|hip)Error(Illegal|Launch|Assert|Misaligned)|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"
)
"""What is said of an error after which a process can use a GPU no more: CUDA runtime API, cudaErrorLaunchFailure."""


class Worker:
    """Measures cases of one framework on one device, in this process.

    Raises:
        ImportError: if the framework is not installed.
        DeviceAbsent: if it does not see the device.
    """

    def __init__(self, task: Task, commands: Iterator[Any], emit: Emit) -> None:
        self.commands = commands
        self.emit = emit
        self.measured: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        forks = instrumentation.forks()
        started = time.perf_counter()
        self.adapter = frameworks.load(task.framework, task.threads, task.device)
        self.import_s = time.perf_counter() - started
        gc.freeze()  # a framework is a million objects that stay: looking through them takes longer than a case's calls
        self.device = self.adapter.device(task.device)
        self.pulse_s: float | None = None
        self.wait_s = empty_wait_s(self.adapter, self.device) if task.device != "cpu" else None
        self.instruments = Instruments(self.adapter.count_compilations(), forks, Evaluations())

    def case(self, task: Task, batch_size: int) -> Measurement:
        """Measure one case, whatever happens to it."""
        on_gpu = task.device == "gpu"
        before = gpu.card() if on_gpu else None
        started, clock = datetime.now(UTC), time.perf_counter()
        self.pulse_s = None
        row = self._row(task, batch_size)
        if on_gpu:
            row = with_gpu(row, before, gpu.card())
            self._release_memory()  # others need it, too
        row = replace(
            row,
            import_s=self.import_s,
            wait_s=self.wait_s,
            case_s=time.perf_counter() - clock,
            pulse_s=self.pulse_s,
            started=started.isoformat(timespec="seconds"),
        )
        if (least := least_seconds(row)) is not None:
            self.measured[task.strategy, task.workload].append((batch_size, least))
        return row

    def _next_turn(self, turn: Turn | None) -> float | None:
        """Tell what the last turn showed, and wait until it is this worker's turn again."""
        self.emit({"event": "ready"} if turn is None else {"event": "turn", **asdict(turn)})
        seconds: float | None = next(self.commands, {"turn_s": None})["turn_s"]
        if turn is None or seconds is None:  # before the first turn and after the last: nobody else is at work now
            self.pulse_s = max(self.pulse_s or 0.0, calibration_s())
        return seconds

    def _row(self, task: Task, batch_size: int) -> Measurement:
        try:
            workload = find_workloads.find(task.source or task.workload)
            strategy = _strategy(task)
            subject = Subject(task, strategy, workload, self.adapter, self.device, self.instruments)
            # Where nothing is checked the case has been tried before, or an answer is due soon: trials would cost more.
            if task.checks and (expected := self._expected_s(subject, batch_size)) > task.limit_s:
                reason = f"{expected:.0f} s expected from smaller batches, the limit is {task.limit_s:g} s"
                return task.row(batch_size, Status.SKIPPED, reason, skip_cause=SkipCause.LIMIT)
            return measure(subject, batch_size, self._next_turn)
        except Exception as error:
            status, reason = classify(error, framework(task.framework))
            if status is Status.OUT_OF_MEMORY:
                self._release_memory()
            return task.row(batch_size, status, reason, detail="" if status is Status.UNSUPPORTED else _last_frames())

    def _release_memory(self) -> None:
        """Give back what a case that has ended still holds."""
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
    strategy = find_strategies.load(task.strategy, task.plugin)
    if task.device not in strategy.devices:
        raise strategy_.Unsupported(f"{task.strategy} runs on {' and '.join(strategy.devices)} only")
    for package in strategy.requires:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"{package} is not installed; {task.strategy} needs it", name=package)
    return strategy


def classify(error: BaseException, known: Framework) -> tuple[Status, str]:
    """The status that an exception of a strategy means, and the reason in one line."""
    text = _told(str(error))
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, strategy_.Unsupported):
        return Status.UNSUPPORTED, text or "no reason given"
    if _says(known.data_dependent, named):
        return Status.UNSUPPORTED, f"data-dependent control flow: {text}"
    if _says(known.untransformable, named):
        return Status.UNSUPPORTED, named
    if isinstance(error, ModuleNotFoundError | plugins.PluginError):
        return Status.UNAVAILABLE, text
    if isinstance(error, MemoryError) or _says(known.out_of_memory, f"{named} {error}"[:5000]):
        return Status.OUT_OF_MEMORY, text if isinstance(error, MemoryError) and text else named
    return Status.ERROR, named


def _told(message: str) -> str:
    """The line of a message that says what is wrong: the first, in TensorFlow's that of the error in user code."""
    lines = [line.strip() for line in message.strip().splitlines()]
    if lines[:1] == ["in user code:"]:
        lines = [line for line in lines if re.match(r"\w+: ", line) and not line.startswith("File ")] or lines[-1:]
    return lines[0][:500] if lines else ""


def _says(patterns: Iterable[str], text: str) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def serve(commands: Iterator[Any], emit: Emit) -> None:
    """Measure what is commanded. A missing framework or device becomes the status of every case.

    The first command is the task whose framework is to be imported; its case comes as a command of its own.
    """
    first = Task.from_json(next(commands)["task"])
    if first.cpus is not None:
        os.sched_setaffinity(0, first.cpus)  # before the frameworks count the cores
    worker: Worker | None = None
    reason = ""
    try:
        worker = Worker(first, commands, emit)
    except (ImportError, frameworks.DeviceAbsent) as error:
        reason = str(error)
    emit({"event": "started"})
    for command in commands:
        task, size = Task.from_json(command["task"]), command["batch_size"]
        row = worker.case(task, size) if worker else task.row(size, Status.UNAVAILABLE, reason)
        spoiled = row.status is Status.ERROR and POISONED.search(f"{row.reason} {row.detail}") is not None
        emit({"event": "row", "row": row.as_json(), "spoiled": spoiled})


def main() -> None:
    """Read commands from one file descriptor given as an argument, write events to the other."""
    die_with_parent()
    incoming, outgoing = map(int, sys.argv[1:])
    for descriptor in (incoming, outgoing):
        os.set_inheritable(descriptor, False)
    with os.fdopen(incoming, encoding="utf-8") as lines, os.fdopen(outgoing, "w", encoding="utf-8") as channel:

        def emit(event: dict[str, Any]) -> None:
            channel.write(json.dumps(event, allow_nan=False) + "\n")
            channel.flush()

        serve(map(json.loads, lines), emit)
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
