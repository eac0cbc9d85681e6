"""What NVIDIA's driver tells of its GPUs, through the package nvidia-ml-py; where that is missing, through nvidia-smi.

Nothing is told where neither is there; no run needs it. Source of all names: NVIDIA Management Library, API reference.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

THROTTLED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "thermal slowdown of the hardware",
    0x80: "power brake",
}
"""Bits of `nvmlDeviceGetCurrentClocksEventReasons` that make a clock slower than usual; being idle does not."""

EXCLUSIVE = 3
"""NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: one process at a time may use the GPU."""

SMI_LIMIT_S = 20.0

WORKER = "PERGRAD_WORKER"
"""Environment variable by which the workers of a run are known."""


@dataclass(frozen=True)
class Card:
    """One GPU at one moment; None is what the driver does not tell.

    Attributes:
        driver: version of the driver.
        cuda: the newest CUDA that this driver knows.
        power_limit_w: what it may draw.
        clock_mhz: of its multiprocessors, now.
        most_clock_mhz: the same at most.
        throttled: why the clock is slower than it could be.
        processes: how many processes compute on it.
        others: how many of them are none of pergrad's workers, as far as they can be seen from here.
        mig: whether it is divided (MIG).
        persistent: whether the driver stays loaded when nobody uses it.
    """

    name: str
    uuid: str | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    power_limit_w: float | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None
    most_clock_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    processes: int | None = None
    others: int | None = None
    persistent: bool | None = None
    exclusive: bool | None = None
    mig: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, without what is not told."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


def cards() -> list[Card]:
    """All GPUs of this machine, in the order of their PCI addresses."""
    with _library() as nvml:
        if nvml is None:
            return _from_smi()
        return [_look(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]


def card(environment: Mapping[str, str] = os.environ) -> Card | None:
    """The first GPU that a process with this environment sees; None where the driver's library tells nothing."""
    shown = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    with _library() as nvml:
        if nvml is None or not shown:
            return None
        with suppress(nvml.NVMLError):
            if not shown.isdecimal():
                return _look(nvml, nvml.nvmlDeviceGetHandleByUUID(shown))
            return _look(nvml, nvml.nvmlDeviceGetHandleByIndex(int(shown)))
    return None


def described(found: list[Card]) -> str | None:
    """The GPUs in one line, as a part of what makes a machine this one; None if there are none."""
    named = (f"{one.name}, {round((one.memory_bytes or 0) / 2**30)} GiB" for one in found)
    return "; ".join(named) or None


def disturbances(before: Card | None, after: Card | None) -> Iterator[str]:
    """What disturbed a case on a GPU, by what was seen of it before and after."""
    seen = [one for one in (before, after) if one is not None]
    if reasons := dict.fromkeys(reason for one in seen for reason in one.throttled):
        yield f"unstable: the GPU's clock was held back ({', '.join(reasons)})"
    if others := max((one.others or 0 for one in seen), default=0):
        yield f"unstable: {others} other process{'es' if others > 1 else ''} computed on the GPU"


@contextmanager
def _library() -> Iterator[Any]:
    """NVML while it is open; None where the package or the driver is missing."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception:  # ImportError, or NVMLError of any kind
        yield None
        return
    try:
        yield nvml
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _look(nvml: Any, handle: Any) -> Card:
    def ask(name: str, *arguments: Any) -> Any:
        """An answer of NVML; None where this GPU or this driver does not know it."""
        with suppress(nvml.NVMLError, AttributeError):
            found = getattr(nvml, name)(*arguments)
            return found.decode() if isinstance(found, bytes) else found
        return None

    memory, version = ask("nvmlDeviceGetMemoryInfo", handle), ask("nvmlSystemGetCudaDriverVersion")
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # its name before driver 535
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    processes = ask("nvmlDeviceGetComputeRunningProcesses", handle)
    mode, mig = ask("nvmlDeviceGetComputeMode", handle), ask("nvmlDeviceGetMigMode", handle)
    persistent = ask("nvmlDeviceGetPersistenceMode", handle)
    return Card(
        name=str(ask("nvmlDeviceGetName", handle)),
        uuid=ask("nvmlDeviceGetUUID", handle),
        memory_bytes=memory and int(memory.total),
        free_bytes=memory and int(memory.free),
        driver=ask("nvmlSystemGetDriverVersion"),
        cuda=version and f"{version // 1000}.{version % 1000 // 10}",
        power_limit_w=_scaled(ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
        power_w=_scaled(ask("nvmlDeviceGetPowerUsage", handle)),
        temperature_c=ask("nvmlDeviceGetTemperature", handle, 0),
        clock_mhz=ask("nvmlDeviceGetClockInfo", handle, 1),
        most_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, 1),
        throttled=tuple(reason for bit, reason in THROTTLED.items() if (reasons or 0) & bit),
        processes=None if processes is None else len(processes),
        others=None if processes is None else sum(_is_another(int(process.pid)) for process in processes),
        persistent=None if persistent is None else bool(persistent),
        exclusive=None if mode is None else mode == EXCLUSIVE,
        mig=None if mig is None else bool(mig[0]),
    )


def _is_another(pid: int) -> bool:
    """Whether a process can be seen from here and is no worker of pergrad: workers stand ready side by side."""
    try:
        return WORKER not in psutil.Process(pid).environ()
    except psutil.AccessDenied:  # another user's
        return True
    except psutil.Error:  # of another container, or gone
        return False


def _scaled(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _from_smi(run: Callable[..., Any] = subprocess.run) -> list[Card]:
    """Name, memory, driver and identity of each GPU, by the driver's own program."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,uuid", "--format=csv,noheader,nounits"]
    try:
        lines = run(command, capture_output=True, text=True, timeout=SMI_LIMIT_S, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    found = [[part.strip() for part in line.split(",")] for line in lines]
    return [
        Card(name, uuid=uuid, memory_bytes=int(mebibytes) << 20 if mebibytes.isdecimal() else None, driver=driver)
        for name, mebibytes, driver, uuid in (parts for parts in found if len(parts) == 4)
    ]
