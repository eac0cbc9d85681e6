"""One adapter per framework; the rest of the harness knows frameworks only through `Adapter` and `Framework`."""

from __future__ import annotations

from harness.core.framework import adapter_module
from harness.frameworks.base import Adapter, Device, DeviceAbsent

__all__ = ["Adapter", "Device", "DeviceAbsent", "adapter_class", "load"]


def load(framework: str, threads: int | None = None) -> Adapter:
    """Import a framework and return its adapter. A process does this for one framework only.

    Raises:
        ImportError: if the framework is not installed.
    """
    return adapter_class(framework)(threads)


def adapter_class(framework: str) -> type[Adapter]:
    """The adapter's class, for what is known without importing the framework."""
    adapter: type[Adapter] = adapter_module(framework).ADAPTER
    return adapter
