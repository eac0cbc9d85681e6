"""Define the closed lists of the domain: quantities, devices, dtypes."""

from __future__ import annotations

import os

__version__ = "0.1.0"

QUANTITIES = {
    "gradients": "one row per instance: {name: (B, *parameter.shape)}",
    "norms": "the L2 norm of each instance's whole gradient: {'norms': (B,)}",
    "weighted_sum": "sum of weight x gradient over the instances: {name: parameter.shape}",
    "clipped_sum": "sum of the gradients, each scaled by min(1, clip_norm / norm): {name: parameter.shape}",
}
"""Quantity -> what a step returns for it."""

INTERFACE = 1
"""Version of the interface of strategies and workloads; raised when a plugin that worked would not work any more."""

DEVICES = ("cpu", "gpu")

DTYPES = {"float32": 4, "float64": 8, "bfloat16": 2}
"""Dtype under test -> bytes of one value."""


def usable_cores() -> list[int]:
    """The cores this process may use, which an affinity mask can make fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))  # macOS and Windows have no affinity masks
