"""Worker processes: spawned one after another, listened to, and stopped when they take too long."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import IO, Any

import psutil

from harness.records import Measurement, Status
from harness.task import Task

START_LIMIT_S = 120.0
"""What importing a framework may take."""


class Overdue(Exception):
    """A worker has been silent for longer than it may."""


def environment(framework: str, device: str, threads: int | None) -> dict[str, str]:
    """The environment of a worker, complete before anything is imported in it."""
    variables = dict(os.environ)
    variables |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1", "NVIDIA_TF32_OVERRIDE": "0"}
    if device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""
    if threads is not None:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        variables |= dict.fromkeys(names, str(threads))
    variables |= importlib.import_module(f"harness.frameworks.{framework}").ADAPTER.environment()
    return variables


def measure_task(task: Task) -> Iterator[Measurement]:
    """Measure all cases of a task; yields one row per case, whatever happens to the worker.

    A worker that dies costs the case it was at, and a new one goes on with the larger batch sizes. A case that
    takes too long ends the task: a larger batch would take longer still.
    """
    waiting = list(task.batch_sizes)
    while waiting:
        for row in _one_worker(task.only(waiting)):
            waiting.remove(row.batch_size)
            yield row
            if row.status is Status.TIMEOUT:
                for batch_size in waiting:
                    reason = f"batch size {row.batch_size} already took longer than the limit of {task.limit_s:g} s"
                    yield task.row(batch_size, Status.SKIPPED, reason)
                return


def _one_worker(task: Task) -> Iterator[Measurement]:
    """Rows until the worker ends. The last one may tell of its end; there is at least one."""
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        process, channel = _spawn("harness.worker", task, stderr)
        current = task.batch_sizes[0]
        done = 0
        started = time.monotonic()
        try:
            limit = START_LIMIT_S
            events = listen(channel, lambda: limit)
            for event in events:
                if event["event"] == "begin":
                    current, limit, started = event["batch_size"], task.limit_s, time.monotonic()
                else:
                    done += 1
                    limit = START_LIMIT_S
                    yield Measurement.from_json(event["row"])
            code = process.wait()
        except Overdue:
            kill(process)
            seconds = time.monotonic() - started
            yield task.row(
                current, Status.TIMEOUT, f"stopped after {seconds:.0f} s", detail=_tail(stderr), case_s=seconds
            )
            return
        finally:
            kill(process)
            os.close(channel)
        if done < len(task.batch_sizes):
            yield _post_mortem(task, task.batch_sizes[done], code, _tail(stderr))


def listen(channel: int, limit_s: Any) -> Generator[dict[str, Any], None, None]:
    """The events a worker writes to `channel`, until it closes it.

    Raises:
        Overdue: if the next event takes longer than `limit_s()` seconds.
    """
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            if not selector.select(limit_s()):
                raise Overdue
            chunk = os.read(channel, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a worker and everything it started, and wait until it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _spawn(module: str, task: Task, stderr: IO[str]) -> tuple[subprocess.Popen[str], int]:
    """Start a worker in a session of its own; returns it and the end of the pipe to listen to."""
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(write_end)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=(write_end,),
        env=environment(task.framework, task.device, task.threads),
        start_new_session=True,
        text=True,
    )
    os.close(write_end)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(task.to_json())
        process.stdin.close()
    return process, read_end


def _post_mortem(task: Task, batch_size: int, code: int, stderr: str) -> Measurement:
    """The row of the case a worker died at."""
    if code < 0:
        name = signal.Signals(-code).name
        if name == "SIGKILL":
            reason = "killed by SIGKILL from outside, as the kernel does when memory runs out"
            return task.row(batch_size, Status.OUT_OF_MEMORY, reason, detail=stderr)
        return task.row(batch_size, Status.CRASHED, f"killed by signal {-code} ({name})", detail=stderr)
    return task.row(batch_size, Status.CRASHED, f"ended with exit status {code} in the middle of a case", detail=stderr)


def _tail(file: IO[str], characters: int = 2000) -> str:
    file.seek(0)
    return file.read()[-characters:].strip()
