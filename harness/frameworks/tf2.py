"""TensorFlow 2: tapes and `tf.function`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from harness.core.framework import Framework
from harness.core.problem import Gradients, Problem
from harness.core.workload import Arrays, Workload
from harness.frameworks import instrumentation
from harness.frameworks._tensorflow import TENSORFLOW, TensorFlowAdapter, add_placements
from harness.frameworks.base import Device, with_state

FRAMEWORK = Framework(
    name="tf2",
    label="TensorFlow 2",
    light="#a7108f",
    dark="#ff5fa8",
    result="waited for on the device; NumPy is outside",
    **TENSORFLOW,
)


class TensorFlow2Adapter(TensorFlowAdapter):
    """Arrays are `tf.Tensor`, parameters are `tf.Variable`."""

    name = "tf2"

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        self.array_types = (self.tf.Tensor,)

    def count_compilations(self) -> instrumentation.Counter:
        """Traces of `tf.function`: each, and each call of `tf.vectorized_map` outside one, makes a FuncGraph.

        TensorFlow has no public counter that covers functions which a strategy keeps to itself.
        """
        from tensorflow.python.framework.func_graph import FuncGraph

        count = instrumentation.Count()
        original = FuncGraph.__init__

        def counted(graph: Any, *arguments: Any, **keywords: Any) -> None:
            count.add()
            original(graph, *arguments, **keywords)

        FuncGraph.__init__ = counted
        return count.read

    def hidden_loops(self, step: Callable[..., Any], batch: Any) -> int | None:
        """`While` nodes in the graph of a `tf.function`: what `tf.vectorized_map` cannot convert becomes a loop."""
        if not hasattr(step, "get_concrete_function"):
            return None
        graph = step.get_concrete_function(batch).graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return sum(node.op in ("While", "StatelessWhile") for node in nodes)

    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        with self.tf.device(device.handle):
            variables = {name: self.tf.Variable(value) for name, value in floats.items()}
            constants = {name: self.tf.constant(value) for name, value in state.items()}
        return Problem(variables, batch_size, device.handle, self.ops, with_state(workload.losses, constants))

    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """The batch as constants on `device`."""
        with self.tf.device(device.handle):
            placed = {name: self.tf.constant(value) for name, value in batch.items()}
        self.wait(placed)
        return placed

    def scope(self, problem: Problem) -> AbstractContextManager[Any]:
        """Operations are placed on the problem's device; the first CPU is where they are placed anyway."""
        scope: AbstractContextManager[Any] = self.tf.device(problem.device)
        return contextlib.nullcontext() if problem.device == "/device:CPU:0" else scope

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
        """`GradientTape.gradient`, eagerly; the gradient of a lookup becomes a dense array."""

        def gradients(parameters: Mapping[str, Any], *arguments: Any) -> Mapping[str, Any]:
            with self.tf.GradientTape() as tape:
                value = function(parameters, *arguments)
            found = tape.gradient(value, parameters, unconnected_gradients="zero")
            return {name: self.tf.convert_to_tensor(array) for name, array in found.items()}

        return gradients

    def wait(self, output: Gradients) -> Gradients:
        """A GPU is synchronised; a `tf.function` on the CPU returns when its work is done."""
        if self.used is not None and self.used.kind == "gpu":
            with self.tf.device(self.used.handle):
                self.tf.raw_ops.SyncDevice()
        return output

    @contextlib.contextmanager
    def placements(self) -> Iterator[Counter[tuple[str, str]]]:
        """A function keeps where its operations are when it is called for the first time."""
        found = Counter[tuple[str, str]]()
        context = self._context()
        context.enable_graph_collection()
        try:
            yield found
        finally:
            collected = context.export_run_metadata()
            context.disable_graph_collection()
            add_placements(found, collected.partition_graphs if collected else ())

    def _context(self) -> Any:
        from tensorflow.python.eager import context

        return context.context()

    def holds(self, array: Any, devices: Sequence[Device]) -> bool:
        """Whether the tensor is on one of these devices."""
        return any(self.device_of(array) == device.handle for device in devices)

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        values: np.ndarray[Any, Any] = array.numpy()
        return values

    def device_of(self, array: Any) -> str:
        """The tensor's device without the job and task."""
        return "/device:" + str(array.device).rpartition("/device:")[2]

    def peak_memory(self, device: Device) -> int | None:
        """Peak of TensorFlow's GPU allocator above what was taken at `start_memory`."""
        return int(self.tf.config.experimental.get_memory_info(device.handle[-5:])["peak"] - self._before)

    def start_memory(self, device: Device) -> None:
        """Reset that peak."""
        self.tf.config.experimental.reset_memory_stats(device.handle[-5:])
        self._before = self.tf.config.experimental.get_memory_info(device.handle[-5:])["current"]


ADAPTER = TensorFlow2Adapter
