"""What the driver tells of GPUs, by a library that nobody has: two of them, one divided, throttled and in use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.analysis.compare import machine_differences
from harness.core.domain import device_and_gpu
from harness.core.records import MarkKind, Measurement, Status
from harness.frameworks import DeviceAbsent
from harness.measure.worker import with_gpu
from harness.runner import worker_process
from harness.system import detect, diagnostics, gpu, info
from harness.system.diagnostics import NOTE, OK, PROBLEM, WARNING, Finding
from harness.system.gpu import Card
from tests import made_runs

GIB = 1 << 30


class NVMLError(Exception):
    """What the library raises for a question that a GPU does not answer."""


class Library(ModuleType):
    """The functions of nvidia-ml-py that are asked, for two GPUs; answers are changed by tests."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.throttled = [0x1, 0x4 | 0x40]  # the first idles
        self.processes: list[list[int]] = [[], [11, 12]]
        self.opened = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": self._handle,
            "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-a": 0, "GPU-b": 1, "MIG-b": 1}[uuid],
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H200" if handle == 0 else "NVIDIA H100",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{'ab'[handle]}",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=(140 - 60 * handle) * GIB, free=70 * GIB),
            "nvmlSystemGetDriverVersion": lambda: "580.65.06",
            "nvmlSystemGetCudaDriverVersion": lambda: 13000,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetPowerUsage": lambda handle: 81_500,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 31,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 345,
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.throttled[handle],
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=pid) for pid in self.processes[handle]
            ],
            "nvmlDeviceGetComputeMode": lambda handle: 3 * handle,
            "nvmlDeviceGetMigMode": self._mig,
            "nvmlDeviceGetPersistenceMode": lambda handle: 1 - handle,
        }
        if name not in answers:
            raise AttributeError(name)
        return answers[name]

    def _handle(self, index: int) -> int:
        if index > 1:
            raise NVMLError("Invalid Argument")
        return index

    def _mig(self, handle: int) -> list[int]:
        if handle == 0:
            raise NVMLError("Not Supported")
        return [1, 1]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_every_gpu_is_described_and_what_it_does_not_tell_is_none(library: Library) -> None:
    first, second = gpu.cards()
    assert (first.name, first.memory_bytes, first.driver, first.cuda) == ("NVIDIA H200", 140 * GIB, "580.65.06", "13.0")
    assert (first.power_limit_w, first.clock_mhz, first.most_clock_mhz) == (700.0, 345, 1980)
    assert (first.mig, first.exclusive, first.persistent, first.throttled) == (None, False, True, ())
    assert (second.mig, second.exclusive, second.persistent) == (True, True, False)
    assert second.throttled == ("power cap", "thermal slowdown of the hardware")
    assert "mig" not in first.as_json()
    assert library.opened == 0


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (None, "NVIDIA H200"),
        ("1", "NVIDIA H100"),
        ("GPU-b,GPU-a", "NVIDIA H100"),
        ("MIG-b", "NVIDIA H100"),
        ("7", None),
    ],
)
def test_a_worker_asks_for_the_gpu_that_it_sees(library: Library, shown: str | None, name: str | None) -> None:
    found = gpu.card({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown})
    assert (found and found.name) == name


def test_without_the_library_the_drivers_own_program_is_asked(no_library: None) -> None:
    told = SimpleNamespace(stdout="NVIDIA H200, 143771, 580.65.06, GPU-a\n[unreadable]\n")
    (found,) = gpu._from_smi(lambda *_, **__: told)
    assert (found.name, found.driver, found.uuid) == ("NVIDIA H200", "580.65.06", "GPU-a")
    assert found.memory_bytes == 143771 << 20


def test_without_both_there_is_none_and_nothing_fails(no_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert gpu.cards() == []
    assert gpu.card() is None
    assert info.describe()["gpus"] is None


def test_runs_on_two_kinds_of_gpu_are_runs_of_two_machines(library: Library) -> None:
    here = info.describe()
    assert here["gpus"] == "NVIDIA H200, 140 GiB; NVIDIA H100, 80 GiB"
    (difference,) = machine_differences(here, here | {"gpus": "NVIDIA H200, 140 GiB"})
    assert "gpus" in difference
    assert machine_differences({**here, "gpus": None}, {k: v for k, v in here.items() if k != "gpus"}) == []


IDLE = Card("NVIDIA H200", clock_mhz=1980, processes=4, others=0)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (IDLE, IDLE, []),
        (None, None, []),
        (IDLE, replace(IDLE, throttled=("power cap",)), ["unstable: the GPU's clock was held back (power cap)"]),
        (replace(IDLE, others=2), IDLE, ["unstable: 2 other processes computed on the GPU"]),
        (IDLE, replace(IDLE, others=1), ["unstable: 1 other process computed on the GPU"]),
    ],
)
def test_what_disturbs_a_case_is_a_mark_beside_its_time(
    before: Card | None, after: Card | None, said: list[str]
) -> None:
    row = with_gpu(made_runs.ok("torch/func-vmap", 4, 1, (1000,), device="gpu"), before, after)
    assert [mark.text for mark in row.marks] == said
    assert all(mark.kind is MarkKind.UNSTABLE for mark in row.marks)


