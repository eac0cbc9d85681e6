"""Measure the roofline of a device: how fast it fills memory, and how fast it multiplies matrices.

No strategy can write its rows faster than the machine fills a buffer, or compute faster than a large product of
matrices runs. The CPU is measured with NumPy, a GPU with the first framework that sees one and has kernels for it.
Source: Williams, Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness import frameworks
from harness.frameworks import child_process
from harness.frameworks.child_process import ChildProcessFailed

FILL_BYTES = 256 << 20
MATRIX = 2048
REPEATS = 7
LIMIT_S = 120.0


@dataclass(frozen=True)
class Roofline:
    """The best a device can do; bytes and floating-point operations (float32) per second."""

    fill_reused: float
    fill_fresh: float
    flops: float

    def floor_s(self, output_bytes: int, flops: float | None) -> float:
        """The least time in which so much can be written and computed; writing and computing may overlap."""
        return max(output_bytes / self.fill_reused, (flops or 0.0) / self.flops)


def measure(framework: str, device: str, threads: int | None) -> Roofline | None:
    """Measure with a framework's kernels in a fresh process; None if that fails, since a run can do without."""
    target = "harness.system.roofline:measure_here"
    try:
        found = child_process.call(
            target, framework, device, framework=framework, device=device, threads=threads, limit_s=LIMIT_S
        )
    except ChildProcessFailed:
        return None
    return Roofline(**found)


def measure_here(framework: str, device: str) -> dict[str, float]:
    """The fields of `Roofline`, in this process, which imports the framework."""
    adapter = frameworks.load(framework)
    kernels = adapter.kernels(adapter.device(device), FILL_BYTES // 4, MATRIX)
    return {
        "fill_reused": FILL_BYTES / _fastest(kernels.fill_reused),
        "fill_fresh": FILL_BYTES / _typical(kernels.fill_fresh),
        "flops": 2 * MATRIX**3 / _fastest(kernels.multiply),
    }


def from_json(values: Mapping[str, Any] | None) -> Roofline | None:
    """What `run.json` stores, read back."""
    return Roofline(**values) if values else None


def _seconds(call: Callable[[], Any]) -> list[float]:
    call()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def _fastest(call: Callable[[], Any]) -> float:
    return min(_seconds(call))


def _typical(call: Callable[[], Any]) -> float:
    return statistics.median(_seconds(call))
