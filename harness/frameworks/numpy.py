"""NumPy with HIPS autograd: the framework of the reference, and the baseline without a framework."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from harness.core.domain import usable_cores
from harness.core.framework import Framework
from harness.core.problem import Gradients, Problem
from harness.core.workload import Arrays, Workload
from harness.frameworks.base import Adapter, Device, Kernels, with_state

FRAMEWORK = Framework(
    name="numpy",
    label="NumPy",
    package="autograd",
    packages=("numpy", "scipy", "autograd"),
    start_s=1.0,
    light="#33363b",
    dark="#d9dbdf",
    precision="full float32",
    memory="the C library's",
    result="NumPy from the start",
    stays_on_device=False,
    rooflines=("cpu",),
    workload_template="numpy",
)


class NumpyAdapter(Adapter):
    """Arrays are `numpy.ndarray`, differentiated by tracing; everything is synchronous."""

    name = "numpy"
    array_types = (np.ndarray, np.generic)

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        import autograd.numpy  # noqa: F401  an ImportError belongs here, not into the first use

        self.ops = importlib.import_module("harness.ops.numpy")

    @staticmethod
    def environment(dtype: str = "float32", device: str = "any") -> dict[str, str]:
        """Idle threads of OpenBLAS sleep after 2^22 cycles, 1 to 2 ms, not after 2^28 (OpenBLAS issue 5171).

        Otherwise they spin on after a turn, on cores that the next strategy needs: 30 to 90 ms of CPU time were seen.
        """
        return {"OPENBLAS_THREAD_TIMEOUT": os.environ.get("OPENBLAS_THREAD_TIMEOUT", "22")}

    def kernels(self, device: Device, values: int, side: int, dtype: str = "float32") -> Kernels:
        """Fills by as many threads as there are cores, and the product of the BLAS."""
        cores = len(usable_cores())
        matrix = np.random.default_rng(0).random((side, side)).astype(dtype)
        product, reused = np.empty_like(matrix), np.zeros(values, np.float32)
        pool = ThreadPoolExecutor(cores)

        def fill(buffer: np.ndarray[Any, Any]) -> None:
            list(pool.map(lambda part: part.fill(1), np.array_split(buffer, cores)))

        return Kernels(
            lambda: fill(reused),
            lambda: fill(np.empty(values, np.float32)),
            lambda: np.dot(matrix, matrix, out=product),
        )

    def devices(self) -> list[Device]:
        """The CPU."""
        return [Device("cpu", "cpu", "cpu")]

    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        return Problem(floats, batch_size, device.handle, self.ops, with_state(workload.losses, state))

    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """The batch itself."""
        return batch

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
        """`autograd.grad`."""
        from autograd import grad

        traced: Callable[..., Mapping[str, Any]] = grad(function)
        return traced

    def wait(self, output: Gradients) -> Gradients:
        """NumPy computes before it returns."""
        return output

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """The array itself."""
        return np.asarray(array)

    def threads(self) -> dict[str, int]:
        """Threads of every BLAS that is loaded."""
        import threadpoolctl

        return {pool["internal_api"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}


ADAPTER = NumpyAdapter
