"""Peak memory of a stretch of work: the device allocator's on a GPU, the kernel's record on the CPU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from harness.frameworks import Adapter, Device
from harness.system.info import status_bytes


class Memory:
    """Starts to watch when it is created, before a strategy is built."""

    def __init__(self, adapter: Adapter, device: Device) -> None:
        self._adapter = adapter
        self._device = device
        if device.kind != "cpu":
            adapter.start_memory(device)
            return
        with suppress(OSError):  # Linux: makes the present state the peak so far
            Path("/proc/self/clear_refs").write_text("5")
        self._before = status_bytes("VmRSS")

    def peak_above_start(self) -> int | None:
        """Bytes that the peak lies above the state at the start; None where nobody tells.

        Memory of the host never stands for that of a device.
        """
        if self._device.kind != "cpu":
            return self._adapter.peak_memory(self._device)
        peak = status_bytes("VmHWM")
        return None if peak is None or self._before is None else max(0, peak - self._before)
