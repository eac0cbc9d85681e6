"""One case on its way through a worker process: begun, measured turn by turn, ended, whatever happens to the worker."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.core.records import FEWEST_ROUNDS, Measurement, Status
from harness.core.task import Task
from harness.frameworks.child_process import START_LIMIT_S
from harness.runner.worker_process import Overdue, Worker
from harness.system import info

TURN_S = 0.05
"""Seconds of a turn: long enough that its first calls, which are discarded, cost little; short enough that a drifting
machine is the same for all that take turns."""


class CaseRun:
    """One case on its way through a worker: begun, measured turn by turn, ended. Each step may end it with its row.

    Attributes:
        turns: the seconds per call that each turn showed, in order.
        timed_s: seconds of timed calls so far.
    """

    def __init__(self, worker: Worker, task: Task, batch_size: int) -> None:
        self.worker, self.task, self.batch_size = worker, task, batch_size
        self.turns: list[float] = []
        self.timed_s = 0.0
        self._used_s = 0.0
        self._killed_before = info.killed_for_memory()

    def begin(self) -> Measurement | None:
        """Build, check and warm up; None if it is ready for its turns, else its row."""
        try:
            self.worker.wait_until_started()
        except Overdue:
            return self._overdue(START_LIMIT_S, "before the case began: importing or starting took too long, ")
        if self.worker.dead:
            return self._row_of_a_dead_worker()
        return self._ask({"task": self.task.as_json(), "batch_size": self.batch_size})

    def turn(self) -> Measurement | None:
        """Take a turn; None if all went well, else its row."""
        return self._ask({"turn_s": min(TURN_S, self.task.target_s / FEWEST_ROUNDS)})

    def end(self, rule: str) -> Measurement:
        """End its turns, have the time checked; its row, with the rule by which the turns ended."""
        row = self._ask({"turn_s": None})
        assert row is not None
        return replace(row, stopping_rule=rule) if row.samples_ns else row

    def _ask(self, what: Mapping[str, Any]) -> Measurement | None:
        started = time.monotonic()
        self.worker.tell(what)
        try:
            event = self.worker.event(max(1.0, self.task.limit_s - self._used_s))
        except Overdue:
            return self._overdue(self._used_s + time.monotonic() - started)
        self._used_s += time.monotonic() - started
        if event is None or event["event"] == "end":
            return self._row_of_a_dead_worker()
        if event["event"] == "turn":
            self.turns.append(event["call_ns"] * 1e-9)
            self.timed_s += event["timed_s"]
        if event["event"] != "row":
            return None
        if event["spoiled"]:
            self.worker.kill()
        return Measurement.from_json(event["row"])

    def _overdue(self, seconds: float, what: str = "") -> Measurement:
        reason, detail = f"{what}stopped after {seconds:.0f} s", self.worker.last_words
        self.worker.kill()
        return self.task.row(self.batch_size, Status.TIMEOUT, reason, detail=detail, case_s=seconds)

    def _row_of_a_dead_worker(self) -> Measurement:
        killed = info.killed_for_memory()
        for_memory = killed is None or killed != self._killed_before
        status, words = self.worker.exit_status, self.worker.last_words
        row = _row_of_a_dead_worker(self.task, self.batch_size, status, words, for_memory)
        self.worker.kill()
        return row


def _row_of_a_dead_worker(task: Task, batch_size: int, code: int | None, stderr: str, for_memory: bool) -> Measurement:
    """The row of the case a worker died at.

    Args:
        code: its exit status, None if it closed the channel and lived on.
        for_memory: whether the kernel has killed a process because memory ran out, or does not tell.
    """
    if code is None:
        return task.row(batch_size, Status.CRASHED, "stopped reporting in the middle of a case", detail=stderr)
    if code < 0:
        name = signal.Signals(-code).name
        if name == "SIGKILL" and for_memory:
            reason = "killed by SIGKILL from outside, as the kernel does when memory runs out"
            return task.row(batch_size, Status.OUT_OF_MEMORY, reason, detail=stderr)
        return task.row(batch_size, Status.CRASHED, f"killed by signal {-code} ({name})", detail=stderr)
    return task.row(batch_size, Status.CRASHED, f"ended with exit status {code} in the middle of a case", detail=stderr)
