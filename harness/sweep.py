"""Runs a plan: one worker process after another, every row on disk before the next case begins."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import __version__, machine, plan, process, reference, store, workloads
from harness.frameworks import PACKAGES
from harness.plan import Plan
from harness.probe import Seen
from harness.records import Measurement, Status
from harness.strategies import Catalogue, Strategy
from harness.task import Task
from harness.workloads import Workload, cast

OnRow = Callable[[Measurement], None]
Dead = dict[tuple[str, str, str], tuple[int, Measurement]]
"""(strategy, workload, device) -> the batch size at which it has to be left alone, and the row that says why."""


def describe(
    wanted: Plan, catalogue: Catalogue, chosen: Sequence[Strategy], seen: Mapping[str, Seen], command: str
) -> dict[str, Any]:
    """Everything about a run that is known before it is measured: the content of `run.json`."""
    return {
        "created": _now(),
        "finished": None,
        "state": "running",
        "command": command,
        "pergrad": __version__,
        "baseline": plan.BASELINE,
        "machine": machine.describe(),
        "versions": machine.versions(),
        "frameworks": seen,
        "plan": wanted.as_json(),
        "strategies": [_describe_strategy(strategy) for strategy in chosen],
        "workloads": [_describe_workload(workloads.find(name), wanted.seed) for name in wanted.workloads],
        "unavailable": [{"name": u.name, "reason": u.reason} for u in catalogue.unavailable],
    }


def sweep(wanted: Plan, chosen: Sequence[Strategy], seen: Mapping[str, Seen], folder: Path, on_row: OnRow) -> None:
    """Measure everything in `wanted` and store it in `folder`, a run that `store.create` has made.

    `on_row` is called after each row has reached the disk. Whatever ends the sweep, Ctrl-C included, leaves a
    run folder that can be read.
    """
    info = dict(store.load(folder).info)

    def keep(row: Measurement) -> None:
        store.append(folder, row)
        on_row(row)

    try:
        with tempfile.TemporaryDirectory(prefix="pergrad-") as scratch:
            truths = write_truths(wanted, Path(scratch))
            dead: Dead = {}
            for task in plan.tasks(wanted, chosen, truths):
                _run(task, seen[task.framework], dead, keep)
        info["state"] = "complete"
    except BaseException:
        info["state"] = "interrupted"
        raise
    finally:
        info["finished"] = _now()
        store.write_info(folder, info)
        store.write_benchmark_file(store.load(folder))


def write_truths(wanted: Plan, folder: Path) -> dict[str, dict[int, str]]:
    """Compute the truth about every batch once, into files that all workers read: workload -> size -> path."""
    truths: dict[str, dict[int, str]] = {}
    for name in wanted.workloads:
        workload = workloads.find(name)
        parameters = cast(workload.initial_parameters(wanted.seed), wanted.dtype)
        for size in wanted.batch_sizes:
            path = folder / f"{name}-{size}.npz"
            batches = workload.batches(wanted.seed, size, reference.BATCHES)
            reference.save(
                path, [reference.compute(workload, parameters, cast(batch, wanted.dtype)) for batch in batches]
            )
            truths.setdefault(name, {})[size] = str(path)
    return truths


def _run(task: Task, seen: Seen, dead: Dead, keep: OnRow) -> None:
    """Measure one task, without the cases that an earlier pass or the probe has shown to be hopeless."""
    if reason := _absent(task, seen):
        for size in task.batch_sizes:
            keep(task.row(size, Status.UNAVAILABLE, reason))
        return
    key = (task.strategy, task.workload, task.device)
    first_dead, why = dead.get(key, (None, None))
    alive = tuple(size for size in task.batch_sizes if first_dead is None or size < first_dead)
    if alive:
        for row in process.measure_task(task.only(alive)):
            keep(row)
            if row.status in (Status.TIMEOUT, Status.SKIPPED) and key not in dead:
                dead[key] = (row.batch_size, row)
    if why is not None:
        for size in task.batch_sizes[len(alive) :]:
            keep(task.row(size, Status.SKIPPED, f"{why.status} in pass {why.pass_number}: {why.reason}"))


def _absent(task: Task, seen: Seen) -> str:
    """Why the framework or the device is not there; empty if both are."""
    if seen["status"] != "ok":
        return str(seen["reason"])
    devices = seen["devices"]
    if any(device["kind"] == task.device for device in devices):
        return ""
    return f"{task.framework} sees no {task.device} here, only: {', '.join(device['name'] for device in devices)}"


def _describe_strategy(strategy: Strategy) -> dict[str, Any]:
    return {
        "name": strategy.name,
        "framework": strategy.framework,
        "quantity": strategy.quantity,
        "summary": strategy.summary,
        "docstring": strategy.docstring,
        "source": strategy.source,
        "code": strategy.code,
        "path": "/".join(strategy.path.parts[-3:]),
        "package": PACKAGES[strategy.framework][0],
    }


def _describe_workload(workload: Workload, seed: int) -> dict[str, Any]:
    parameters = workload.initial_parameters(seed)
    return {
        "name": workload.name,
        "summary": workload.summary,
        "docstring": workload.docstring,
        "parameters": {name: list(value.shape) for name, value in parameters.items()},
        "parameter_count": sum(value.size for value in parameters.values()),
        "code": workload.code,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
