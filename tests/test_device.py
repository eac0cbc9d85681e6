"""A device other than the CPU, on one that nobody has: through the real measuring path, and all that can go wrong.

The mutants are the mistakes that an adapter or a strategy could make on a GPU: each has to be caught.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness import frameworks
from harness.cli.app import app
from harness.core import find_workloads
from harness.core.framework import framework
from harness.core.problem import Gradients
from harness.core.records import Measurement, Status
from harness.core.strategy import strategy as declare
from harness.core.task import Task
from harness.core.workload import cast
from harness.frameworks import child_process
from harness.frameworks.base import Kernels
from harness.measure.case import measure
from harness.measure.subject import Evaluations, Instruments, Subject
from harness.measure.worker import POISONED, classify, empty_wait_s
from harness.reference import files
from harness.runner import execute, prepare, workers
from harness.runner.plan import Plan
from harness.system import detect, roofline
from harness.system.gpu import Card
from tests import bound, fake_gpu
from tests.fake_gpu import FakeGpuAdapter, Kernel
from tests.test_clock import turns_of

Measure = Callable[..., Measurement]


@pytest.fixture
def on_gpu(task_for: Callable[..., Task]) -> Measure:
    """Measure the honest strategy on the first fake GPU: (adapter, kernel, batch size) -> row."""

    def run(adapter: FakeGpuAdapter, kernel: Kernel | None = None, batch_size: int = 2, **task: Any) -> Measurement:
        declared = declare(framework="numpy")(fake_gpu.strategy(kernel or Kernel()))
        asked = replace(task_for(declared, batch_size), device="gpu", **task)
        instruments = Instruments(lambda: 0, lambda: 0, Evaluations())
        subject = Subject(asked, declared, find_workloads.find("policy"), adapter, adapter.device("gpu"), instruments)
        return measure(subject, batch_size, turns_of(0.001, 5))

    return run


def test_an_honest_strategy_is_ok_and_its_time_is_that_of_the_device(on_gpu: Measure) -> None:
    row = on_gpu(FakeGpuAdapter(), Kernel(cost_s=0.004))
    assert (row.status, row.reason) == (Status.OK, "")
    assert row.median_s is not None
    assert row.median_s > 8 * 0.004  # a kernel for each of eight parameters
    assert row.device_name == "gpu:0"


class WaitsForNothing(FakeGpuAdapter):
    def wait(self, output: Gradients) -> Gradients:
        return output


class WaitsForTheOtherGpu(FakeGpuAdapter):
    def wait(self, output: Gradients) -> Gradients:
        self.cards[1].drain()
        return output


@pytest.mark.parametrize("mutant", [WaitsForNothing, WaitsForTheOtherGpu])
def test_an_adapter_that_does_not_wait_is_caught(mutant: type[FakeGpuAdapter], on_gpu: Measure) -> None:
    row = on_gpu(mutant(), Kernel(cost_s=0.01))
    assert row.status is Status.DISAGREES
    assert row.broken in ("doubling", "clock", "fetch")


@pytest.mark.parametrize("only", [None, "hidden1.weight", "logit.bias"])
@pytest.mark.parametrize("place", ["cpu", "gpu:1"])
def test_a_result_that_lies_elsewhere_disagrees_and_the_place_is_named(
    place: str, only: str | None, on_gpu: Measure
) -> None:
    adapter = FakeGpuAdapter()
    card = {"cpu": adapter.host, "gpu:1": adapter.cards[1]}[place]
    row = on_gpu(adapter, Kernel(output=card, only=only))
    assert (row.status, row.broken) == (Status.DISAGREES, "device")
    assert f"lies on {place}, not on gpu:0" in row.reason


def test_memory_that_runs_out_costs_one_case_and_the_next_is_ok(on_gpu: Measure) -> None:
    adapter = FakeGpuAdapter()
    with pytest.raises(RuntimeError) as caught:
        on_gpu(adapter, Kernel(scratch=2 << 20))
    assert classify(caught.value, framework("torch"))[0] is Status.OUT_OF_MEMORY
    del caught
    assert on_gpu(adapter).status is Status.OK


def test_rows_that_cannot_fit_on_the_device_are_predicted(on_gpu: Measure) -> None:
    adapter = FakeGpuAdapter()
    adapter.cards[0].limit = 1500  # two rows of the policy's 45 values would take 360 bytes; 16 of them 2880
    with pytest.raises(MemoryError, match=r"predicted: 16 rows .* are free on gpu:0"):
        on_gpu(adapter, Kernel(cost_s=0.0), 16)


def test_the_peak_is_that_of_the_case_whatever_was_measured_before(on_gpu: Measure) -> None:
    adapter = FakeGpuAdapter()
    large = on_gpu(adapter, Kernel(scratch=500_000)).peak_bytes
    small = on_gpu(adapter, Kernel(scratch=100_000)).peak_bytes
    assert large is not None
    assert small is not None
    assert large > 500_000
    assert 100_000 < small < 150_000


def test_a_peak_that_nobody_tells_is_null_and_never_the_hosts(on_gpu: Measure) -> None:
    assert on_gpu(FakeGpuAdapter(tells_memory=False)).peak_bytes is None


@pytest.mark.parametrize("cost_s", [0.005, 0.0001])
def test_slow_copies_from_the_device_accuse_nobody(cost_s: float, on_gpu: Measure) -> None:
    row = on_gpu(FakeGpuAdapter(copies_s=0.0002), Kernel(cost_s=cost_s))
    assert (row.status, row.reason) == (Status.OK, "")


def test_an_empty_wait_is_measured() -> None:
    adapter = FakeGpuAdapter()
    assert 0 < empty_wait_s(adapter, adapter.device("gpu")) < 0.1


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.8 GiB",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "INTERNAL: CUDA error: Failed call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "Failed to allocate 4294967296 bytes for new constant",
    "HIP out of memory. Tried to allocate 2.00 GiB",
    "hipErrorOutOfMemory",
)


@pytest.mark.parametrize("text", OUT_OF_MEMORY)
@pytest.mark.parametrize("name", ["torch", "jax", "tf1", "tf2"])
def test_every_library_that_runs_out_of_a_gpus_memory_is_understood(name: str, text: str) -> None:
    assert classify(RuntimeError(text), framework(name))[0] is Status.OUT_OF_MEMORY


def test_tensorflow_says_it_in_a_way_of_its_own() -> None:
    assert classify(RuntimeError("Dst tensor is not initialized."), framework("tf2"))[0] is Status.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "text",
    [
        "out of resource: shared memory, Required: 262144, Hardware limit: 232448",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    ],
)
def test_what_is_no_want_of_memory_is_an_error(text: str) -> None:
    assert classify(RuntimeError(text), framework("torch"))[0] is Status.ERROR
    assert not POISONED.search(text)


POISON = (
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "INTERNAL: Failed to synchronize: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
    "cudaErrorIllegalAddress",
    "HIP error: invalid device function",
)


@pytest.mark.parametrize("number", range(len(POISON)))
def test_an_error_that_poisons_a_process_costs_one_case_and_a_fresh_one_goes_on(
    number: int, task_for: Callable[..., Task], tmp_path: Path
) -> None:
    path = tmp_path / "poisons.py"
    path.write_text(STRATEGY.format(text=POISON[number]))
    poisoned, after = measured(path, task_for)
    assert (poisoned.status, after.status) == (Status.ERROR, Status.OK)
    assert POISON[number] in poisoned.reason
    assert poisoned.facts != after.facts


def test_after_any_other_error_the_process_goes_on(task_for: Callable[..., Task], tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text(STRATEGY.format(text="a plain mistake"))
    raised, after = measured(path, task_for)
    assert (raised.status, after.status) == (Status.ERROR, Status.OK)
    assert after.facts["process"] in raised.reason


STRATEGY = '''
import os
from pergrad import strategy

@strategy(framework="numpy")
def poisons(problem):
    """Fails at batch size 1, and tells its process."""
    from autograd import grad
    import numpy as np

    problem.facts["process"] = str(os.getpid())
    row = grad(problem.loss)

    def step(batch):
        if problem.batch_size == 1:
            raise RuntimeError("{text} in process " + str(os.getpid()))
        found = [row(problem.parameters, {{k: v[i] for k, v in batch.items()}}) for i in range(problem.batch_size)]
        return {{name: np.stack([one[name] for one in found]) for name in problem.parameters}}

    return step
'''


def measured(path: Path, task_for: Callable[..., Task]) -> list[Measurement]:
    """The strategy of a file, at batch sizes 1 and 2, in real workers."""
    from harness.core import find_strategies

    found = next(s for s in find_strategies.discover([path]).strategies if s.path == path)
    return list(workers.measure((task_for(found, 1, 2),)))


def test_a_strategy_that_is_not_for_a_device_is_not_run_there(task_for: Callable[..., Task], tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.py"
    path.write_text(STRATEGY.format(text="").replace('framework="numpy"', 'framework="numpy", devices=("gpu",)'))
    assert [(row.status, row.reason) for row in measured(path, task_for)] == [
        (Status.UNSUPPORTED, "numpy/poisons runs on gpu only")
    ] * 2


MIG = "MIG-8f6c1f1c-0f0a-5f3a-9f0e-000000000001"

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}

BY_PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("device", "gpu", "own", "expected"),
    [
        ("cpu", "", {}, HIDDEN),
        ("cpu", "1", {"CUDA_VISIBLE_DEVICES": "2,3"}, HIDDEN),
        ("any", "", {}, BY_PCI),
        ("any", "", {"CUDA_VISIBLE_DEVICES": "2,3"}, BY_PCI),
        ("any", "1", {}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "1"}),
        ("gpu", "", {}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "0"}),
        ("gpu", "1", {}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "1"}),
        ("gpu", "1", {"CUDA_VISIBLE_DEVICES": "2,3"}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "3"}),
        ("gpu", "", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
        ("gpu", "2", {"CUDA_VISIBLE_DEVICES": "2,3"}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "-1"}),
        ("gpu", "", {"CUDA_VISIBLE_DEVICES": ""}, BY_PCI | {"CUDA_VISIBLE_DEVICES": "-1"}),
        ("gpu", "1", {"HIP_VISIBLE_DEVICES": "4,5"}, BY_PCI | {"HIP_VISIBLE_DEVICES": "5"}),
        ("gpu", MIG, {"CUDA_VISIBLE_DEVICES": "0"}, BY_PCI | {"CUDA_VISIBLE_DEVICES": MIG}),
        ("gpu", "all", {"CUDA_VISIBLE_DEVICES": "2,3"}, BY_PCI),
    ],
)
def test_which_gpus_a_process_sees(device: str, gpu: str, own: dict[str, str], expected: dict[str, str]) -> None:
    assert child_process.visible(device, gpu, own) == expected


@pytest.mark.parametrize("name", ["tf1", "tf2", "jax", "torch", "numpy"])
@pytest.mark.parametrize(("device", "seen"), [("cpu", ""), ("gpu", "0")])
def test_every_framework_sees_the_same_gpu(name: str, device: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert child_process.environment(name, device, None)["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.parametrize(("device", "platforms"), [("cpu", "cpu"), ("gpu", "cuda,cpu"), ("any", None)])
def test_jax_starts_the_platform_that_is_asked_for_and_no_other(
    device: str, platforms: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert child_process.environment("jax", device, None).get("JAX_PLATFORMS") == platforms


def test_idle_threads_of_numpy_leave_the_cores_to_the_next_turn_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    assert child_process.environment("numpy", "cpu", None)["OPENBLAS_THREAD_TIMEOUT"] == "22"
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "30")
    assert child_process.environment("numpy", "cpu", None)["OPENBLAS_THREAD_TIMEOUT"] == "30"


def test_the_options_of_a_strategy_are_added_to_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine")
    given = {"XLA_FLAGS": "--xla_the_strategys", "OTHER": "1"}
    variables = child_process.environment("jax", "cpu", None, given=given)
    assert variables["XLA_FLAGS"].split() == ["--xla_mine", "--xla_the_strategys"]
    assert variables["OTHER"] == "1"
    assert os.environ["XLA_FLAGS"] == "--xla_mine"


BROKEN_PLUGIN = """
def initialize():
    import jax._src.xla_bridge as bridge

    def fail():
        raise RuntimeError("FAILED_PRECONDITION: No visible GPU devices")

    # Under the name of ROCm's: JAX skips CUDA's where there is no such hardware.
    bridge.register_backend_factory("rocm", fail, priority=500, fail_quietly=False)
