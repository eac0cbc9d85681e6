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
from harness.system.info import last_cache_bytes

FILL_BYTES = {"cpu": 256 << 20, "gpu": 4 << 30}
"""What is filled: beyond all caches, and long against launching a kernel; less where a device has little memory."""

MATRIX = {"cpu": 2048, "gpu": 8192}

WARM_UP_S = {"cpu": 0.0, "gpu": 0.5}
"""An idle GPU runs at a fraction of its clock."""

REPEATS = 7
LIMIT_S = 120.0


@dataclass(frozen=True)
class Roofline:
    """The best a device can do; bytes and floating-point operations (in the run's dtype) per second.

    `cache_bytes` is the size of its last cache, 0 where that is not known.
    """

    fill_reused: float
    fill_fresh: float
    flops: float
    cache_bytes: int = 0

    def floor_s(self, output_bytes: int, flops: float | None) -> float | None:
        """The least time in which so much can be written and computed; writing and computing may overlap.

        What may stay in the cache is not held against the speed of memory: twice the cache, since a part of more stays
        there too. None if nothing else is known either.
        """
        writing = output_bytes / self.fill_reused if output_bytes > 2 * self.cache_bytes else 0.0
        return max(writing, (flops or 0.0) / self.flops) or None


def measure(framework: str, device: str, threads: int | None, dtype: str = "float32", gpu: str = "") -> Roofline | None:
    """Measure with a framework's kernels in a fresh process; None if that fails, since a run can do without."""
    target = "harness.system.roofline:measure_here"
    try:
        found = child_process.call(
            target,
            *(framework, device, dtype),
            framework=framework,
            dtype=dtype,
            device=device,
            threads=threads,
            limit_s=LIMIT_S,
            gpu=gpu,
        )
    except ChildProcessFailed:
        return None
    return Roofline(**found)


def measure_here(framework: str, kind: str, dtype: str = "float32") -> dict[str, float | int]:
    """The fields of `Roofline`, in this process, which imports the framework.

    NumPy, which has no products of bfloat16 worth the name, multiplies float32 for it.
    """
    adapter = frameworks.load(framework, device=kind)
    device = adapter.device(kind)
    free = adapter.free_memory(device)
    filled = FILL_BYTES[kind] if free is None else min(FILL_BYTES[kind], free // 8)
    side = MATRIX[kind]
    kernels = adapter.kernels(device, filled // 4, side, "float32" if kind == "cpu" and dtype == "bfloat16" else dtype)
    until = time.perf_counter() + WARM_UP_S[kind]
    while time.perf_counter() < until:
        kernels.multiply()
    nothing = _fastest(kernels.nothing) if kind == "gpu" else 0.0

    def work(seconds: float) -> float:
        """The seconds without the wait that is in them; where that was disturbed, half of them at least."""
        return max(seconds - nothing, seconds / 2)

    return {
        "fill_reused": filled / work(_fastest(kernels.fill_reused)),
        "fill_fresh": filled / work(_typical(kernels.fill_fresh)),
        "flops": 2 * side**3 / work(_fastest(kernels.multiply)),
        "cache_bytes": last_cache_bytes() if kind == "cpu" else 0,
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
