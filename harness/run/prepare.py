"""What is known about a run before it is measured: the content of `run.json`, and whether it can be resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from harness import __version__
from harness.core import find_workloads
from harness.run import plan
from harness.system import info as infos_, roofline
from harness.reference.workload_info import facts
from harness.run.plan import Plan
from harness.system.detect import Seen
from harness.core.find_strategies import Catalogue
from harness.core.strategy import Strategy
from harness.core.workload import Workload

SAME_MACHINE = ("system", "architecture", "processor", "cores_available", "memory_bytes", "python")
"""What must not differ between the parts of one run."""


def describe(
    wanted: Plan, catalogue: Catalogue, chosen: Sequence[Strategy], seen: Mapping[str, Seen], command: str
) -> dict[str, Any]:
    """Everything about a run that is known before it is measured, the machine's ceilings included."""
    has_control = wanted.control and plan.BASELINE in wanted.strategies
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": None,
        "state": "running",
        "command": command,
        "pergrad": __version__,
        "baseline": plan.BASELINE,
        "control": plan.CONTROL if has_control else None,
        "machine": infos_.describe(),
        "environment": infos_.environment(),
        "versions": infos_.versions(),
        "frameworks": seen,
        "ceilings": _ceilings(wanted, seen),
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
    return Plan(**values)


def differences(info: Mapping[str, Any]) -> list[str]:
    """In what this machine and its packages differ from those a run was started on."""
    here, there = infos_.describe(), info.get("machine", {})
    found = [
        f"{name}: {there.get(name)} there, {here[name]} here" for name in SAME_MACHINE if there.get(name) != here[name]
    ]
    installed, recorded = infos_.versions(), info.get("versions", {})
    for package in sorted(set(installed) | set(recorded)):
        if installed.get(package) != recorded.get(package):
            found.append(f"{package}: {recorded.get(package)} there, {installed.get(package)} here")
    return found


def _ceilings(wanted: Plan, seen: Mapping[str, Seen]) -> dict[str, Any]:
    """Device -> its ceiling; a GPU is measured with a framework that sees one."""
    found = {}
    for device in wanted.devices:
        candidates = [name for name in ("torch", "jax") if _sees(seen.get(name), device)]
        framework = "numpy" if device == "cpu" else next(iter(candidates), None)
        measured = roofline.measure(framework, device, wanted.threads) if framework else None
        found[device] = asdict(measured) if measured else None
    return found


def _sees(seen: Seen | None, device: str) -> bool:
    return seen is not None and any(entry["kind"] == device for entry in seen["devices"])


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
    }


def _describe_workload(workload: Workload, seed: int) -> dict[str, Any]:
    known = facts(workload, seed)
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