"""


@bound.needs("jax")
def test_a_gpu_plugin_of_jax_that_cannot_start_costs_no_cpu_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "jax_plugins" / "broken"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(BROKEN_PLUGIN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    seen = detect.detect(["jax"], None)["jax"]
    assert seen["status"] == "ok"
    assert [device["kind"] for device in seen["devices"]] == ["cpu"]
    assert "No visible GPU devices" in seen["missing"]["gpu"]


@pytest.mark.parametrize("fails", ["init", "get_device_name"])
@bound.needs("torch")
def test_a_driver_that_is_too_old_for_pytorch_costs_no_cpu_and_is_named(fails: str) -> None:
    devices, why = bound.run(torch_with_old_driver, fails, framework="torch")
    assert devices == ["cpu"]
    assert why == "The NVIDIA driver on your system is too old"


def torch_with_old_driver(fails: str) -> tuple[list[str], str]:
    import torch

    from harness import frameworks

    def too_old(*_: Any) -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\nPlease update")

    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(torch.cuda, "device_count", lambda: 1)  # it asks the driver's library, which is there
        patched.setattr(torch.cuda, "init", lambda: None)
        patched.setattr(torch.cuda, fails, too_old)
        adapter = frameworks.load("torch")
        return [device.kind for device in adapter.devices()], adapter.missing["gpu"]


@bound.needs("torch")
def test_pytorch_waits_for_the_device_that_is_used_wherever_the_result_lies() -> None:
    assert bound.run(torch_synchronises, framework="torch") == {"cpu": 0, "gpu": 1}


def torch_synchronises() -> dict[str, int]:
    import torch

    from harness import frameworks

    found: dict[str, int] = {}
    with pytest.MonkeyPatch().context() as patched:
        calls: list[Any] = []
        patched.setattr(torch.cuda, "init", lambda: None)
        patched.setattr(torch.cuda, "device_count", lambda: 1)
        patched.setattr(torch.cuda, "get_device_name", lambda index: "H200")
        patched.setattr(torch.cuda, "synchronize", calls.append)
        for kind in ("cpu", "gpu"):
            adapter = frameworks.load("torch")
            adapter.device(kind)
            calls.clear()
            adapter.wait({"on the host": torch.zeros(1)})
            found[kind] = len(calls)
    return found


def test_inputs_come_with_the_reference_where_a_gpu_would_draw_others(task_for: Callable[..., Task]) -> None:
    workload = find_workloads.find("policy")
    own = replace(workload, parameters=lambda rng: {k: v + 1e-7 for k, v in workload.parameters(rng).items()})
    declared = declare(framework="numpy")(fake_gpu.strategy(Kernel()))
    statuses = {}
    for kind in ("gpu", "cpu"):
        adapter = FakeGpuAdapter()
        instruments = Instruments(lambda: 0, lambda: 0, Evaluations())
        asked = replace(task_for(declared, 2), device=kind)
        subject = Subject(asked, declared, own, adapter, adapter.device(kind), instruments)
        try:
            statuses[kind] = str(measure(subject, 2, turns_of(0.02, 5)).status)
        except files.Irreproducible:  # on the CPU every process draws the same, or the file forgot its seed
            statuses[kind] = "irreproducible"
    assert statuses == {"gpu": "ok", "cpu": "irreproducible"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_inputs_come_back_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    workload = find_workloads.find("embedding-small")
    parameters, batch = cast(workload.initial_parameters(0), dtype), cast(workload.batches(0, 2, 1)[0], dtype)
    files.save(tmp_path / "file.npz", [], files.Inputs(parameters, (batch, batch)))

    found = files.load_inputs(tmp_path / "file.npz", dtype)

    assert found is not None
    assert files.digest(found.parameters, found.batches[1]) == files.digest(parameters, batch)
    assert files.load(tmp_path / "file.npz") == []


def test_a_framework_may_have_an_interpreter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERGRAD_PYTHON_TENSORFLOW", "/venvs/tf/bin/python")
    monkeypatch.setenv("PERGRAD_PYTHON_TF1", "/venvs/tf1/bin/python")
    assert child_process.command("tf1", "some.module")[0] == "/venvs/tf1/bin/python"
    assert child_process.command("tf2", "some.module")[0] == "/venvs/tf/bin/python"
    assert child_process.command("jax", "some.module")[0] == sys.executable


def test_its_versions_are_those_of_that_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "python"
    own.write_text(f'#!/bin/sh\nOWN_PYTHON=1 exec {sys.executable} "$@"\n')
    own.chmod(0o755)
    monkeypatch.setenv("PERGRAD_PYTHON_NUMPY", str(own))
    seen = detect.detect(["numpy"], None)["numpy"]
    assert seen["status"] == "ok"
    assert seen["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize("given", ["jax", "jax=/nowhere/python", "fortran=/bin/sh"])
def test_an_interpreter_that_is_not_there_is_refused(given: str) -> None:
    result = CliRunner().invoke(app, ["check", "numpy/autograd-loop", "--python", given])
    assert result.exit_code == 2
    assert "as in jax=venv/bin/python" in result.output


@pytest.mark.parametrize(
    "command",
    [
        ["check", "numpy/autograd-loop"],
        ["advise", "--workload", "policy", "--batch-size", "2"],
        ["run", "--strategy", "numpy/autograd-loop", "--workload", "policy"],
    ],
)
@pytest.mark.parametrize("device", ["gpu", "gpu:1", "gpu:GPU-a"])
def test_every_command_refuses_a_gpu_that_no_framework_sees(
    command: list[str], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def nobody(names: Any, threads: Any, gpu: str = "") -> dict[str, Any]:
        asked.append(gpu)
        devices = [{"kind": "cpu", "name": "cpu"}]
        return {"numpy": {"status": "ok", "reason": "", "devices": devices, "missing": {"gpu": "no driver"}}}

    monkeypatch.setattr(detect, "detect", nobody)
    result = CliRunner().invoke(app, [*command, "--device", device])
    assert result.exit_code == 2
    assert "no framework sees a GPU here (numpy: no driver)" in " ".join(result.output.split())
    assert asked == [device.partition(":")[2]]


def test_a_baseline_on_a_gpu_keeps_its_results_there() -> None:
    both = {"status": "ok", "devices": [{"kind": "cpu", "name": "cpu"}, {"kind": "gpu", "name": "H200"}]}
    one = {"status": "ok", "devices": [{"kind": "cpu", "name": "cpu"}]}
    assert prepare.may_be_baseline(("gpu",), {"tf1": both, "tf2": one, "jax": both, "torch": both}) == {"jax", "torch"}
    assert prepare.may_be_baseline(("cpu",), {"tf1": both, "jax": both}) == {"tf1", "jax"}
    assert prepare.may_be_baseline(("cpu", "gpu"), {"tf1": one, "jax": one}) == {"tf1", "jax"}


def test_allocators_of_the_c_library_are_compared_on_the_cpu_only() -> None:
    wanted = Plan(("policy",), (), ("cpu", "gpu"), allocators=("default", "reuse"))
    assert wanted.allocators_of("cpu") == ("default", "reuse")
    assert wanted.allocators_of("gpu") == ("default",)


@pytest.mark.parametrize(("wait_s", "work_s"), [(0.001, 0.003), (0.009, 0.002)])
def test_the_wait_is_no_part_of_the_ceiling_and_never_all_of_it(
    wait_s: float, work_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = FakeGpuAdapter()
    names = ("fill_reused", "fill_fresh", "multiply", "nothing")
    kernels = Kernels(*((lambda name=name: name) for name in names))
    monkeypatch.setattr(adapter, "kernels", lambda *_: kernels, raising=False)
    monkeypatch.setattr(frameworks, "load", lambda *_, **__: adapter)
    monkeypatch.setattr(roofline, "_seconds", lambda call: [wait_s if call() == "nothing" else 0.004])
    found = roofline.measure_here("torch", "gpu")
    assert found["flops"] == pytest.approx(2 * roofline.MATRIX["gpu"] ** 3 / work_s)
    assert found["fill_reused"] == found["fill_fresh"] == pytest.approx((1 << 20) // 8 / work_s)


@pytest.mark.parametrize(("free_gib", "count"), [(139, 69), (8, 4), (1, 2), (None, 150)])
def test_as_many_workers_stand_ready_as_the_gpus_memory_holds(
    free_gib: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card("a GPU", free_bytes=free_gib << 30) if free_gib else None
    monkeypatch.setattr(execute.gpu, "card", lambda environment: card)
    monkeypatch.setattr(execute, "available_bytes", lambda: 200 * execute.WORKER_BYTES)
    assert execute.most_workers(Plan(("policy",), (), ("gpu",))) == count
    assert execute.most_workers(Plan(("policy",), (), ("cpu",))) == 150


@bound.needs("tf2")
def test_what_tensorflow_only_logs_is_the_reason_why_it_sees_no_gpu() -> None:
    assert bound.run(tensorflow_without_libraries, framework="tf2") == "Cannot dlopen some GPU libraries."


def tensorflow_without_libraries() -> str:
    import tensorflow as tf

    def none_visible(kind: str) -> list[Any]:
        if kind == "GPU":
            os.write(2, b"W0000 00:00:1.1 12 gpu_device.cc:2433] Cannot dlopen some GPU libraries.\n")
        return []

    with pytest.MonkeyPatch().context() as patched:
        patched.setattr(tf.config, "get_visible_devices", none_visible)
        adapter = frameworks.load("tf2")
        adapter.devices()
        return adapter.missing["gpu"]
