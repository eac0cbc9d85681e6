"""Prepare a run: make its folder with `run.json`, or check that an earlier one can be resumed here."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.analysis.compare import machine_differences
from harness.core import find_strategies, find_workloads, store
from harness.core.domain import __version__, device_and_gpu
from harness.core.find_strategies import Catalogue
from harness.core.framework import framework
from harness.core.store import StoreError
from harness.core.strategy import Strategy
from harness.core.workload import Workload
from harness.frameworks import DeviceAbsent, child_process
from harness.reference.workload_info import workload_info
from harness.runner.look import Look, look, sees, versions
from harness.runner.plan import Plan, PlanError, with_baseline
from harness.system import detect, lock
from harness.system import info as machine_info
from harness.system.detect import Seen


@dataclass(frozen=True)
class Prepared:
    """A run folder that exists and holds its plan, ready to be measured."""

    folder: Path
    wanted: Plan
    catalogue: Catalogue
    chosen: Sequence[Strategy]
    seen: dict[str, Seen]
    retry: bool = False
    """Whether failed cases are measured again; their rows are dropped once the run holds the machine's lock."""


def new_folder(results: Path, name: str | None) -> Path:
    """Where a new run goes; one without a name is called after date and time, and numbered if that is taken."""
    if name:
        return results / name
    now = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    names = itertools.chain([now], (f"{now}-{number}" for number in itertools.count(2)))
    return next(path for path in map(results.joinpath, names) if not path.exists())


def start(
    wanted: Plan,
    catalogue: Catalogue,
    device: str | None,
    folder: Path,
    *,
    command: str = "",
    may_add_baseline: bool = True,
    elsewhere: Look | None = None,
    about: Mapping[str, Any] | None = None,
) -> Prepared:
    """Make a new run folder for a plan, which is given a baseline if it names none.

    Args:
        device: what `device_and_gpu` takes; None for every kind that is found.
        command: the command line that repeats the run; empty if it was not started by one.
        may_add_baseline: whether a loop may be added to the strategies, where none of them is one.
        elsewhere: the machine that it is measured on; this one if None.
        about: what else `run.json` is to hold.

    Raises:
        PlanError: if a device is asked for that no framework sees.
        PluginError: if a strategy of the plan is unknown.
        StoreError: if the folder cannot be written.
        Busy: if another run is measuring on this machine; no folder is made.
    """
    named = frameworks_named(wanted, catalogue)
    store.check_writable(folder.parent)
    try:
        kind, gpu = device_and_gpu(device) if device else (None, "")
        found = elsewhere or _look_here(named, kind, gpu, wanted)
    except (ValueError, DeviceAbsent) as error:
        raise PlanError(str(error)) from error
    wanted = replace(wanted, devices=found.devices, gpu=gpu)
    wanted = with_baseline(wanted, catalogue, may_be_baseline(wanted.devices, found.frameworks), may_add_baseline)
    chosen = [catalogue.find(name) for name in wanted.strategies]
    store.create(folder, {**describe(wanted, catalogue, chosen, found, command), **(about or {})})
    return Prepared(folder, wanted, catalogue, chosen, dict(found.frameworks))


def frameworks_named(wanted: Plan, catalogue: Catalogue) -> list[str]:
    """The frameworks of the strategies that are wanted, the baseline's among them.

    Raises:
        PluginError: if a strategy is unknown.
    """
    return sorted({catalogue.find(name).framework for name in (*wanted.strategies, wanted.baseline) if name})


def _look_here(names: Sequence[str], kind: str | None, gpu: str, wanted: Plan) -> Look:
    if measuring := lock.holder():
        raise lock.Busy(measuring)
    print("Looking at the machine and the frameworks ...", file=sys.stderr)
    return look(names, kind, gpu, wanted.threads, wanted.dtype)


