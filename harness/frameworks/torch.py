"""PyTorch: eager operations and `torch.func`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from harness.core import torch_module
from harness.core.framework import GPU_OUT_OF_MEMORY, Framework
from harness.core.problem import Problem
from harness.core.workload import Arrays, Workload
from harness.frameworks.base import Adapter, Device, Kernels, with_state
from harness.frameworks.instrumentation import Counter

FRAMEWORK = Framework(
    name="torch",
    label="PyTorch",
    package="torch",
    packages=("torch",),
    extra="torch",
    start_s=3.0,
    light="#0c7b56",
    dark="#4be3a4",
    precision="full float32: TF32 is off for the process, and in matmul and cuDNN; bfloat16 adds up in float32",
    autotuning="cuDNN chooses convolutions by trying, in the warm-up",
    memory="PyTorch's own",
    result="waited for on the device; NumPy is outside",
    out_of_memory=("out of memory", "OutOfMemory", "not enough memory", "allocate memory", *GPU_OUT_OF_MEMORY),
    data_dependent=("data-dependent control flow",),
    untransformable=(
        *("^\\w+: vmap: ", "Batching rule not implemented", "doesn't match the broadcast shape"),
        *("saved tensor hooks", "setup_context", "being transformed by a functorch transform", "use_reentrant=True"),
        *("would mutate a captured Tensor", "data pointer of Tensor that doesn't have storage"),
        *("to have the same dtype, but got", "expected scalar type \\w+ but found"),
        *("unsupported for Sparse tensors", "NestedTensorImpl doesn't support"),
    ),
    rooflines=("gpu",),
    gpu_install="torch --index-url https://download.pytorch.org/whl/cu126",
    workload_template="torch",
)


class TorchAdapter(Adapter):
    """Arrays are `torch.Tensor`; the CPU computes synchronously, CUDA is synchronised."""

    name = "torch"
    reorders = True
    _hidden = False

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = False  # all frameworks get full float32 precision
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cudnn.benchmark = True  # shapes are fixed; XLA and TensorFlow choose by trying, too
        self.torch = torch
        self.array_types = (torch.Tensor,)
        self.ops = importlib.import_module("harness.ops.torch")

    def count_compilations(self) -> Counter:
        """Graphs of `torch.compile`."""

        def read() -> int:
            dynamo = sys.modules.get("torch._dynamo.utils")
            return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0

        return read

    def kernels(self, device: Device, values: int, side: int, dtype: str = "float32") -> Kernels:
        """Fills and products on a GPU, each synchronised."""
        torch = self.torch
        matrix = torch.rand((side, side), device=device.handle, dtype=getattr(torch, dtype))
        reused = torch.zeros(values, device=device.handle)

        def done(call: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                call()
                torch.cuda.synchronize(device.handle)

            return run

        return Kernels(
            done(lambda: reused.fill_(1)),
            done(lambda: torch.full((values,), 1.0, device=device.handle)),
            done(lambda: matrix @ matrix),
            done(lambda: None),
        )

    def hide_accelerators(self) -> None:
        """CUDA is not asked for."""
        self._hidden = True

    def devices(self) -> list[Device]:
        """The CPU, then every CUDA device; that one cannot be started is a reason, no failure."""
        torch, gpus = self.torch, list[Device]()
        if self._hidden:
            return [Device("cpu", "cpu", torch.device("cpu"))]
        try:
            torch.cuda.init()  # `device_count` may count by the driver's library what CUDA cannot start
            for index in range(torch.cuda.device_count()):
                name = torch.cuda.get_device_name(index)
                gpus.append(Device("gpu", f"{name} cuda:{index}", torch.device("cuda", index)))
        except Exception as error:  # a build without CUDA raises AssertionError, a driver that is too old RuntimeError
            self.missing["gpu"] = str(error).strip().partition("\n")[0]
        return [Device("cpu", "cpu", torch.device("cpu")), *gpus]

    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        # Parameters are plain tensors that do not require a gradient, as `torch.func` wants them.
        parameters, constants = self._tensors(floats, device), self._tensors(state, device)
        losses = with_state(workload.losses, constants)
        module = workload.module
        if module is not None:
            module = replace(module, model=partial(torch_module.copy_with, module, {**constants, **parameters}))
        return Problem(parameters, batch_size, device.handle, self.ops, losses, module=module)

    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """The batch as tensors that own their memory."""
        placed = self._tensors(batch, device)
        self.wait(placed)
        return placed

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
        """`backward`, eagerly: it takes whatever a training loop takes, and `torch.func` does not."""
        torch = self.torch

        def gradients(parameters: Mapping[str, Any], *arguments: Any) -> Mapping[str, Any]:
            leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            value = function(leaves, *arguments)
            if value.requires_grad:  # otherwise no parameter takes part
                value.backward()
            zeros = {name: torch.zeros_like(leaf) for name, leaf in leaves.items() if leaf.grad is None}
            return zeros | {name: leaf.grad.to_dense() for name, leaf in leaves.items() if leaf.grad is not None}

        return gradients

    def compiling(self) -> bool:
        """While `torch.compile` traces."""
        return bool(self.torch.compiler.is_compiling())

    def wait(self, output: Any) -> Any:
        """Synchronise the CUDA device; on the CPU nothing is pending."""
        if self.used is not None and self.used.kind == "gpu":
            self.torch.cuda.synchronize(self.used.handle)
        return output

    def holds(self, array: Any, devices: Sequence[Device]) -> bool:
        """Whether the tensor is on one of these devices."""
        return any(array.device == device.handle for device in devices)

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        if array.dtype == self.torch.bfloat16:  # PyTorch does not know NumPy's bfloat16, which is ml_dtypes'
            return self.numpy(array.float()).astype("bfloat16")
        values: np.ndarray[Any, Any] = array.detach().cpu().numpy()
        return values

    def device_of(self, array: Any) -> str:
        """The tensor's device."""
        return str(array.device)

    def start_memory(self, device: Device) -> None:
        """Reset the peak of the caching allocator."""
        self.torch.cuda.reset_peak_memory_stats(device.handle)
        self._before = self.torch.cuda.memory_allocated(device.handle)

    def peak_memory(self, device: Device) -> int | None:
        """Peak of the caching allocator above its state at `start_memory`."""
        return int(self.torch.cuda.max_memory_allocated(device.handle) - self._before)

    def free_memory(self, device: Device) -> int | None:
        """What CUDA has free, and what the caching allocator keeps without using it."""
        cuda = self.torch.cuda
        kept = cuda.memory_reserved(device.handle) - cuda.memory_allocated(device.handle)
        return int(cuda.mem_get_info(device.handle)[0] + kept)

    def release_memory(self) -> None:
        """Empty the caching allocator."""
        self.torch.cuda.empty_cache()

    def threads(self) -> dict[str, int]:
        """Threads within one operation and between operations."""
        return {"intra_op": self.torch.get_num_threads(), "inter_op": self.torch.get_num_interop_threads()}

    def _tensors(self, arrays: Arrays, device: Device) -> dict[str, Any]:
        return {name: self._tensor(value).to(device.handle) for name, value in arrays.items()}

    def _tensor(self, array: np.ndarray[Any, Any]) -> Any:
        array = np.array(array, order="C")  # a reordered array is a view, whose strides PyTorch would keep
        if array.dtype.name == "bfloat16":
            return self.torch.tensor(array.astype(np.float32)).to(self.torch.bfloat16)
        if np.issubdtype(array.dtype, np.integer):
            return self.torch.tensor(array, dtype=self.torch.int64)  # what its losses want labels to be
        return self.torch.tensor(array)


ADAPTER = TorchAdapter