def test_a_row_holds_the_gpus_state_and_nothing_that_is_about_the_host_only() -> None:
    card = replace(IDLE, temperature_c=61, power_w=580.5, uuid="GPU-a")
    row = with_gpu(made_runs.ok("torch/func-vmap", 4, 1, (1000,), device="gpu"), None, card)
    assert row.gpu_state == {"clock_mhz": 1980, "temperature_c": 61, "power_w": 580.5, "others": 0}
    assert (row.minor_faults, row.cores_busy, row.system_share) == (None, None, None)
    assert Measurement.from_json(row.as_json()) == row
    assert row.status is Status.OK


def test_workers_of_pergrad_are_no_others(library: Library) -> None:
    variables = os.environ | {gpu.WORKER: "tag"}
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=variables) as worker,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another,
    ):
        library.processes[0] = [worker.pid, another.pid, 2**22 + 1]  # the last is of another container
        (first, _) = gpu.cards()
        worker.kill()
        another.kill()
    assert (first.processes, first.others) == (3, 1)


def test_they_are_known_by_the_variable_that_they_are_given() -> None:
    assert gpu.WORKER == worker_process.TAG


def seen(gpu_name: str = "", why: str = "") -> dict[str, Any]:
    devices = [{"kind": "cpu", "name": "cpu"}, *([{"kind": "gpu", "name": gpu_name}] if gpu_name else [])]
    return {"status": "ok", "reason": "", "devices": devices, "missing": {"gpu": why} if why else {}}


def said_of(name: str, found: Iterator[Finding]) -> list[str]:
    return [f"{finding.level}: {finding.found}" for finding in found if finding.what == name]


def test_the_doctor_names_each_gpu_and_what_disturbs_it(library: Library) -> None:
    found = list(diagnostics.gpus(gpu.cards(), {}))
    (first,) = (finding for finding in found if finding.what == "gpu 0")
    assert first.level == OK
    assert "NVIDIA H200" in first.found
    assert "driver 580.65.06, CUDA up to 13.0" in first.found
    second = said_of("gpu 1", iter(found))
    assert any(line.startswith(f"{WARNING}: 2 processes compute on it") for line in second)
    assert any("held back: power cap" in line for line in second)
    assert sum(line.startswith(f"{NOTE}:") for line in second) == 2  # persistence, MIG
    assert f"{PROBLEM}: one process at a time may use it (exclusive compute mode)" in second


def test_the_doctor_says_which_framework_does_not_see_the_gpu_why_and_what_to_install(library: Library) -> None:
    old = "The NVIDIA driver on your system is too old"
    answers = {"tf2": seen(), "jax": seen("NVIDIA H200 cuda:0"), "torch": seen(why=old), "numpy": seen()}
    found = [finding for finding in diagnostics.gpus(gpu.cards(), answers) if not finding.what.startswith("gpu")]
    assert [(finding.what, finding.level) for finding in found] == [("tf2", WARNING), ("torch", WARNING)]
    assert "pip install 'tensorflow[and-cuda]'" in found[0].do
    assert old in found[1].found


@pytest.mark.parametrize(
    ("why", "count"),
    [("Torch not compiled with CUDA enabled", 0), ("", 0), ("FAILED_PRECONDITION: the plugin cannot start", 1)],
)
def test_where_there_is_no_gpu_only_a_failure_is_worth_a_word(why: str, count: int) -> None:
    assert len(list(diagnostics.gpus([], {"jax": seen(why=why)}))) == count


def test_a_gpu_that_nobody_sees_is_refused_with_every_reason() -> None:
    with pytest.raises(DeviceAbsent, match=r"torch: driver too old.*pergrad doctor"):
        detect.require_gpu({"torch": seen(why="driver too old"), "numpy": seen()})
    detect.require_gpu({"torch": seen("NVIDIA H200 cuda:0"), "numpy": seen()})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cpu", ("cpu", "")),
        ("all", ("all", "")),
        ("gpu", ("gpu", "")),
        ("gpu:1", ("gpu", "1")),
        ("gpu:GPU-8f6c1f1c", ("gpu", "GPU-8f6c1f1c")),
        ("gpu:MIG-8f6c1f1c", ("gpu", "MIG-8f6c1f1c")),
    ],
)
def test_the_option_names_a_kind_of_device_or_one_gpu(given: str, expected: tuple[str, str]) -> None:
    assert device_and_gpu(given) == expected


@pytest.mark.parametrize("given", ["tpu", "gpu:", "gpu:first", "cpu:1", "GPU", "gpu:-1", ""])
def test_anything_else_is_refused_with_what_is_allowed(given: str) -> None:
    with pytest.raises(ValueError, match="cpu, gpu, all"):
        device_and_gpu(given)
