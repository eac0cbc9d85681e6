"""Every strategy on a device that is not the framework's first, as a GPU is: everything has to happen there.

JAX and TensorFlow divide the CPU into two devices; PyTorch computes with tensors that have a device and no values.
"""

from __future__ import annotations

import pytest

from harness import frameworks
from harness.core import find_strategies, find_workloads
from harness.core.strategy import Unsupported
from harness.core.workload import cast
from harness.frameworks import child_process
from harness.frameworks.base import Device, misplaced
from tests.bound import needs

WORKLOADS = ("policy", "cnn-small", "transformer-small")


def placed(name: str, device: Device, adapter: frameworks.Adapter) -> dict[str, str]:
    """Case -> what of it does not lie on the device, or what it raised; of every strategy that runs at all."""
    found = {}
    for workload in map(find_workloads.find, WORKLOADS):
        parameters = cast(workload.initial_parameters(0), "float32")
        batch = cast(workload.batches(0, 2, 1)[0], "float32")
        for strategy in find_strategies.discover().strategies:
            if strategy.framework != name or strategy.every_device or "compiled" in strategy.name:
                continue
            problem = adapter.bind(workload, parameters, device, 2)
            with adapter.scope(problem):
                try:
                    step = strategy.build(problem)
                    output = adapter.wait(step(adapter.place(adapter.native(batch, workload.layouts), device)))
                    where = misplaced(adapter, output, device)
                except (Unsupported, ModuleNotFoundError):
                    continue
                except Exception as error:
                    where = f"{type(error).__name__}: {error}"[:300]
                if "autocast" not in where:  # PyTorch has none for tensors without values, so nothing can be said
                    found[f"{strategy.name} on {workload.name}"] = where
    return found


@needs("jax")
def test_jax_computes_on_the_second_device_and_leaves_nothing_on_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
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


@needs("torch")
def test_pytorch_makes_no_tensor_beside_the_device() -> None:
    found = child_process.call(f"{__file__}:torch_without_values", framework="torch")
    assert len(found) > 30
    assert {case: where for case, where in found.items() if where} == {}


def torch_without_values() -> dict[str, str]:
    import torch

    return placed("torch", Device("cpu", "meta", torch.device("meta")), frameworks.load("torch"))
