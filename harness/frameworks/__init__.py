"""One adapter per framework; the rest of the harness knows frameworks only through `Adapter` and `Framework`."""

from __future__ import annotations

from harness.core.framework import adapter_module
from harness.frameworks.base import Adapter, Device, DeviceAbsent

__all__ = ["Adapter", "Device", "DeviceAbsent", "adapter_class", "load"]


def load(framework: str, threads: int | None = None, device: str = "any") -> Adapter:
    """Import a framework and return its adapter. A process does this for one framework only.

    Args:
        threads: how many threads it may use within one operation; None leaves its default.
        device: the kind that will be used; with `cpu` no accelerator is seen, whatever it is.

    Raises:
        ImportError: if the framework is not installed.
    """
    adapter = adapter_class(framework)(threads)
    if device == "cpu":
        adapter.hide_accelerators()
    return adapter


def adapter_class(framework: str) -> type[Adapter]:
    """The adapter's class, for what is known without importing the framework."""
    adapter: type[Adapter] = adapter_module(framework).ADAPTER
    return adapter
