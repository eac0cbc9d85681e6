"""What the harness asks of a framework: bind a workload, place a batch, wait, fetch, name devices."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import Counter as Counter_
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.core.layouts import Layout
from harness.core.problem import Gradients, Losses, Problem, weights
from harness.core.workload import Arrays, Workload, cast, split
from harness.frameworks.instrumentation import Counter


class DeviceAbsent(Exception):
    """A device that was asked for and that the framework does not see; the message says what it does see."""


@dataclass(frozen=True)
class Device:
    """A device as a framework sees it: its kind (`cpu` or `gpu`), its name, and the framework's own handle."""

    kind: str
    name: str
    handle: Any


@dataclass(frozen=True)
class Kernels:
    """Calls that are timed for the roofline; each returns when its work is done."""

    fill_reused: Callable[[], Any]
    """Fill memory that was filled before."""
    fill_fresh: Callable[[], Any]
    """Fill memory that is taken for it."""
    multiply: Callable[[], Any]
    """Multiply two square matrices of the dtype."""
    nothing: Callable[[], Any] = lambda: None
    """Wait although nothing is pending: what each of the others takes in addition."""


class Adapter(ABC):
    """One framework. Creating an adapter imports the framework.

    Args:
        threads: how many threads the framework may use within one operation; None leaves its default.
    """

    name: str
    array_types: tuple[type, ...]
    """What a strategy may return as an array."""
    ops: Any
    """The framework's operations, a module of `harness.ops`."""
    reorders = False
    """Whether arrays with a layout are held in PyTorch's order instead of the canonical one."""

    def __init__(self, threads: int | None) -> None:
        self.limit = threads
        self.missing: dict[str, str] = {}
        """Kind of device -> why there is none of it, as far as the framework has said so to `devices`."""
        self.used: Device | None = None
        """The device that was asked for last, which is the one to wait for."""

    @staticmethod
    def environment(dtype: str = "float32", device: str = "any") -> dict[str, str]:
        """Environment variables that must be set before the framework is imported.

        Args:
            dtype: the dtype under test.
            device: the kind that will be used: `cpu`, `gpu`, or `any` to look at all there are.
        """
        return {}

    def hide_accelerators(self) -> None:
        """See to it that nothing but the CPU computes; called before anything has been computed."""

    def compiling(self) -> bool:
        """Whether a compiler is reading the Python code at this moment, instead of Python running it."""
        return False

    def count_compilations(self) -> Counter:
        """Start to count traces and compilations in this process."""
        return lambda: 0

    def hidden_loops(self, step: Callable[..., Any], batch: Any) -> int | None:
        """Loops in the compiled program of a step that is said to be vectorised; None where nobody can tell."""
        return None

    def kernels(self, device: Device, values: int, side: int, dtype: str = "float32") -> Kernels:
        """The fastest ways to fill memory and to multiply matrices, for the roofline.

        Args:
            values: how many float32 values are filled.
            side: rows and columns of the matrices.
            dtype: of the matrices.
        """
        raise NotImplementedError(f"{self.name} measures no roofline")

    @abstractmethod
    def devices(self) -> list[Device]:
        """All devices the framework sees, CPU first."""

    def device(self, kind: str) -> Device:
        """The first device of that kind, which is waited for from now on.

        Raises:
            DeviceAbsent: if the framework sees none.
        """
        seen = self.devices()
        for device in seen:
            if device.kind == kind:
                self.used = device
                return device
        raise DeviceAbsent(no_device(self.name, kind, [d.name for d in seen], self.missing.get(kind, "")))

    def bind(self, workload: Workload, parameters: Arrays, device: Device, batch_size: int) -> Problem:
        """The workload with its parameters on `device`; dtypes are those of `parameters`.

        Parameters that are not floating-point numbers are state: `losses` is given them, a strategy is not.
        """
        floats, state = split(self.native(parameters, workload.layouts))
        dtype = next(iter(floats.values())).dtype.name
        state |= self.native(cast(workload.state(), dtype), workload.layouts)
        weighting = cast({"weights": weights(batch_size)}, dtype)
        example = self.native(cast(workload.batches(seed=0, size=1, count=1)[0], dtype), workload.layouts)
        problem = replace(
            self._bind(workload, floats, state, device, batch_size),
            weights=self.place(weighting, device)["weights"],
            example=self.place(example, device),
            through_ops=workload.through_ops,
        )
        if state:
            problem.facts["not_differentiated"] = sorted(state)
        return problem

    @abstractmethod
    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        """`bind` with parameters in this framework's layout, split into what is differentiated and what is not."""

    @abstractmethod
    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """The batch, already in this framework's layout, as the framework's own arrays on `device`."""

    def native(self, arrays: Arrays, layouts: Mapping[str, Layout]) -> Arrays:
        """Canonical arrays in the layout of this framework; `layouts` are those of the workload."""
        if not self.reorders:
            return arrays
        return {name: layouts[name].reorder(a) if name in layouts else a for name, a in arrays.items()}

    def canonical(self, arrays: Arrays, layouts: Mapping[str, Layout]) -> Arrays:
        """The inverse of `native`, for fetched gradients: axes before those of the layout stay where they are."""
        if not self.reorders:
            return arrays
        return {name: layouts[name].restore(a) if name in layouts else a for name, a in arrays.items()}

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Mapping[str, Any]]:
        """The gradient of `function(parameters, *arguments) -> scalar` with respect to the parameters.

        The reference is computed with it: that of `numpy`, or of the framework a workload was written for.
        """
        raise NotImplementedError(f"{self.name} computes no reference")

    def readable(self, problem: Problem) -> Mapping[str, Any]:
        """The parameters whose values can be read from outside the strategy."""
        return problem.parameters

    def scope(self, problem: Problem) -> AbstractContextManager[Any]:
        """What a strategy's build and its steps run within."""
        return contextlib.nullcontext()

    @abstractmethod
    def wait(self, output: Gradients) -> Gradients:
        """Return `output` once every array in it has been computed, and all else on the device that is used."""

    @contextlib.contextmanager
    def placements(self) -> Iterator[Counter_[tuple[str, str]]]:
        """Collect where the operations of graphs are computed that run for the first time: (operation, device)."""
        yield Counter_()

    def holds(self, array: Any, devices: Sequence[Device]) -> bool:
        """Whether an array lies on these devices, wholly; those of frameworks without devices lie nowhere else."""
        return True

    @abstractmethod
    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """One array as NumPy, on the host."""

    def device_of(self, array: Any) -> str:
        """The name of the device that holds an array."""
        return "host memory"

    def start_memory(self, device: Device) -> None:
        """Remember what is taken of a device's memory and forget the peak so far; never called for the CPU."""

    def peak_memory(self, device: Device) -> int | None:
        """Peak bytes on a device since `start_memory`, above what was taken then; None where it is unknown."""
        return None

    def free_memory(self, device: Device) -> int | None:
        """Bytes of a device's memory that this process may still take; None where it is unknown."""
        return None

    def release_memory(self) -> None:
        """Give back what is kept of a device's memory without being used, after it has run out."""

    def threads(self) -> dict[str, int]:
        """The thread counts that are in force."""
        return {}


