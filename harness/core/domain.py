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

DEVICE_NAMES = {"cpu": "the CPU", "gpu": "the GPU"}
"""Kind of device -> how a sentence names it."""


def device_and_gpu(given: str) -> tuple[str, str]:
    """What `--device` means: a kind of device (`cpu`, `gpu`, `all`), and which GPU; empty for the first.

    `gpu:1` is the second in the order of nvidia-smi, among those that CUDA_VISIBLE_DEVICES shows; `gpu:GPU-8f6c...` and
    `gpu:MIG-...` are the GPU, or the part of one, of that UUID.

    Raises:
        ValueError: for anything else; the message says what is allowed.
    """
    kind, colon, gpu = given.partition(":")
    named = gpu.isdecimal() or gpu.startswith(("GPU-", "MIG-"))
    if kind not in (*DEVICES, "all") or (colon and not (kind == "gpu" and named)):
        raise ValueError(f"--device {given} is not one of cpu, gpu, all, or one GPU as gpu:1 or gpu:GPU-<uuid>")
    return kind, gpu


DTYPES = {"float32": 4, "float64": 8, "bfloat16": 2}
"""Dtype under test -> bytes of one value."""


def usable_cores() -> list[int]:
    """The cores this process may use, which an affinity mask can make fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))  # macOS and Windows have no affinity masks
