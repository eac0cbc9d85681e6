"""A GPU that nobody has: two devices that compute asynchronously, in order, with little memory each.

Arrays are handles; a thread per device computes them one after the other, as a stream does. What reads a handle on the
host waits for it, as a copy from a real device would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.core.problem import Batch, Gradients, Losses, Problem, Step
from harness.core.workload import Arrays, Workload
from harness.frameworks.base import Device, with_state
from harness.frameworks.numpy import NumpyAdapter

Values = "np.ndarray[Any, Any]"


@dataclass
class Card:
    """One device: its stream, and its memory in bytes."""

    name: str
    limit: int = 1 << 20
    used: int = 0
    peak: int = 0
    stream: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def take(self, size: int) -> None:
        """Take memory, or fail as CUDA does."""
        if self.used + size > self.limit:
            raise RuntimeError(f"CUDA out of memory. Tried to allocate {size} bytes")
        self.used += size
        self.peak = max(self.peak, self.used)

    def drain(self) -> None:
        """Wait for everything that was given to it."""
        self.stream.submit(lambda: None).result()


class Handle:
    """An array on a card; its memory is free when nobody holds it."""

    def __init__(self, card: Card, size: int, compute: Callable[[], Any], dtype: Any = None) -> None:
        card.take(size)
        self.card, self.size, self.dtype = card, size, dtype
        self.future: Future[Any] = card.stream.submit(compute)

    def __del__(self) -> None:
        if hasattr(self, "size"):
            self.card.used -= self.size

    def read(self) -> Any:
        """The values, when they are there."""
        return self.future.result()


@dataclass
class Kernel:
    """How the honest strategy below is spoilt; by default it is not.

    Attributes:
        cost_s: what computing every parameter's gradient takes.
        output: the card that the result is put on, if not the problem's.
        only: the one parameter whose gradient is put there; all if None.
        scratch: bytes that a call takes and gives back.
    """

    cost_s: float = 0.004
    output: Card | None = None
    only: str | None = None
    scratch: int = 0


class FakeGpuAdapter(NumpyAdapter):
    """NumPy on such devices."""

    name = "numpy"
    array_types = (Handle,)

    def __init__(self, copies_s: float = 0.0, tells_memory: bool = True) -> None:
        super().__init__(None)
        self.host, self.cards = Card("cpu", 1 << 40), (Card("gpu:0"), Card("gpu:1"))
        self.copies_s, self.tells_memory = copies_s, tells_memory

    def devices(self) -> list[Device]:
        return [Device("cpu", "cpu", self.host), *(Device("gpu", card.name, card) for card in self.cards)]

    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        losses: Losses = with_state(workload.losses, state)
        return Problem(self.place(floats, device), batch_size, device.handle, self.ops, losses)

    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        return {
            name: Handle(device.handle, value.nbytes, lambda value=value: value, value.dtype)
            for name, value in batch.items()
        }

    def wait(self, output: Gradients) -> Gradients:
        assert self.used is not None
        self.used.handle.drain()
        return output

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        array.card.drain()
        time.sleep(self.copies_s)
        return np.array(array.read())

    def device_of(self, array: Any) -> str:
        return str(array.card.name)

    def holds(self, array: Any, devices: Sequence[Device]) -> bool:
        return any(array.card is device.handle for device in devices)

    def start_memory(self, device: Device) -> None:
        device.handle.peak = self._before = device.handle.used

    def peak_memory(self, device: Device) -> int | None:
        return device.handle.peak - self._before if self.tells_memory else None

    def free_memory(self, device: Device) -> int | None:
        return device.handle.limit - device.handle.used if self.tells_memory else None


def strategy(kernel: Kernel) -> Callable[[Problem], Step]:
    """Per-instance gradients on a card: one kernel per parameter, given to the stream and not waited for."""

    def build(problem: Problem) -> Step:
        from autograd import grad

        row = grad(problem.loss)

        def computed(name: str, batch: Mapping[str, Handle]) -> Any:
            time.sleep(kernel.cost_s)
            parameters = {key: handle.read() for key, handle in problem.parameters.items()}
            instances = [{key: handle.read()[i] for key, handle in batch.items()} for i in range(problem.batch_size)]
            return np.stack([row(parameters, instance)[name] for instance in instances])

        def step(batch: Batch) -> Gradients:
            elsewhere = kernel.output or problem.device
            scratch = Handle(problem.device, kernel.scratch, lambda: None)
            output = {
                name: Handle(
                    elsewhere if kernel.only in (None, name) else problem.device,
                    problem.batch_size * handle.size,
                    lambda name=name: computed(name, batch),
                )
                for name, handle in problem.parameters.items()
            }
            del scratch
            return output

        return step

    return build
