"""JAX: functions compiled by XLA, dispatched asynchronously."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.core.domain import usable_cores
from harness.core.framework import GPU_OUT_OF_MEMORY, Framework
from harness.core.problem import Gradients, Problem
from harness.core.workload import Arrays, Workload
from harness.frameworks.base import Adapter, Device, Kernels, with_state
from harness.frameworks.instrumentation import Count, Counter

FRAMEWORK = Framework(
    name="jax",
    label="JAX",
    package="jax",
    packages=("jax", "jaxlib"),
    extra="jax",
    start_s=2.0,
    light="#1546c4",
    dark="#6aa3ff",
    precision="full float32: TF32 is off for the process; 64-bit types only if asked for",
    autotuning="XLA chooses convolutions and products by trying, while it compiles",
    memory="XLA's own; GPU memory is not taken in advance",
    result="waited for on the device; NumPy is outside",
    out_of_memory=("RESOURCE_EXHAUSTED", "out of memory", "allocate memory", *GPU_OUT_OF_MEMORY),
    data_dependent=("TracerBoolConversion", "ConcretizationTypeError"),
    rooflines=("gpu",),
    gpu_install="'jax[cuda12]'",
    workload_template="jax",
)


class JaxAdapter(Adapter):
    """Arrays are `jax.Array`; waiting is `jax.block_until_ready`."""

    name = "jax"

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        import jax
        import jax.monitoring

        # Ampere and newer multiply float32 in TF32 unless told otherwise; all frameworks get full precision.
        jax.config.update("jax_default_matmul_precision", "highest")
        if os.environ.get("JAX_CPU_ENABLE_ASYNC_DISPATCH") == "false":
            # JAX itself reads no variable for it, and after its first look at devices it is too late.
            jax.config.update("jax_cpu_enable_async_dispatch", False)
        self.jax = jax
        self.array_types = (jax.Array,)
        self.ops = importlib.import_module("harness.ops.jax")

    @staticmethod
    def environment(dtype: str = "float32", device: str = "any") -> dict[str, str]:
        """No preallocation of GPU memory, and all of it if needed; float64 stays float64 if asked for, and only then.

        JAX starts every platform it knows, whichever is asked for, and one that fails takes the others with it: for
        the CPU no other is started. A GPU that was asked for has to start.
        """
        variables = {
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",  # the limit otherwise is 75 %, which others do not have
            "JAX_ENABLE_X64": "1" if dtype == "float64" else "0",
        }
        if device != "any":
            variables["JAX_PLATFORMS"] = "cpu" if device == "cpu" else f"{_gpu_platform()},cpu"
        return variables

    def count_compilations(self) -> Counter:
        """Compilations by XLA."""
        count = Count()

        def listen(event: str, duration: float, **_: Any) -> None:
            if event == "/jax/core/compile/backend_compile_duration":
                count.add()

        self.jax.monitoring.register_event_duration_secs_listener(listen)
        return count.read

    def kernels(self, device: Device, values: int, side: int, dtype: str = "float32") -> Kernels:
        """Compiled fills and products. XLA's pool hands the same memory out again, so both fills are one."""
        jax, jnp = self.jax, self.jax.numpy
        matrix = jax.device_put(jnp.ones((side, side), dtype), device.handle)
        fill, multiply = jax.jit(lambda value: jnp.full((values,), value)), jax.jit(jnp.matmul)
        one = jax.device_put(1.0, device.handle)

        def filled() -> Any:
            return fill(one).block_until_ready()

        return Kernels(filled, filled, lambda: multiply(matrix, matrix).block_until_ready(), one.block_until_ready)

    def devices(self) -> list[Device]:
        """CPU devices, then GPUs if a plugin for them is installed."""
        found = []
        for kind in ("cpu", "gpu"):
            try:
                handles = self.jax.devices(kind)
            except RuntimeError as error:  # no such platform is present, or any of them has failed to start
                self.missing[kind] = str(error).strip().partition("\n")[0]
                continue
            found += [Device(kind, f"{handle.device_kind} {handle}", handle) for handle in handles]
        return found

    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        # Parameters are committed to the device, so everything computed from them stays there.
        placed, constants = self.jax.device_put((floats, state), device.handle)
        return Problem(placed, batch_size, device.handle, self.ops, with_state(workload.losses, constants))

    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """The batch, committed to `device`."""
        placed: Mapping[str, Any] = self.jax.block_until_ready(self.jax.device_put(batch, device.handle))
        return placed

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
        """`jax.grad`, compiled if the function can be: one that branches on values in Python is evaluated eagerly."""
        eager: Callable[..., Mapping[str, Any]] = self.jax.grad(function)
        compiled = self.jax.jit(eager)
        traceable = True

        def gradients(*arguments: Any) -> Mapping[str, Any]:
            nonlocal traceable
            if traceable:
                try:
                    return compiled(*arguments)  # type: ignore[no-any-return]
                except (self.jax.errors.JAXTypeError, self.jax.errors.JAXIndexError):  # needs a value while it traces
                    traceable = False
            return eager(*arguments)

        return gradients

    def wait(self, output: Gradients) -> Gradients:
        """Block until every leaf is ready."""
        return self.jax.block_until_ready(output)  # type: ignore[no-any-return]

    def holds(self, array: Any, devices: Sequence[Device]) -> bool:
        """Whether the array is on these devices, over which it may be sharded, and on no other."""
        return bool(array.devices() <= {device.handle for device in devices})

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        return np.asarray(array)

    def device_of(self, array: Any) -> str:
        """The devices that hold the array."""
        return ", ".join(sorted(str(device) for device in array.devices()))

    def start_memory(self, device: Device) -> None:
        """Read the counters: JAX cannot reset its peak, which is the whole process's."""
        self._before = device.handle.memory_stats() or {}

    def peak_memory(self, device: Device) -> int | None:
        """Peak of the allocator above its state at `start_memory`; None unless it is higher than any earlier peak."""
        before, now = self._before.get("peak_bytes_in_use"), (device.handle.memory_stats() or {})
        peak = now.get("peak_bytes_in_use")
        if peak is None or before is None or peak <= before:
            return None
        return int(peak - self._before["bytes_in_use"])

    def free_memory(self, device: Device) -> int | None:
        """The limit of XLA's allocator without what is in use."""
        found = device.handle.memory_stats() or {}
        return found["bytes_limit"] - found["bytes_in_use"] if "bytes_limit" in found else None

    def threads(self) -> dict[str, int]:
        """XLA's pool on the CPU has one thread per core that this process may run on."""
        return {"xla_cpu_pool": len(usable_cores())}


def _gpu_platform() -> str:
    """JAX's name of the platform of GPUs, by the plugin that is installed."""
    rocm = any(module.name.startswith("jax_rocm") for module in pkgutil.iter_modules())
    return "rocm" if rocm else "cuda"


ADAPTER = JaxAdapter
