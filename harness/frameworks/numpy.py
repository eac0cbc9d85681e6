"""NumPy with HIPS autograd: the framework of the reference, and the baseline without a framework."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.core.problem import Gradients, Problem
from harness.core.workload import Arrays, Workload
from harness.frameworks.base import Adapter, Device, with_state


class NumpyAdapter(Adapter):
    """Arrays are `numpy.ndarray`, differentiated by tracing; everything is synchronous."""

    name = "numpy"
    array_types = (np.ndarray, np.generic)

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        import autograd.numpy  # noqa: F401  an ImportError belongs here, not into the first use

        self.ops = importlib.import_module("harness.ops.numpy")

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
