"""Worker processes: spawned one after another, listened to, and stopped when they take too long."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator
from typing import IO, Any

import psutil

from harness.core.records import Job, Measurement, SkipCause, Status, Task, job_to_json
from harness.frameworks.child_process import START_LIMIT_S, command, environment

TAG = "PERGRAD_WORKER"
"""Environment variable by which a worker's descendants are known."""


class Overdue(Exception):
    """A worker has been silent for longer than it may."""


class Deadline:
    """Until when the next event of a worker has to come."""

    def __init__(self, limit_s: float) -> None:
        self.restart(limit_s)

    def restart(self, limit_s: float) -> None:
        """The next event may take `limit_s` from now on."""
        self._started, self._limit_s = time.monotonic(), limit_s

    def past_s(self) -> float:
        """Seconds since the last event."""
        return time.monotonic() - self._started

    def left_s(self) -> float:
        """Seconds left for the next event, 0 when there are none."""
        return max(0.0, self._limit_s - self.past_s())


def measure(job: Job) -> Iterator[Measurement]:
    """Measure all cases of a job; yields one row per case, whatever happens to the worker.

    A worker that dies costs the case it was at, and a new one goes on with the others. A case that takes too long
    also costs the larger batch sizes of its task, which would take longer still.
    """
    while job:
        for row in _one_worker(job):
            job = _without(job, row, row.batch_size)
            yield row
            if row.status is Status.TIMEOUT:
                for task in job:
                    for size in task.batch_sizes if _about(task, row) else ():
                        reason = f"batch size {row.batch_size} already took longer than the limit of {task.limit_s:g} s"
                        yield task.row(size, Status.SKIPPED, reason, skip_cause=SkipCause.LIMIT)
                job = _without(job, row, *(size for task in job for size in task.batch_sizes))


def _without(job: Job, row: Measurement, *sizes: int) -> Job:
    """The job without these batch sizes of the row's task, and without tasks that have none left."""
    left = (task.only(set(task.batch_sizes) - set(sizes)) if _about(task, row) else task for task in job)
    return tuple(task for task in left if task.batch_sizes)


def _about(task: Task, row: Measurement) -> bool:
    return (task.strategy, task.workload) == (row.strategy, row.workload)


def _one_worker(job: Job) -> Iterator[Measurement]:
    """Rows until the worker ends. The last one may tell of its end; there is at least one."""
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        tag = uuid.uuid4().hex
        process, channel = _spawn(job, stderr, tag)
        waiting = [(task, size) for task in job for size in task.batch_sizes]
        running = False
        deadline = Deadline(START_LIMIT_S)
        code: int | None = None
        try:
            for event in listen(process, channel, deadline):
                if event["event"] == "begin":
                    running = True
                    deadline.restart(waiting[0][0].limit_s)
                elif event["event"] == "row":
                    running = False
                    row = Measurement.from_json(event["row"])
                    waiting.pop(0)
                    yield row
                    deadline.restart(START_LIMIT_S)
                elif event["event"] == "renew":
                    return
                else:
                    break
            code = process.poll()
        except Overdue:
            kill(process, tag)
            task, size = waiting[0]
            seconds = deadline.past_s()
            what = "" if running else "before the case began: importing or starting took too long, "
            reason = f"{what}stopped after {seconds:.0f} s"
            yield task.row(size, Status.TIMEOUT, reason, detail=_tail(stderr), case_s=seconds)
            return
        finally:
            kill(process, tag)
            os.close(channel)
        if waiting:
            yield _row_of_a_dead_worker(*waiting[0], code, _tail(stderr))


def listen(process: subprocess.Popen[str], channel: int, deadline: Deadline) -> Generator[dict[str, Any], None, None]:
    """The events a worker writes to `channel`, until it closes it or dies.

    A process that the worker forked may hold the channel open after the worker's death; that is noticed too.

    Raises:
        Overdue: if the next event does not come in time.
    """
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            dead = process.poll() is not None
            if not selector.select(0 if dead else min(0.5, deadline.left_s())):
                if dead:
                    return
                if not deadline.left_s():
                    raise Overdue
                continue
            chunk = os.read(channel, 1 << 16)
            if not chunk:
                # The worker closes the channel when it dies; wait until its exit status is there.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


def kill(process: subprocess.Popen[str], tag: str) -> None:
    """Kill a worker and everything it started, wherever that went, and wait until the worker is gone.

    What a worker starts inherits its environment, and so the tag that tells whose it is, even after it has left
    the worker's process group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if candidate.environ().get(TAG) == tag:
                candidate.kill()
                candidate.wait(5)


def _spawn(job: Job, stderr: IO[str], tag: str) -> tuple[subprocess.Popen[str], int]:
    """Start a worker in a session of its own; returns it and the end of the pipe to listen to."""
    task = job[0]
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        command(task.framework, "harness.measure.worker", str(write_end)),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=(write_end,),
        env={
            **environment(
                task.framework, task.device, task.threads, task.dtype, task.allocator, task.gpu, task.environment
            ),
            TAG: tag,
        },
        start_new_session=True,
        text=True,
    )
    os.close(write_end)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(job_to_json(job))
        process.stdin.close()
    return process, read_end


def _row_of_a_dead_worker(task: Task, batch_size: int, code: int | None, stderr: str) -> Measurement:
    """The row of the case a worker died at; `code` is its exit status, None if it closed the channel and lived on."""
    if code is None:
        return task.row(batch_size, Status.CRASHED, "stopped reporting in the middle of a case", detail=stderr)
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
