"""TensorFlow 2: tapes and `tf.function`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from harness.core.framework import Framework
from harness.core.problem import Gradients, Problem
from harness.core.workload import Arrays, Workload
from harness.frameworks._tensorflow import TENSORFLOW, TensorFlowAdapter
from harness.frameworks.base import Device, first_array, with_state
from harness.frameworks.instrumentation import Count, Counter

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

    def count_compilations(self) -> Counter:
        """Traces of `tf.function`: each, and each call of `tf.vectorized_map` outside one, makes a FuncGraph.

        TensorFlow has no public counter that covers functions which a strategy keeps to itself.
        """
        from tensorflow.python.framework.func_graph import FuncGraph

        count = Count()
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
            return {name: self.tf.constant(value) for name, value in batch.items()}

    def scope(self, problem: Problem) -> AbstractContextManager[Any]:
        """Operations are placed on the problem's device."""
        scope: AbstractContextManager[Any] = self.tf.device(problem.device)
        return scope if "GPU" in problem.device else contextlib.nullcontext()

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
        array = first_array(output)
        if array is not None and "GPU" in array.device:
            self.tf.test.experimental.sync_devices()
        return output

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        values: np.ndarray[Any, Any] = array.numpy()
        return values

    def device_of(self, array: Any) -> str:
        """The tensor's device without the job and task."""
        return "/device:" + str(array.device).rpartition("/device:")[2]

    def peak_memory(self, device: Device) -> int | None:
        """Peak of TensorFlow's GPU allocator."""
        if device.kind != "gpu":
            return None
        return int(self.tf.config.experimental.get_memory_info(f"GPU:{device.name[-1]}")["peak"])

    def start_memory(self, device: Device) -> None:
        """Reset that peak."""
        if device.kind == "gpu":
            self.tf.config.experimental.reset_memory_stats(f"GPU:{device.name[-1]}")


ADAPTER = TensorFlow2Adapter
