"""One heat from its description to its rows, and the workers that stand ready from heat to heat."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.core.domain import usable_cores
from harness.core.records import Mark, MarkKind, Measurement
from harness.core.task import Task
from harness.runner import heat
from harness.runner.case_run import CaseRun
from harness.runner.worker_process import Overdue, Worker
from harness.system.interference import UsualTime


@dataclass(frozen=True)
class Heat:
    """What is compared: strategies that take turns on one workload, device and batch size.

    All its values are plain, so that it can be measured wherever its files are.

    Attributes:
        group: which heats share their workers: all heats of a group follow each other on one machine, or on several.
        tasks: one per strategy, each with one batch size, the same one.
        baseline: the strategy that the others are compared with, besides the best.
        precision: a case ends when half the 95 % interval of its ratio to both is within this (0.02: 2 %).
        order: what the random order of turns is drawn from.
    """

    group: str
    tasks: tuple[Task, ...]
    baseline: str
    precision: float
    order: str

    def as_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Heat:
        """The heat whose fields came as JSON."""
        return Heat(**{**values, "tasks": tuple(Task.from_json(dict(task)) for task in values["tasks"])})


class Workers:
    """One worker per strategy, which stands ready as long as its group is measured."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End all of them; harmless if they have ended."""
        for worker in self._workers.values():
            worker.kill()

    def cases(self, tasks: Sequence[Task]) -> list[CaseRun]:
        """The case of each task in the worker of its strategy.

        As many frameworks are imported at the same time as there are cores.
        """
        starting: list[Worker] = []
        for task in tasks:
            if task.strategy not in self._workers or self._workers[task.strategy].dead:
                self._workers[task.strategy] = Worker(task)
                starting.append(self._workers[task.strategy])
            if len(starting) >= len(usable_cores()):
                _wait_for(starting)
        _wait_for(starting)
        return [CaseRun(self._workers[task.strategy], task, task.batch_sizes[0]) for task in tasks]


def measure(one: Heat, workers: Workers, usual: UsualTime) -> Iterator[Measurement]:
    """Measure a heat on this machine; yields one row per task, of those that fail as soon as they do.

    Args:
        workers: those of its group.
        usual: what this machine's calibration kernel usually takes: rows of a disturbed machine are marked.
    """
    for row in heat.run(workers.cases(one.tasks), one.baseline, one.precision, random.Random(one.order)):
        if row.pulse_s is not None and usual.is_disturbed(row.pulse_s):
            mark = Mark(MarkKind.UNSTABLE, "unstable: the machine was disturbed")
            yield replace(row, marks=(*row.marks, mark))
        else:
            yield row


def _wait_for(starting: list[Worker]) -> None:
    """Until all have started; who takes too long is asked again, and stopped, when its case begins."""
    for worker in starting:
        with contextlib.suppress(Overdue):
            worker.wait_until_started()
    starting.clear()