def resume(
    folder: Path,
    plugins: Sequence[Path],
    retry: bool,
    across_machines: bool,
    elsewhere: Look | None = None,
) -> Prepared:
    """Go on with a run: its missing cases only, failed ones again with `retry`.

    Args:
        elsewhere: the machine that it goes on with; this one if None.

    Raises:
        StoreError: if there is no run, or this machine or its packages are not those it was started with.
        PluginError: if a strategy of its plan is not found any more.
    """
    run = store.load(folder)
    wanted = plan_of(run.info)
    if (differing := differences(run.info, elsewhere)) and not across_machines:
        raise StoreError(
            f"{folder} was measured under other conditions ({'; '.join(differing)}); "
            "start a new run, or mix them knowingly with --across-machines"
        )
    catalogue = find_strategies.discover(plugins)
    chosen = [catalogue.find(name) for name in wanted.strategies]
    return Prepared(folder, wanted, catalogue, chosen, dict(run.info["frameworks"]), retry)


def may_be_baseline(kinds: Sequence[str], seen: Mapping[str, Seen]) -> set[str]:
    """The frameworks whose plain loop may be the baseline.

    On a GPU a loop whose results come back in every call would measure the bus.
    """
    there = {name for name, answer in seen.items() if answer["status"] == "ok"}
    staying = {name for name in there if sees(seen[name], "gpu") and framework(name).stays_on_device}
    return staying if staying and "gpu" in kinds else there


def describe(
    wanted: Plan, catalogue: Catalogue, chosen: Sequence[Strategy], found: Look, command: str
) -> dict[str, Any]:
    """Everything about a run that is known before it is measured, the machine's ceilings included."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": None,
        "state": "running",
        "command": command,
        "pergrad": __version__,
        "baseline": wanted.baseline,
        "machine": found.machine,
        "gpus": found.gpus,
        "environment": found.environment,
        "versions": found.versions,
        "frameworks": found.frameworks,
        "ceilings": found.ceilings,
        "plan": asdict(wanted),
        "strategies": [_describe_strategy(strategy) for strategy in chosen],
        "workloads": [
            _describe_workload(find_workloads.find(wanted.source(name)), wanted.seed) for name in wanted.workloads
        ],
        "unavailable": [{"name": u.name, "reason": u.reason} for u in catalogue.unavailable],
    }


def plan_of(info: Mapping[str, Any]) -> Plan:
    """The plan that a run was started with."""
    known = {field.name for field in fields(Plan)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in info["plan"].items()
        if name in known
    }
    # Runs of the first version have their baseline beside the plan.
    return Plan(**{"baseline": str(info.get("baseline") or ""), **values})


def differences(info: Mapping[str, Any], elsewhere: Look | None = None) -> list[str]:
    """In what a machine and its packages differ from those a run was started on; this machine without another."""
    found = machine_differences(info.get("machine", {}), elsewhere.machine if elsewhere else machine_info.describe())
    installed, recorded = elsewhere.versions if elsewhere else _versions_here(info), info.get("versions", {})
    for package in sorted(set(installed) | set(recorded)):
        if installed.get(package) != recorded.get(package):
            found.append(f"{package}: {recorded.get(package)} there, {installed.get(package)} here")
    return found


def _versions_here(info: Mapping[str, Any]) -> dict[str, str]:
    """Of this interpreter, and of those that frameworks of the run have for themselves here."""
    elsewhere = [
        name for name in sorted(info.get("frameworks") or {}) if child_process.python_of(name) != sys.executable
    ]
    return versions(detect.detect(elsewhere, None) if elsewhere else {})


def _describe_strategy(strategy: Strategy) -> dict[str, Any]:
    return {
        "name": strategy.name,
        "framework": strategy.framework,
        "quantity": strategy.quantity,
        "summary": strategy.summary,
        "docstring": strategy.docstring,
        "source": strategy.source,
        "reuses_output": strategy.reuses_output,
        "environment": dict(strategy.environment),
        "code": strategy.code,
        "path": "/".join(strategy.path.parts[-3:]),
    }


def _describe_workload(workload: Workload, seed: int) -> dict[str, Any]:
    known = workload_info(workload, seed)
    return {
        "name": workload.name,
        "summary": workload.summary,
        "docstring": workload.docstring,
        "parameters": {name: list(shape) for name, shape in known.shapes.items()},
        "parameter_count": known.parameter_count,
        "state": list(known.state),
        "frameworks": list(known.frameworks),
        "flops_per_instance": known.flops,
        "reference": known.reference,
        "code": workload.code,
    }
