"""One adapter per framework; the rest of the harness knows frameworks only through `Adapter`."""

from __future__ import annotations

import importlib

from harness.frameworks.base import Adapter, Device, DeviceAbsent

__all__ = ["PACKAGES", "START_S", "Adapter", "Device", "DeviceAbsent", "adapter_class", "load"]

PACKAGES = {
    "tf1": ("tensorflow", "tensorflow"),
    "tf2": ("tensorflow", "tensorflow"),
    "jax": ("jax", "jax"),
    "torch": ("torch", "torch"),
    "numpy": ("autograd", ""),
}
"""Framework -> (the package that must be importable, pergrad's extra that installs it)."""


START_S = {"tf1": 6.0, "tf2": 6.0, "jax": 2.0, "torch": 3.0, "numpy": 1.0}
"""Seconds from starting a worker to its first case, on two cores."""


def load(framework: str, threads: int | None = None) -> Adapter:
    """Import a framework and return its adapter. A process does this for one framework only.

    Raises:
        ImportError: if the framework is not installed.
    """
    return adapter_class(framework)(threads)


def adapter_class(framework: str) -> type[Adapter]:
    """The adapter's class, for what is known without importing the framework."""
    adapter: type[Adapter] = importlib.import_module(f"harness.frameworks.{framework}").ADAPTER
    return adapter
