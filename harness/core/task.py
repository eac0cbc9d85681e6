"""What a worker is sent: one strategy on one workload, with everything that measuring it needs.

Plain values only, so that a task can be sent to another process or machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harness.core.records import Measurement, Status


@dataclass(frozen=True)
class Task:
    """One strategy on one workload and device in one pass, all its batch sizes ascending.

    Attributes:
        plugin: the file the strategy comes from, or the entry point as `module:attribute`.
        references: batch size -> file with the reference for its batches.
        limit_s: what one case may take, build included.
        target_s: seconds of timed calls to aim for per case.
        checks: whether the checks of `harness.measure.result_checks` and `timing_checks` are made; once per case and
            run is enough.
        environment: variables that the strategy needs before its framework is imported.
        gpu: which GPU it is measured on, for `harness.frameworks.child_process.visible`; the first if empty.
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
    references: Mapping[int, str]
    seed: int
    limit_s: float
    target_s: float
    threads: int | None = None
    cpus: tuple[int, ...] | None = None
    allocator: str = "default"
    checks: bool = True
    source: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu: str = ""

    def as_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Task:
        """The task whose fields came as JSON."""
        values["batch_sizes"] = tuple(values["batch_sizes"])
        values["cpus"] = values["cpus"] and tuple(values["cpus"])
        values["references"] = {int(size): path for size, path in values["references"].items()}
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
"""Tasks that one worker measures one after another: of one framework, on one device, with one environment."""
