"""Every strategy on a device that is not the framework's first, as a GPU is: everything has to happen there.

JAX and TensorFlow divide the CPU into two devices; PyTorch computes with tensors that have a device and no values.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from harness import frameworks
from harness.core import find_strategies, find_workloads
from harness.core.problem import GraphProblem
from harness.core.strategy import Unsupported
from harness.core.workload import cast
from harness.frameworks import child_process
from harness.frameworks._tensorflow import BESIDE_THE_WORK
from harness.frameworks.base import Device, misplaced
from harness.measure.case import beside_the_device
from tests.bound import needs

WORKLOADS = {"jax": ("policy", "transformer-small"), "torch": ("policy", "cnn-small", "transformer-small")}


def placed(name: str, device: Device, adapter: frameworks.Adapter) -> dict[str, str]:
    """Case -> what of it does not lie on the device, or what it raised; of every strategy that runs at all."""
    found = {}
    for workload in map(find_workloads.find, WORKLOADS.get(name, ("policy",))):
        parameters = cast(workload.initial_parameters(0), "float32")
        batch = cast(workload.batches(0, 2, 1)[0], "float32")
        for strategy in find_strategies.discover().strategies:
            if strategy.framework != name or strategy.every_device or "compiled" in strategy.name:
                continue
            problem = adapter.bind(workload, parameters, device, 2)
            if isinstance(problem, GraphProblem):
                problem.config.device_count["CPU"] = 2  # a session divides the CPU by itself
            with adapter.scope(problem), adapter.placements() as operations:
                try:
                    step = strategy.build(problem)
                    output = adapter.wait(step(adapter.place(adapter.native(batch, workload.layouts), device)))
                    where = misplaced(adapter, output, device)
                except (Unsupported, ModuleNotFoundError):
                    continue
                except Exception as error:
                    where = f"{type(error).__name__}: {error}"[:300]
            elsewhere = beside_the_device(operations, device)
            where = where or elsewhere.all or elsewhere.some
            if "autocast" not in where:  # PyTorch has none for tensors without values, so nothing can be said
                found[f"{strategy.name} on {workload.name}"] = where
    return found


@needs("jax")
def test_jax_computes_on_the_second_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    found = child_process.call(f"{__file__}:jax_on_the_second", framework="jax")
    assert len(found) > 30
    assert {case: where for case, where in found.items() if where} == {}


def jax_on_the_second() -> dict[str, str]:
    adapter = frameworks.load("jax")
    return placed("jax", adapter.devices()[1], adapter)


@pytest.mark.parametrize("name", ["tf1", "tf2"])
@needs("tf2")
def test_tensorflow_computes_on_the_second_device(name: str) -> None:
    found = child_process.call(f"{__file__}:tensorflow_on_the_second", name, framework=name)
    assert len(found) > 5
    assert {case: where for case, where in found.items() if where} == {}


def tensorflow_on_the_second(name: str) -> dict[str, str]:
    import tensorflow as tf

    divide = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [divide(), divide()])
    adapter = frameworks.load(name)
    return placed(name, adapter.devices()[1], adapter)


@pytest.mark.parametrize("name", ["tf1", "tf2"])
@needs("tf2")
def test_what_tensorflow_computes_elsewhere_is_counted_and_named(name: str) -> None:
    nothing, some, everything = child_process.call(f"{__file__}:tensorflow_elsewhere", name, framework=name)
    assert nothing == ["", ""]
    assert everything[0]
    assert not everything[1]
    assert not some[0]
    # TensorFlow may make a graph for devices twice, and then all of it counts twice.
    assert re.search(r"operations of its graphs were computed elsewhere than on /device:CPU:1: Cumsum \(.\)$", some[1])


def tensorflow_elsewhere(name: str) -> list[list[str]]:
    """What is said of a graph that lies on the device wholly, in part, and not at all."""
    import tensorflow as tf

    divide = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [divide(), divide()])
    adapter = frameworks.load(name)
    first, second = adapter.devices()

    def computed(x: Any, *places: str) -> Any:
        for place in places:
            with tf.device(place):
                x = tf.cumsum(x)
        return x

    found = []
    for places in ((second.handle,), (second.handle, first.handle, second.handle), (first.handle,)):
        if name == "tf2":
            step = tf.function(lambda x, places=places: computed(x, *places))
            with tf.device(second.handle):
                x = tf.constant([1.0, 2.0])
            with adapter.placements() as placed:
                step(x)
        else:
            with tf.Graph().as_default() as graph:
                with tf.device(second.handle):
                    given = tf.compat.v1.placeholder(tf.float32, [2])
                y = computed(given, *places)
            with adapter.placements() as placed:
                config = tf.compat.v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
                call = tf.compat.v1.Session(graph=graph, config=config).make_callable(y, [given])
                call(np.ones(2, np.float32))
        found.append(list(beside_the_device(placed, second)))
    return found


@pytest.mark.parametrize("name", ["tf1", "tf2"])
@needs("tf2")
def test_tensorflow_has_a_gpu_kernel_for_every_operation_that_strategies_use(name: str) -> None:
    """By its registry, which knows of GPUs even where there is none."""
    found = child_process.call(f"{__file__}:without_gpu_kernel", name, framework=name)
    assert set(found) <= {"Pad"}  # of positions, which are int64


def without_gpu_kernel(name: str) -> dict[str, list[str]]:
    """Operation with its dtype -> strategies whose graphs hold it, of those that a GPU has no kernel for."""
    adapter = frameworks.load(name)
    device = adapter.device("cpu")
    workload = find_workloads.find("transformer-small")
    parameters = cast(workload.initial_parameters(0), "float32")
    batch = cast(workload.batches(0, 2, 1)[0], "float32")
    found: dict[str, list[str]] = {}
    for strategy in find_strategies.discover().strategies:
        if strategy.framework != name:
            continue
        problem: Any = adapter.bind(workload, parameters, device, 2)
        with adapter.scope(problem):
            try:
                step: Any = strategy.build(problem)
            except Unsupported:
                continue
            if name == "tf1":
                graph = problem.graph
            elif hasattr(step, "get_concrete_function"):
                graph = step.get_concrete_function(adapter.place(batch, device)).graph
            else:
                continue
        definition = graph.as_graph_def()
        for node in [*definition.node, *(node for one in definition.library.function for node in one.node_def)]:
            if node.op not in BESIDE_THE_WORK and not has_gpu_kernel(node):
                found.setdefault(node.op, []).append(strategy.name)
    return {operation: sorted(set(names)) for operation, names in found.items()}


def has_gpu_kernel(node: Any) -> bool:
    """Whether a kernel is registered for GPUs, or for all devices, that takes the dtypes of a node."""
    from tensorflow.python.framework import kernels

    for kernel in kernels.get_registered_kernels_for_op(node.op).kernel:
        if kernel.device_type in ("GPU", "DEFAULT") and all(
            limit.name not in node.attr
            or node.attr[limit.name].type in limit.allowed_values.list.type
            or node.attr[limit.name].list.type
            for limit in kernel.constraint
        ):
            return True
    return False


@needs("torch")
def test_pytorch_makes_no_tensor_beside_the_device() -> None:
    found = child_process.call(f"{__file__}:torch_without_values", framework="torch")
    assert len(found) > 30
    assert {case: where for case, where in found.items() if where} == {}


def torch_without_values() -> dict[str, str]:
    import torch

    return placed("torch", Device("cpu", "meta", torch.device("meta")), frameworks.load("torch"))


@needs("jax")
def test_a_result_may_be_spread_over_devices_only_where_its_strategy_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    spread, one = child_process.call(f"{__file__}:jax_sharded", framework="jax")
    assert spread == ""
    assert "lies on" in one


def jax_sharded() -> tuple[str, str]:
    """What is said of the sharded strategy's result where it may be spread over all devices, and where it may not."""
    adapter = frameworks.load("jax")
    device = adapter.devices()[0]
    workload = find_workloads.find("policy")
    problem = adapter.bind(workload, cast(workload.initial_parameters(0), "float32"), device, 2)
    batch = adapter.native(cast(workload.batches(0, 2, 1)[0], "float32"), workload.layouts)
    (strategy,) = [s for s in find_strategies.discover().strategies if s.name == "jax/sharded"]
    output = adapter.wait(strategy.build(problem)(adapter.place(batch, device)))
    return misplaced(adapter, output, device, every_device=True), misplaced(adapter, output, device)
