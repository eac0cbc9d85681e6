"""What a framework is on this machine, asked in a process of its own so that the sweep never loads one.

Run as `python -m harness.system.detect FRAMEWORK`; prints one JSON object on the last line of standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import frameworks
from harness.frameworks.child_process import START_LIMIT_S, environment

Seen = Mapping[str, Any]
"""`status` (`ok` or `unavailable`), `reason`, `devices` (list of kind and name), `threads`."""


def probe(names: Sequence[str], threads: int | None) -> dict[str, Seen]:
    """Ask several frameworks at once; the two that share TensorFlow are asked once."""
    packages = {frameworks.PACKAGES[name][0]: name for name in names}
    with ThreadPoolExecutor() as pool:
        answers = dict(zip(packages, pool.map(lambda name: _ask(name, threads), packages.values()), strict=True))
    return {name: answers[frameworks.PACKAGES[name][0]] for name in names}


def _ask(name: str, threads: int | None) -> Seen:
    command = [sys.executable, "-P", "-m", "harness.system.detect", name, *([str(threads)] if threads else [])]
    try:
        done = subprocess.run(
            command,
            env=environment(name, "any", threads),
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
            check=True,
        )
        answer: Seen = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return _unavailable(f"importing it took longer than {START_LIMIT_S:g} s")
    except (subprocess.CalledProcessError, IndexError, json.JSONDecodeError) as error:
        stderr = getattr(error, "stderr", "") or str(error)
        return _unavailable(f"importing it failed: {stderr.strip().splitlines()[-1]}")
    return answer


def _unavailable(reason: str) -> Seen:
    return {"status": "unavailable", "reason": reason, "devices": [], "threads": {}}


def _look(name: str, threads: int | None) -> Seen:
    package, extra = frameworks.PACKAGES[name]
    try:
        adapter = frameworks.load(name, threads)
    except ModuleNotFoundError as error:
        if error.name != package:
            return _unavailable(f"importing it failed: {error}")
        return _unavailable(f"{package} is not installed; pip install 'pergrad[{extra}]'")
    except Exception as error:
        return _unavailable(f"importing it failed: {type(error).__name__}: {error}")
    devices = [{"kind": device.kind, "name": device.name} for device in adapter.devices()]
    return {"status": "ok", "reason": "", "devices": devices, "threads": adapter.threads()}


if __name__ == "__main__":
    print(json.dumps(_look(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)))
