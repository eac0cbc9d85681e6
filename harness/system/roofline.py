"""What the machine can do at best: how fast it fills memory, and how fast it multiplies matrices.

No strategy can write its rows faster than the machine fills a buffer, or compute faster than a large product of
matrices runs. Measured at the start of a run in a process of its own:
`python -m harness.system.roofline FRAMEWORK DEVICE` prints one JSON object. The CPU is measured with NumPy, a GPU
with the first framework that sees one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.core.domain import usable_cores
from harness.frameworks.child_process import environment

FILL_BYTES = 256 << 20
MATRIX = 2048
REPEATS = 7


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
    """Measure in a fresh process; None if that fails, since a run can do without."""
    command = [sys.executable, "-P", "-m", "harness.system.roofline", framework, device]
    try:
        done = subprocess.run(
            command,
            env=environment(framework, device, threads),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return Roofline(**json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, IndexError, ValueError, TypeError):
        return None


def from_json(values: Mapping[str, Any] | None) -> Roofline | None:
    """What `run.json` stores, read back."""
    return Roofline(**values) if values else None


def _cpu() -> Roofline:
    cores = len(usable_cores())
    count = FILL_BYTES // 4
    matrix = np.random.default_rng(0).random((MATRIX, MATRIX), dtype=np.float32)
    product = np.empty_like(matrix)
    reused = np.zeros(count, np.float32)
    with ThreadPoolExecutor(cores) as pool:

        def fill(buffer: np.ndarray[Any, Any]) -> None:
            list(pool.map(lambda part: part.fill(1), np.array_split(buffer, cores)))

        return Roofline(
            fill_reused=FILL_BYTES / _fastest(lambda: fill(reused)),
            fill_fresh=FILL_BYTES / _typical(lambda: fill(np.empty(count, np.float32))),
            flops=2 * MATRIX**3 / _fastest(lambda: np.dot(matrix, matrix, out=product)),
        )


def _torch_gpu() -> Roofline:
    import torch

    def done(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            call()
            torch.cuda.synchronize()

        return run

    count = FILL_BYTES // 4
    matrix = torch.rand((MATRIX, MATRIX), device="cuda")
    reused = torch.zeros(count, device="cuda")
    return Roofline(
        fill_reused=FILL_BYTES / _fastest(done(lambda: reused.fill_(1))),
        fill_fresh=FILL_BYTES / _typical(done(lambda: torch.full((count,), 1.0, device="cuda"))),
        flops=2 * MATRIX**3 / _fastest(done(lambda: matrix @ matrix)),
    )


def _jax_gpu() -> Roofline:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")
    count = FILL_BYTES // 4
    matrix = jax.device_put(jnp.ones((MATRIX, MATRIX)), jax.devices("gpu")[0])
    fill = jax.jit(lambda value: jnp.full((count,), value))
    multiply = jax.jit(jnp.matmul)
    seconds = _typical(lambda: fill(1.0).block_until_ready())
    return Roofline(
        fill_reused=FILL_BYTES / seconds,  # XLA's pool hands the same memory out again
        fill_fresh=FILL_BYTES / seconds,
        flops=2 * MATRIX**3 / _fastest(lambda: multiply(matrix, matrix).block_until_ready()),
    )


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


if __name__ == "__main__":
    kind = _cpu if sys.argv[2] == "cpu" else {"torch": _torch_gpu, "jax": _jax_gpu}[sys.argv[1]]
    print(json.dumps(asdict(kind())))
