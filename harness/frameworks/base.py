"""What the harness asks of a framework: bind a workload, place a batch, wait, fetch, name devices."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.problem import Gradients, Problem
from harness.workloads import Arrays, Workload


class DeviceAbsent(Exception):
    """A device that was asked for and that the framework does not see; the message says what it does see."""


@dataclass(frozen=True)
class Device:
    """A device as a framework sees it: its kind (`cpu` or `gpu`), its name, and the framework's own handle."""

    kind: str
    name: str
    handle: Any


class Adapter(ABC):
    """One framework. Creating an adapter imports the framework.

    Args:
        threads: how many threads the framework may use within one operation; None leaves its default.
    """

    name: str

    def __init__(self, threads: int | None) -> None:
        self.limit = threads

    @staticmethod
    def environment() -> dict[str, str]:
        """Environment variables that must be set before the framework is imported."""
        return {}

    @abstractmethod
    def devices(self) -> list[Device]:
        """All devices the framework sees, CPU first."""

    def device(self, kind: str) -> Device:
        """The first device of that kind.

        Raises:
            DeviceAbsent: if the framework sees none.
        """
        seen = self.devices()
        for device in seen:
            if device.kind == kind:
                return device
        raise DeviceAbsent(f"{self.name} sees no {kind} here, only: {', '.join(d.name for d in seen)}")

    @abstractmethod
    def bind(self, workload: Workload, parameters: Arrays, device: Device, batch_size: int) -> Problem:
        """The workload with its parameters on `device`; dtypes are those of `parameters`."""

    @abstractmethod
    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """The batch as the framework's own arrays on `device`."""

    def scope(self, problem: Problem) -> AbstractContextManager[Any]:
        """What a strategy's build and its steps run within."""
        return contextlib.nullcontext()

    @abstractmethod
    def wait(self, output: Gradients) -> Gradients:
        """Return `output` once every array in it has been computed."""

    @abstractmethod
    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """One array as NumPy, on the host."""

    def device_of(self, array: Any) -> str:
        """The name of the device that holds an array."""
        return "host memory"

    def start_memory(self, device: Device) -> None:
        """Forget the peak so far of memory on a device other than the CPU."""

    def peak_memory(self, device: Device) -> int | None:
        """Peak bytes on a device other than the CPU since `start_memory`; None where it is unknown."""
        return None

    def threads(self) -> dict[str, int]:
        """The thread counts that are in force."""
        return {}


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
