"""What a machine is, which frameworks it has and how fast it can be: all that a run records before it measures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.core.framework import framework, framework_names
from harness.frameworks import child_process
from harness.system import detect, roofline
from harness.system import info as machine_info
from harness.system.detect import Seen
from harness.system.gpu import cards as gpu_cards


@dataclass(frozen=True)
class Look:
    """A machine as it was found; plain values, as `run.json` holds them.

    Attributes:
        devices: the kinds of device to measure.
        machine: its card, as `harness.system.info.describe` tells it.
        versions: package -> version, of the packages that the numbers depend on.
        frameworks: framework -> what the probe saw of it.
        ceilings: device -> the machine's ceiling, None where it was not measured.
    """

    devices: tuple[str, ...]
    machine: Mapping[str, Any]
    gpus: Sequence[Mapping[str, Any]]
    environment: Mapping[str, str]
    versions: Mapping[str, str]
    frameworks: Mapping[str, Seen]
    ceilings: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Look:
        """The look whose fields came as JSON."""
        return Look(**{**values, "devices": tuple(values["devices"])})


def look(
    names: Sequence[str], asked: str | None, gpu: str, threads: int | None, dtype: str, ceilings: bool = True
) -> Look:
    """Look at this machine.

    Args:
        names: the frameworks that are wanted.
        asked: `cpu`, `gpu` or `all`; None for every kind of device that is found.
        gpu: the only GPU that is meant, as `child_process.visible` takes it.
        ceilings: whether they are measured, which keeps all cores busy for seconds.

    Raises:
        DeviceAbsent: if a GPU is asked for that no framework sees.
    """
    seen = detect.detect(names, threads, gpu)
    if asked == "gpu":
        detect.require_gpu(seen)
    kinds = devices(asked, seen)
    return Look(
        devices=kinds,
        machine=machine_info.describe(),
        gpus=[card.as_json() for card in gpu_cards()],
        environment=machine_info.environment(),
        versions=versions(seen),
        frameworks=seen,
        ceilings=_ceilings(kinds, seen, threads, dtype, gpu) if ceilings else dict.fromkeys(kinds),
    )


def devices(asked: str | None, seen: Mapping[str, Seen]) -> tuple[str, ...]:
    """The kinds of device to measure; a kind that no framework sees is measured only if it was asked for."""
    found = {device["kind"] for answer in seen.values() for device in answer["devices"]}
    if asked in ("cpu", "gpu"):
        return (asked,)
    return ("cpu", "gpu") if asked == "all" or "gpu" in found else ("cpu",)


def versions(seen: Mapping[str, Seen]) -> dict[str, str]:
    """Versions of packages: this interpreter's, and those of frameworks that have one of their own."""
    elsewhere = [name for name in seen if child_process.python_of(name) != sys.executable]
    own = [seen[name].get("versions") or {} for name in elsewhere]
    return {package: version for found in (machine_info.versions(), *own) for package, version in found.items()}


def sees(seen: Seen | None, device: str) -> bool:
    """Whether a framework has a device of that kind."""
    return seen is not None and any(entry["kind"] == device for entry in seen["devices"])


def _ceilings(
    kinds: Sequence[str], seen: Mapping[str, Seen], threads: int | None, dtype: str, gpu: str
) -> dict[str, Any]:
    """Device -> its ceiling; a GPU is measured with a framework that sees one."""
    found = {}
    for device in kinds:
        able = [name for name in framework_names() if device in framework(name).rooflines]
        chosen = next((name for name in able if device == "cpu" or sees(seen.get(name), device)), None)
        measured = roofline.measure(chosen, device, threads, dtype, gpu) if chosen else None
        found[device] = asdict(measured) if measured else None
    return found