def no_device(framework: str, kind: str, seen: Sequence[str], why: str) -> str:
    """The sentence that says that a framework does not see a kind of device."""
    return f"{framework} sees no {kind} here, only: {', '.join(seen)}{why and f'; it says: {why}'}"


def misplaced(adapter: Adapter, output: Gradients, device: Device, every_device: bool = False) -> str:
    """The first array of a result that does not lie on the device of the task, in words; empty if all do.

    Args:
        every_device: whether the result may be spread over all devices of that kind.
    """
    allowed = [other for other in adapter.devices() if other.kind == device.kind] if every_device else [device]
    for name, values in rows(output):
        for value in values:
            if not adapter.holds(value, allowed):
                return f"{name} lies on {adapter.device_of(value)}, not on {device.name}"
    return ""


def with_state(losses: Losses, state: Mapping[str, Any]) -> Losses:
    """The losses as a function of what is differentiated alone."""
    if not state:
        return losses
    return lambda ops, parameters, batch: losses(ops, {**state, **parameters}, batch)


def rows(output: Gradients) -> Iterator[tuple[str, list[Any]]]:
    """Every parameter's arrays in `output`: one of shape (B, ...) or B without the batch axis."""
    if isinstance(output, Mapping):
        for name, value in output.items():
            yield name, [value]
    else:
        for name in output[0] if output else ():
            yield name, [row[name] for row in output]


def to_numpy(adapter: Adapter, output: Gradients) -> dict[str, np.ndarray[Any, Any]]:
    """Fetch per-instance gradients: `{name: (B, *parameter.shape)}`, whichever way a strategy returned them."""
    if isinstance(output, Mapping):
        return {name: adapter.numpy(value) for name, value in output.items()}
    return {name: np.stack([adapter.numpy(row) for row in values]) for name, values in rows(output)}


def first_array(output: Gradients) -> Any:
    """Some array of `output`, None if there is none."""
    for _, values in rows(output):
        return values[0]
    return None
