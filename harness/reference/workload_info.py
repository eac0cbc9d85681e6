"""Describe a workload before anything is measured: parameters, bytes and arithmetic per instance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core import find_workloads
from harness.core.domain import DTYPES
from harness.core.workload import Workload, split
from harness.frameworks import child_process
from harness.reference import flops, gradients


@dataclass(frozen=True)
class WorkloadInfo:
    """Shapes, bytes and flops of a workload.

    Attributes:
        shapes: of the parameters that are differentiated, canonical.
        state: names of the parameters that are not, because they are no floating-point numbers.
        frameworks: whose strategies can run it.
        flops: floating-point operations of one instance's gradient (`harness.reference.flops`); None if the
            workload is not written through `ops`, so that nobody can count them.
        reference: what its reference is computed with.
    """

    shapes: Mapping[str, tuple[int, ...]]
    state: tuple[str, ...]
    frameworks: tuple[str, ...]
    flops: int | None
    reference: str

    @property
    def through_ops(self) -> bool:
        """Whether it is written through `ops`."""
        return self.flops is not None

    @property
    def parameter_count(self) -> int:
        """Number of values in one row of gradients."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def gradient_bytes(self, dtype: str = "float32") -> int:
        """Bytes of one instance's gradients."""
        return self.parameter_count * DTYPES[dtype]


def workload_info(workload: Workload, seed: int = 0) -> WorkloadInfo:
    """Describe a workload. One for some frameworks only is asked in a process of its own.

    Raises:
        ChildProcessFailed: if that process fails, because its framework is not installed for example.
    """
    if workload.through_ops:
        found = shapes_here(workload.source, seed)
    else:
        target = "harness.reference.workload_info:shapes_here"
        found = child_process.call(target, workload.source, seed, framework=gradients.framework(workload))
    return WorkloadInfo(
        shapes={name: tuple(shape) for name, shape in found["shapes"].items()},
        state=tuple(found["state"]),
        frameworks=workload.frameworks,
        flops=flops.count(workload) if workload.through_ops else None,
        reference=gradients.description(workload),
    )


def shapes_here(source: str, seed: int) -> dict[str, Any]:
    """Shapes of the parameters and names of the state, in this process, as plain values."""
    workload = find_workloads.find(source)
    floats, state = split(workload.initial_parameters(seed))
    shapes = {name: list(value.shape) for name, value in floats.items()}
    return {"shapes": shapes, "state": sorted({**state, **workload.state()})}
