"""A worker process: spawned, told what to measure, listened to, and killed with all that it started."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import psutil

from harness.core.task import Task
from harness.frameworks.child_process import START_LIMIT_S, command, environment
from harness.system import gpu

TAG = gpu.WORKER
"""Environment variable by which a worker's descendants are known."""


class Overdue(Exception):
    """A worker has been silent for longer than it may."""


MOST_BYTES = 1 << 20
"""What is kept of a worker's stderr: one that prints at every call would fill the disk."""


class Log:
    """A temporary file that processes write to, and of which the end is kept."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by its owner
        # Every write goes to the end, also after the file was cut.
        fcntl.fcntl(self.file, fcntl.F_SETFL, fcntl.fcntl(self.file, fcntl.F_GETFL) | os.O_APPEND)

    def size(self) -> int:
        """Bytes it holds."""
        return os.fstat(self.file.fileno()).st_size

    def end(self) -> bytes:
        """The last 2,000 bytes."""
        self.file.seek(max(0, self.size() - 2000))
        return self.file.read(2000)

    def cut(self) -> None:
        """Keep the end only, if there is too much."""
        if self.size() > MOST_BYTES:
            end = self.end()
            self.file.truncate(0)
            self.file.write(end)


class Worker:
    """A worker process: it imports one framework, and is told case after case what to measure.

    Attributes:
        dead: whether it was killed, or died by itself.
    """

    def __init__(self, task: Task) -> None:
        """Spawn it and have it import the framework of `task`, whose other cases it may measure too."""
        self._stderr = Log()
        self._tag = uuid.uuid4().hex
        self._pending = b""
        self._started = False
        self.dead = False
        self._closing = threading.Lock()
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()
        self._process = subprocess.Popen(
            command(task.framework, "harness.measure.worker", str(commands), str(events)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr.file,
            pass_fds=(commands, events),
            env={
                **environment(
                    task.framework, task.device, task.threads, task.dtype, task.allocator, task.gpu, task.environment
                ),
                TAG: self._tag,
            },
            start_new_session=True,
        )
        os.close(commands)
        os.close(events)
        self.tell({"task": task.as_json()})

    def tell(self, what: Mapping[str, Any]) -> None:
        """Send a command; a worker that has died is noticed when it is listened to."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._commands, (json.dumps(what) + "\n").encode())

    def wait_until_started(self) -> None:
        """Wait until it has imported its framework.

        Raises:
            Overdue: if that takes longer than `START_LIMIT_S`.
        """
        if not self._started:
            self._started = self.event(START_LIMIT_S) is not None

    def event(self, limit_s: float) -> dict[str, Any] | None:
        """The next event; None if the worker has closed its end or died.

        A process that the worker forked may hold the pipe open after the worker's death; that is noticed too.

        Raises:
            Overdue: if the event does not come within `limit_s`.
        """
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                self._stderr.cut()
                dead = self._process.poll() is not None
                left_s = max(0.0, end - time.monotonic())
                if selector.select(0 if dead else min(0.5, left_s)):
                    chunk = os.read(self._events, 1 << 16)
                    self._pending += chunk
                    if chunk:
                        continue
                elif not dead:
                    if left_s:
                        continue
                    raise Overdue
                # The worker closes the pipe when it dies; wait until its exit status is there.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(5)
                self.dead = True
                return None
        line, _, self._pending = self._pending.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    @property
    def exit_status(self) -> int | None:
        """Its exit status, negative for a signal; None while it lives."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return self._stderr.end().decode(errors="replace").strip()

    def kill(self) -> None:
        """End it and everything it started; harmless if it has ended, and from several threads at once.

        At Ctrl-C the heat ends its workers while a thread that had begun a case may end its own.
        """
        with self._closing:
            if not self._stderr.file.closed:
                kill(self._process, self._tag)
                os.close(self._commands)
                os.close(self._events)
                self._stderr.file.close()
        self.dead = True


def kill(process: subprocess.Popen[bytes], tag: str) -> None:
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
