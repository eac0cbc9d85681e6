"""Detect what each framework is on this machine, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import frameworks
from harness.core.framework import BUILT_IN, framework
from harness.frameworks import child_process
from harness.frameworks.child_process import START_LIMIT_S, ChildProcessFailed

Seen = Mapping[str, Any]
"""`status` (`ok` or `unavailable`), `reason`, `devices` (list of kind and name), `threads`."""


def detect(names: Sequence[str], threads: int | None) -> dict[str, Seen]:
    """Ask several frameworks at once; those of pergrad that share a package are asked once."""
    asked = {_answers(name): name for name in names}
    with ThreadPoolExecutor() as pool:
        answers = dict(zip(asked, pool.map(lambda name: _ask(name, threads), asked.values()), strict=True))
    return {name: answers[_answers(name)] for name in names}


def _answers(name: str) -> tuple[str, str]:
    """What two frameworks have in common whose answers are the same; another's adapter may see other devices."""
    return framework(name).package, "" if name in BUILT_IN else name


def _ask(name: str, threads: int | None) -> Seen:
    target = "harness.system.detect:look"
    try:
        answer: Seen = child_process.call(
            target, name, threads, framework=name, device="any", threads=threads, limit_s=START_LIMIT_S
        )
    except ChildProcessFailed as error:
        return _unavailable(f"importing it failed: {error}")
    return answer


def look(name: str, threads: int | None) -> Seen:
    """What a framework sees, in this process, which imports it."""
    known = framework(name)
    try:
        adapter = frameworks.load(name, threads)
    except ModuleNotFoundError as error:
        if error.name != known.package:
            return _unavailable(f"importing it failed: {error}")
        return _unavailable(f"{known.package} is not installed; pip install {known.install}")
    except Exception as error:
        return _unavailable(f"importing it failed: {type(error).__name__}: {error}")
    devices = [{"kind": device.kind, "name": device.name} for device in adapter.devices()]
    return {"status": "ok", "reason": "", "devices": devices, "threads": adapter.threads()}


def _unavailable(reason: str) -> Seen:
    return {"status": "unavailable", "reason": reason, "devices": [], "threads": {}}
