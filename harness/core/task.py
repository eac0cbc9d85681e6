"""What one worker is asked to measure: plain values that can be sent to another process or machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harness.core.records import Measurement, Status


@dataclass(frozen=True)
class Task:
    """One strategy on one workload and device in one pass, all its batch sizes ascending.

    Attributes:
        plugin: the file the strategy comes from, or the entry point as `module:attribute`.
        truths: batch size -> file with the truth about its batches.
        limit_s: what one case may take, build included.
        target_s: seconds of timed calls to aim for per case.
        most_rounds: timed calls per case at most.
        checks: whether the checks of `harness.measure.timing_checks` are made; once per case and run is enough.
        loads: the strategy that is really loaded, where `strategy` is a second name for it.
        environment: variables that the strategy needs before its framework is imported.
        source: where the workload is found, if not by its name: a file.
        threads: threads within one operation; None leaves each framework's default.
        cpus: the cores the worker is bound to; None leaves them all.
        allocator: `default`, or `reuse` to have glibc keep freed memory.
    """

    strategy: str
    framework: str
    plugin: str
    workload: str
    quantity: str
    device: str
    dtype: str
    batch_sizes: tuple[int, ...]
    pass_number: int
    truths: Mapping[int, str]
    seed: int
    limit_s: float
    target_s: float
    most_rounds: int
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    allocator: str = "default"
    checks: bool = True
    loads: str = ""
    source: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Task:
        """The task whose fields came as JSON."""
        values["batch_sizes"] = tuple(values["batch_sizes"])
        values["cpus"] = values["cpus"] and tuple(values["cpus"])
        values["truths"] = {int(size): path for size, path in values["truths"].items()}
        return Task(**values)

    def only(self, batch_sizes: Iterable[int]) -> Task:
        """The same task with these batch sizes only, ascending."""
        return replace(self, batch_sizes=tuple(sorted(batch_sizes)))

    def row(self, batch_size: int, status: Status, reason: str = "", **columns: Any) -> Measurement:
        """A row about one of the task's cases."""
        return Measurement(
            workload=self.workload,
            strategy=self.strategy,
            framework=self.framework,
            quantity=self.quantity,
            device=self.device,
            dtype=self.dtype,
            batch_size=batch_size,
            pass_number=self.pass_number,
            status=status,
            reason=reason,
            allocator=self.allocator,
            **columns,
        )


Job = tuple[Task, ...]
"""Tasks that one worker measures one after another: of one framework, on one device, with one environment.

A run gives a worker one strategy and several workloads, so that no strategy inherits what another left behind.
"""


def to_json(job: Job) -> str:
    """A job as one line of JSON."""
    return json.dumps([asdict(task) for task in job])


def from_json(text: str) -> Job:
    """The job that `to_json` wrote."""
    return tuple(Task.from_json(values) for values in json.loads(text))
