"""Peak memory of a stretch of work: the device allocator's on a GPU, the kernel's record on the CPU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from harness.frameworks import Adapter, Device


class Memory:
    """Starts to watch when it is created, before a strategy is built."""

    def __init__(self, adapter: Adapter, device: Device) -> None:
        self._adapter = adapter
        self._device = device
        adapter.start_memory(device)
        with suppress(OSError):  # Linux: makes the present state the peak so far
            Path("/proc/self/clear_refs").write_text("5")
        self._before = status_bytes("VmRSS")

    def peak_above_start(self) -> int | None:
        """Bytes that the peak lies above the state at the start; None where the system does not tell."""
        on_device = self._adapter.peak_memory(self._device)
        if on_device is not None:
            return on_device
        peak = status_bytes("VmHWM")
        return None if peak is None or self._before is None else max(0, peak - self._before)


def status_bytes(field: str) -> int | None:
    """A memory field of `/proc/self/status` in bytes, None where there is no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def available_bytes() -> int:
    """Memory that can still be taken without swapping: the machine's, or less where a container limits it."""
    free = psutil.virtual_memory().available
    limit, used = (_cgroup_bytes(name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, limit - used)


def _cgroup_bytes(name: str) -> int | None:
    try:
        text = (Path("/sys/fs/cgroup") / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
