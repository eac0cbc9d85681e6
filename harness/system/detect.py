"""Detect what each framework is on this machine, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import frameworks
from harness.core.framework import BUILT_IN, framework
from harness.frameworks import DeviceAbsent, child_process
from harness.frameworks.child_process import START_LIMIT_S, ChildProcessFailed
from harness.system import info

Seen = Mapping[str, Any]
"""`status` (`ok` or `unavailable`), `reason`, `devices` (list of kind and name), `threads`, and `missing`.

The last says why there is no device of a kind, as far as the framework has said so: `{"gpu": "driver too old"}`.
"""


def detect(names: Sequence[str], threads: int | None, gpu: str = "") -> dict[str, Seen]:
    """Ask several frameworks at once; those of pergrad that share a package are asked once.

    Where there is a GPU they are asked one after the other, since it may admit one process at a time.

    Args:
        gpu: the only GPU that they may see, as `child_process.visible` takes it; all of them if empty.
    """
    asked = {_answers(name): name for name in names}
    with ThreadPoolExecutor(1 if Path("/dev/nvidia0").exists() else None) as pool:
        answers = dict(zip(asked, pool.map(lambda name: _ask(name, threads, gpu), asked.values()), strict=True))
    return {name: answers[_answers(name)] for name in names}


def require_gpu(seen: Mapping[str, Seen]) -> None:
    """Refuse to measure on a GPU that no framework sees.

    Raises:
        DeviceAbsent: with what each framework says of it, and what to do.
    """
    if any(device["kind"] == "gpu" for answer in seen.values() for device in answer["devices"]):
        return
    said = [
        f"{name}: {why}"
        for name, answer in seen.items()
        if (why := (answer.get("missing") or {}).get("gpu") or answer["reason"])
    ]
    raise DeviceAbsent(
        f"--device gpu: no framework sees a GPU here ({'; '.join(said) or 'none of them says why'}); `pergrad doctor` "
        "says what is missing, docs/gpu.md how to install it"
    )


def _answers(name: str) -> tuple[str, str]:
    """What two frameworks have in common whose answers are the same; another's adapter may see other devices."""
    return framework(name).package, "" if name in BUILT_IN else name


def _ask(name: str, threads: int | None, gpu: str) -> Seen:
    """What a framework sees; where a GPU or its driver takes the CPU with it, what it sees without them, and why."""
    answer = _ask_about(name, threads, "any", gpu)
    if any(device["kind"] == "cpu" for device in answer["devices"]) or answer.get("absent"):
        return answer
    without = _ask_about(name, threads, "cpu", gpu)
    if without["status"] != "ok":
        return answer
    return {**without, "missing": {"gpu": answer["reason"] or next(iter(answer["missing"].values()), "it sees no CPU")}}


def _ask_about(name: str, threads: int | None, device: str, gpu: str) -> Seen:
    target = "harness.system.detect:look"
    try:
        arguments = (name, threads, device)
        answer: Seen = child_process.call(
            target, *arguments, framework=name, device=device, threads=threads, limit_s=START_LIMIT_S, gpu=gpu
        )
    except ChildProcessFailed as error:
        return _unavailable(f"importing it failed: {error}")
    return answer


def look(name: str, threads: int | None, device: str = "any") -> Seen:
    """What a framework sees of a kind of device, in this process, which imports it."""
    known = framework(name)
    try:
        adapter = frameworks.load(name, threads, device)
    except ModuleNotFoundError as error:
        if error.name != known.package:
            return _unavailable(f"importing it failed: {error}")
        return _unavailable(f"{known.package} is not installed; pip install {known.install}") | {"absent": True}
    except Exception as error:
        return _unavailable(f"importing it failed: {type(error).__name__}: {error}")
    try:
        devices = [{"kind": device.kind, "name": device.name} for device in adapter.devices()]
    except Exception as error:
        return _unavailable(f"looking for devices failed: {type(error).__name__}: {error}")
    return {
        "status": "ok",
        "reason": "",
        "devices": devices,
        "threads": adapter.threads(),
        "missing": adapter.missing,
        "versions": info.versions([name]),
    }


def _unavailable(reason: str) -> dict[str, Any]:
    return {"status": "unavailable", "reason": reason, "devices": [], "threads": {}, "missing": {}}
