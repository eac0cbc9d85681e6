"""Who is measured on what: a task with its strategy, workload and device, and what counts beside the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.problem import Batch, Gradients, Losses, Parameters, Problem
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.core.workload import Arrays, Workload, cast
from harness.frameworks import Adapter, Device, instrumentation
from harness.frameworks.base import to_numpy
from harness.reference import files


class Evaluations:
    """Counts how often Python evaluates a workload's losses; compiled code does that when it is traced only.

    While `torch.compile` traces, nothing is counted: a count that changes would be a reason to compile again.
    """

    def __init__(self) -> None:
        self.count = 0

    def counted(self, losses: Losses, compiling: Callable[[], bool]) -> Losses:
        """The same losses, counted."""

        def evaluate(ops: Any, parameters: Parameters, batch: Batch) -> Any:
            if not compiling():
                self.count += 1
            return losses(ops, parameters, batch)

        return evaluate


@dataclass(frozen=True)
class Instruments:
    """Counters of compilations, forks and evaluations, for the life of a worker."""

    compilations: instrumentation.Counter
    forks: instrumentation.Counter
    evaluations: Evaluations


@dataclass(frozen=True)
class Subject:
    """Who is measured on what: a task with everything it names, loaded."""

    task: Task
    strategy: Strategy
    workload: Workload
    adapter: Adapter
    device: Device
    instruments: Instruments

    def bind(self, batch_size: int) -> Problem:
        """The problem that the strategy is given; evaluations of its loss are counted."""
        losses = self.instruments.evaluations.counted(self.workload.losses, self.adapter.compiling)
        counted = replace(self.workload, losses=losses)
        return self.adapter.bind(counted, self.parameters(), self.device, batch_size)

    @property
    def inputs_travel(self) -> bool:
        """Whether parameters and batches are read beside the reference: what a GPU draws differs from a CPU's."""
        return self.device.kind != "cpu"

    def _inputs(self, batch_size: int) -> files.Inputs | None:
        path = self.task.references.get(batch_size)
        return files.load_inputs(Path(path), self.task.dtype) if path and self.inputs_travel else None

    def parameters(self) -> Arrays:
        """The parameters as NumPy, in the dtype under test."""
        if inputs := self._inputs(min(self.task.references, default=0)):
            return inputs.parameters
        return cast(self.workload.initial_parameters(self.task.seed), self.task.dtype)

    def drawn(self, batch_size: int, count: int) -> list[Arrays]:
        """The batches that the inputs rotate through, as NumPy, in the dtype under test."""
        if inputs := self._inputs(batch_size):
            return list(inputs.batches[:count])
        return [cast(batch, self.task.dtype) for batch in self.workload.batches(self.task.seed, batch_size, count)]

    def place(self, batch: Arrays) -> Batch:
        """A batch on the device."""
        return self.adapter.place(self.adapter.native(batch, self.workload.layouts), self.device)

    def fetch(self, output: Gradients) -> Arrays:
        """Gradients as NumPy in canonical layout, `{name: (B, *parameter.shape)}`; never changed by a later call."""
        arrays = self.adapter.canonical(to_numpy(self.adapter, output), self.workload.layouts)
        return {name: array.copy() for name, array in arrays.items()} if self.strategy.reuses_output else arrays
