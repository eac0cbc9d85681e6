"""Check one strategy on the small variants of all workloads: are its rows right, and is its time true?"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import frameworks
from harness.core import find_workloads
from harness.core.records import Measurement, Status
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.core.workload import Workload
from harness.measure.contract import CONTRACT
from harness.reference import build
from harness.runner import workers

BATCH_SIZES = (1, 5)
"""One instance, where an axis is easily lost, and a number that is no power of two."""

LIMIT_S = 120.0
"""What one case may take; compiling PyTorch takes half a minute."""

OnRow = Callable[[Measurement], None]


@dataclass(frozen=True)
class Checkup:
    """What came out for one strategy: a row for every workload and batch size."""

    strategy: Strategy
    rows: tuple[Measurement, ...]

    @property
    def failures(self) -> list[Measurement]:
        """Rows in which something is wrong."""
        return [row for row in self.rows if row.status.is_failure]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and something was checked."""
        return not self.failures and any(row.status is Status.OK for row in self.rows)

    def requirements(self) -> dict[str, str]:
        """Requirement -> `passed`, `failed` or `not reached`, in the order of the checks, up to the first that fails.

        A case that ended in any other way, by an exception for example, says nothing of any requirement.
        """
        order = list(CONTRACT)
        broken = {row.broken for row in self.failures if row.broken}
        reached = [len(order)] * any(row.status is Status.OK for row in self.rows)
        reached += [order.index(name) for name in broken]
        last = max(reached, default=0)
        return {
            name: "failed" if name in broken else "passed" if number < last else "not reached"
            for number, name in enumerate(order)
        }

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "strategy": self.strategy.name,
            "ok": self.ok,
            "inside_the_clock": inside_the_clock(self.strategy),
            "requirements": self.requirements(),
            "cases": [
                {
                    "workload": row.workload,
                    "batch_size": row.batch_size,
                    "status": row.status,
                    "digits": row.digits,
                    "broken": row.broken,
                    "reason": row.reason,
                    "what_to_do": CONTRACT[row.broken].hint if row.broken else "",
                    "worst_parameter": row.worst_parameter,
                    "worst_instance": row.worst_instance,
                    "detail": row.detail,
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True)
class Subject:
    """A workload that strategies are checked on.

    Attributes:
        references: batch size -> file with the reference for its batches.
        without_reference: batch size -> status and reason, where there is none.
    """

    workload: Workload
    references: Mapping[int, str]
    without_reference: Mapping[int, tuple[Status, str]] = field(default_factory=dict)


def small_workloads() -> list[Workload]:
    """The small variants of all built-in workloads and the user's own, the tiniest first."""
    found = [
        find_workloads.find(workload.source, small=True)
        for workload in [*find_workloads.builtin(), *find_workloads.others()]
    ]
    return sorted(found, key=lambda workload: workload.name.endswith(find_workloads.SMALL))


def prepare(found: Sequence[Workload], quantities: Sequence[str], folder: Path) -> list[Subject]:
    """Compute the reference for every workload, into files in `folder`."""
    return [_prepare(workload, quantities, folder) for workload in found]


def _prepare(workload: Workload, quantities: Sequence[str], folder: Path) -> Subject:
    paths = {size: folder / f"{workload.name}-{size}.npz" for size in BATCH_SIZES}
    without = build.write_or_say_why_not(paths, workload.source, 0, "float32", quantities)
    return Subject(workload, {size: str(path) for size, path in paths.items() if size not in without}, without)


def check_strategy(
    strategy: Strategy, subjects: Sequence[Subject], on_row: OnRow, device: str = "cpu", gpu: str = ""
) -> Checkup:
    """All checks of a run, on small workloads, with next to no time spent on timing."""
    rows, tasks = [], []
    for subject in subjects:
        task = _task(strategy, subject, device, gpu)
        without = subject.without_reference
        if strategy.framework not in subject.workload.frameworks:
            reason = f"written for {', '.join(subject.workload.frameworks)} only"
            without = dict.fromkeys(BATCH_SIZES, (Status.UNSUPPORTED, reason))
        rows += [task.row(size, *why_not) for size, why_not in without.items()]
        if left := [size for size in BATCH_SIZES if size not in without]:
            tasks.append(task.only(left))
    for row in workers.measure(tuple(tasks)):
        on_row(row)
        rows.append(row)
    return Checkup(strategy, tuple(rows))


def _task(strategy: Strategy, subject: Subject, device: str, gpu: str) -> Task:
    return Task(
        strategy=strategy.name,
        framework=strategy.framework,
        plugin=strategy.plugin,
        workload=subject.workload.name,
        quantity=strategy.quantity,
        device=device,
        dtype="float32",
        batch_sizes=BATCH_SIZES,
        pass_number=1,
        references=subject.references,
        seed=0,
        limit_s=LIMIT_S,
        target_s=0.02,
        source=subject.workload.source,
        environment=dict(strategy.environment),
        gpu="all" if strategy.every_device else gpu,
    )


def describe(checkup: Checkup) -> str:
    """What passed, what failed and what to do about it."""
    strategy = checkup.strategy
    lines = [f"{strategy.name}: {strategy.summary}", "", inside_the_clock(strategy), "", *_table(checkup.rows), ""]
    for name, state in checkup.requirements().items():
        lines.append(f"{state:<11}  {name}: {CONTRACT[name].means}")
        broken = [row for row in checkup.failures if row.broken == name]
        lines += [f"{'':<13}{row.workload} B={row.batch_size}: {row.reason}" for row in broken]
        lines += [f"{'':<13}what to do: {CONTRACT[name].hint}"] if broken else []
    for row in checkup.rows:
        if row.status.is_failure and not row.broken:
            lines.append(f"{row.status:<11}  {row.workload} B={row.batch_size}: {row.reason}")
            lines += [f"{'':<13}{line}" for line in row.detail.splitlines()[-6:]]
    reasons = {(row.status, row.workload, row.reason) for row in checkup.rows if not row.status.is_failure}
    lines += [f"{status:<11}  {name}: {reason}" for status, name, reason in sorted(reasons) if reason]
    count = sum(row.status is Status.OK for row in checkup.rows)
    verdict = "right" if checkup.ok else f"{len(checkup.failures)} failed" if checkup.failures else "nothing checked"
    return "\n".join([*lines, "", f"{strategy.name}: {verdict}; {count} of {len(checkup.rows)} cases ok"])


def _table(rows: Sequence[Measurement]) -> list[str]:
    """Workloads down, batch sizes across: the status, with the digits of agreement."""
    names = list(dict.fromkeys(row.workload for row in rows))
    width = max(len(name) for name in names)
    lines = [" " * width + "".join(f"  {f'B={size}':<16}" for size in BATCH_SIZES).rstrip()]
    for name in names:
        cells = [
            f"{row.status} ({row.digits:.1f} digits)" if row.status is Status.OK and row.digits else str(row.status)
            for row in rows
            if row.workload == name
        ]
        lines.append(f"{name:<{width}}" + "".join(f"  {cell:<16}" for cell in cells).rstrip())
    return lines


def inside_the_clock(strategy: Strategy) -> str:
    """What the timer measures for this strategy, and what it does not."""
    waiting = inspect.getdoc(frameworks.adapter_class(strategy.framework).wait) or ""
    return (
        "Inside the clock, once per timed call:\n"
        "    output = step(batch)   # step is what this returns; parameters and batch are on the device already\n"
        f"{textwrap.indent(inspect.getsource(strategy.build).rstrip(), ' ' * 8)}\n"
        f"    wait(output)           # {waiting.partition(chr(10))[0]}\n"
        "Outside it, each with a clock of its own: the build, which is everything before `return`; the first call; "
        "copying the output to NumPy."
    )
