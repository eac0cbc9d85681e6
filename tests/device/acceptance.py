"""Is a measurement on this GPU right? About ten checks in under eight minutes, with a table at the end; no network.

Run from a clone, in an environment with PyTorch or JAX built for NVIDIA's GPUs, TensorFlow too if it is at hand::

    python -m tests.device.acceptance --out acceptance

Everything that was seen lies in the folder then: `table.md`, `checks.json`, and a run with its report. The exit status
is 1 if a check failed. `--device cpu` tries the script itself where there is no GPU; it shows nothing about one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from harness import frameworks
from harness.core import find_strategies, find_workloads, store
from harness.core.domain import device_and_gpu, usable_cores
from harness.core.framework import framework_names
from harness.core.layouts import IMAGE, KERNEL
from harness.core.records import Measurement, Status
from harness.core.strategy import Unsupported
from harness.core.task import Task
from harness.core.workload import cast
from harness.frameworks import child_process
from harness.frameworks.base import to_numpy
from harness.frameworks.child_process import ChildProcessFailed
from harness.reference import build, compare
from harness.runner import workers
from harness.system import detect, gpu, roofline

ROOT = Path(__file__).parents[2]

WORKLOADS = ("policy", "mlp-small", "cnn-small", "embedding-small", "transformer-small", "lstm-small")

SIZE = 8
"""Instances of a batch in the check of agreement."""

MOST_ERROR = 1e-5
"""Of a product of float32 matrices, relative to its largest entry; TF32 errs by about 1e-3."""


@dataclass(frozen=True)
class Check:
    """What one check saw. `passed` is None where it could not be made."""

    name: str
    passed: bool | None
    seen: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Bench:
    """What all checks need: the device, the folder of what is seen, and the frameworks that see the device."""

    device: str
    gpu: str
    folder: Path
    able: tuple[str, ...]

    def call(self, function: Callable[..., Any], framework: str, *arguments: Any, limit_s: float = 240) -> Any:
        """A function of this file in a process of a framework that sees the device."""
        return child_process.call(
            f"{__file__}:{function.__name__}",
            *arguments,
            framework=framework,
            device=self.device,
            limit_s=limit_s,
            gpu=self.gpu,
        )

    def rows(self, stem: str, *sizes: int, workload: str = "policy", framework: str = "torch") -> list[Measurement]:
        """Rows of a strategy that is planted beside this file or comes with pergrad, in real workers."""
        path = Path(__file__).with_name(f"{stem}.py")
        planted = [path] if path.exists() else []
        found = find_strategies.discover(planted)
        strategy = next((s for s in found.strategies if s.path == path), None) or found.find(f"{framework}/{stem}")
        references = {size: str(self.folder / f"{workload}-{size}.npz") for size in sizes}
        for size, reference in references.items():
            if not Path(reference).exists():
                build.write(Path(reference), workload, size, 0, "float32", [strategy.quantity])
        task = Task(
            strategy=strategy.name,
            framework=strategy.framework,
            plugin=strategy.plugin,
            workload=workload,
            quantity=strategy.quantity,
            device=self.device,
            dtype="float32",
            batch_sizes=sizes,
            pass_number=1,
            references=references,
            seed=0,
            limit_s=60,
            target_s=0.3,
            gpu=self.gpu,
        )
        return list(workers.measure((task,)))


def frameworks_and_names(bench: Bench) -> tuple[bool, str]:
    """PyTorch and JAX see the device, under one name."""
    seen = detect.detect([name for name in framework_names() if name != "numpy"], None, bench.gpu)
    said = []
    for name, answer in seen.items():
        mine = [device["name"] for device in answer["devices"] if device["kind"] == bench.device]
        said.append(f"{name}: {', '.join(mine) or (answer.get('missing') or {}).get('gpu') or answer['reason']}")
    return {"torch", "jax"} <= set(bench.able), "; ".join(said)


def the_cpu_has_no_gpu(bench: Bench) -> tuple[bool, str]:
    """A worker for the CPU sees no other device."""
    kinds = {
        name: child_process.call(f"{__file__}:kinds_seen", name, framework=name, device="cpu") for name in bench.able
    }
    return all(kind == ["cpu"] for kind in kinds.values()), str(kinds)


def kinds_seen(name: str) -> list[str]:
    """The kinds of device that a framework sees as a worker for the CPU does."""
    return sorted({device.kind for device in frameworks.load(name, device="cpu").devices()})


def products_are_float32(bench: Bench) -> tuple[bool, str]:
    """Products and convolutions of float32 are not TF32."""
    errors = {name: bench.call(product_errors, name, name, bench.device) for name in bench.able if name != "tf1"}
    said = "; ".join(f"{name}: product {one:.1e}, convolution {two:.1e}" for name, (one, two) in errors.items())
    return all(error < MOST_ERROR for pair in errors.values() for error in pair), said


def product_errors(name: str, kind: str) -> tuple[float, float]:
    """Largest relative error of a product of matrices and of a convolution, against float64."""
    rng = np.random.default_rng(0)
    adapter = frameworks.load(name, device=kind)
    device, ops = adapter.device(kind), adapter.ops
    x, w = (rng.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    image, kernel = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 16, 16, 32), (3, 3, 32, 64)))
    layouts = {"image": IMAGE, "kernel": KERNEL, "result": IMAGE}
    arrays = {"x": x, "w": w, "b": np.zeros(512, np.float32), "image": image, "kernel": kernel}
    placed = adapter.place(adapter.native(arrays, layouts), device)
    with_bias = adapter.place({"bias": np.zeros(64, np.float32)}, device)
    got = adapter.numpy(adapter.wait({"y": ops.dense(placed["x"], placed["w"], placed["b"])})["y"])
    true = x.astype(np.float64) @ w
    product = float(np.abs(got - true).max() / np.abs(true).max())
    convolved = ops.conv2d(placed["image"], placed["kernel"], with_bias["bias"], 1, 0)
    result = adapter.canonical({"result": adapter.numpy(adapter.wait({"y": convolved})["y"])}, layouts)["result"]
    windows = sliding_window_view(image.astype(np.float64), (3, 3), axis=(1, 2))
    exact = np.einsum("bhwcij,ijco->bhwo", windows, kernel.astype(np.float64))
    return product, float(np.abs(result - exact).max() / np.abs(exact).max())


def waiting_waits(bench: Bench) -> tuple[bool | None, str]:
    """A call that is waited for takes as long as CUDA's own events say that its work took."""
    if bench.device == "cpu" or "torch" not in bench.able:
        return None, "needs PyTorch on a GPU"
    by_events, by_waiting = bench.call(events_and_waiting, "torch")
    return abs(by_waiting / by_events - 1) < 0.05, f"events {by_events:.4f} s, waiting {by_waiting:.4f} s"


def events_and_waiting() -> tuple[float, float]:
    """Seconds of the same products by CUDA's events and by the clock of the host."""
    import torch

    adapter = frameworks.load("torch")
    device = adapter.device("gpu")
    matrix = torch.rand((4096, 4096), device=device.handle)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def work() -> Any:
        for _ in range(50):
            result = matrix @ matrix
        return {"result": result}

    adapter.wait(work())
    events, waiting = [], []
    for _ in range(5):
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        events.append(start.elapsed_time(end) / 1000)
        began = time.perf_counter()
        adapter.wait(work())
        waiting.append(time.perf_counter() - began)
    return min(events), min(waiting)


def ceilings(bench: Bench) -> tuple[bool | None, str]:
    """Nothing computed here beats the ceiling: fills of 4 GiB and products of side 8192, measured once more."""
    if bench.device == "cpu" or "torch" not in bench.able:
        return None, "needs PyTorch on a GPU"
    found = roofline.measure("torch", "gpu", None, gpu=bench.gpu)
    if found is None:
        return False, "the roofline could not be measured"
    fill, flops = bench.call(fills_and_products, "torch")
    said = f"fills {found.fill_reused:.3g} B/s (here {fill:.3g}), products {found.flops:.3g} flop/s (here {flops:.3g})"
    return 0.9 < fill / found.fill_reused < 1.05 and 0.9 < flops / found.flops < 1.05, said


def fills_and_products() -> tuple[float, float]:
    """Bytes filled and operations per second, over ten calls between two events."""
    import torch

    frameworks.load("torch").device("gpu")
    buffer, matrix = torch.zeros(1 << 30, device="cuda"), torch.rand((8192, 8192), device="cuda")

    def per_call(work: Callable[[], Any]) -> float:
        for _ in range(10):
            work()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            work()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 10_000

    return (4 << 30) / per_call(lambda: buffer.fill_(1)), 2 * 8192**3 / per_call(lambda: matrix @ matrix)


def agreement(bench: Bench) -> tuple[bool, str]:
    """Every strategy of PyTorch and JAX agrees with the reference on six workloads, or says why not."""
    files = {}
    for name in WORKLOADS:
        path = bench.folder / f"agreement-{name}.npz"
        build.write(path, name, SIZE, 0, "float32")
        files[name] = str(path)
    wrong, total, largest, late = [], 0, 0.0, 0
    parts = max(1, min(3, len(usable_cores()) // 4))  # compiling is what takes long
    chosen = [(name, part) for name in ("torch", "jax") if name in bench.able for part in range(parts)]

    def ask(name: str, part: int) -> dict[str, Any]:
        mine = dict(list(files.items())[part::parts])
        found: dict[str, Any] = bench.call(verdicts, name, name, bench.device, mine, limit_s=400)
        return found

    with ThreadPoolExecutor() as pool:  # each waits for a process of its own
        answers = list(pool.map(lambda asked: ask(*asked), chosen))
    for (framework, part), found in zip(chosen, answers, strict=True):
        late += sum(status == "not reached" for status, *_ in found.values())
        (bench.folder / f"agreement-{framework}-{part}.json").write_text(json.dumps(found, indent=1))
        total += len(found)
        wrong += [f"{case}: {reason}" for case, (status, reason, _) in found.items() if status not in GOOD]
        largest = max([largest, *(error for *_, error in found.values() if error is not None)])
    reached = f"{total - len(wrong) - late} of {total} cases, {late} not reached in time"
    said = f"{reached}; the largest relative error is {largest:.1e}"
    return total > 0 and not wrong and late <= MOST_NOT_REACHED * total, "; ".join([said, *wrong[:5]])


GOOD = ("ok", "unsupported", "not reached")

MOST_NOT_REACHED = 0.1
"""The share of cases that time may leave out; with more, nothing is shown."""

AGREEMENT_S = 120.0
"""After so long no further case of the check of agreement is begun; those that are not reached are counted."""


def verdicts(framework: str, kind: str, files: dict[str, str]) -> dict[str, tuple[str, str, float | None]]:
    """Case -> status, reason and largest relative error, of all strategies of a framework in one process."""
    adapter = frameworks.load(framework, device=kind)
    device, found, until = adapter.device(kind), dict[str, Any](), time.monotonic() + AGREEMENT_S
    for name, file in files.items():
        workload, reference = find_workloads.find(name), files.load(Path(file))[0]
        inputs = files.load_inputs(Path(file), "float32")
        parameters = inputs.parameters if inputs else cast(workload.initial_parameters(0), "float32")
        batch = inputs.batches[0] if inputs else cast(workload.batches(0, SIZE, 1)[0], "float32")
        problem = adapter.bind(workload, parameters, device, SIZE)
        for strategy in find_strategies.discover().strategies:
            slow = strategy.every_device or "compiled" in strategy.name
            if strategy.framework != framework or kind not in strategy.devices or slow:
                continue
            case = f"{strategy.name} on {name}"
            if time.monotonic() > until:
                found[case] = ("not reached", "", None)
                continue
            try:
                with adapter.scope(problem):
                    step = strategy.build(problem)
                    output = adapter.wait(step(adapter.place(adapter.native(batch, workload.layouts), device)))
                    rows = adapter.canonical(to_numpy(adapter, output), workload.layouts)
                verdict = compare.check(rows, reference, "float32", strategy.quantity)
                found[case] = (str(verdict.status), verdict.reason, verdict.max_relative_error)
            except (Unsupported, ModuleNotFoundError) as error:
                found[case] = ("unsupported", str(error), None)
            except Exception as error:
                found[case] = ("error", f"{type(error).__name__}: {str(error)[:300]}", None)
    return found


def memory(bench: Bench) -> tuple[bool | None, str]:
    """The peak is that of the case: at least its result, and hardly more for a small one after a large one."""
    if bench.device == "cpu":
        return None, "needs a GPU"
    peaks, right = [], True
    for framework, stem in (("torch", "func-vmap"), ("jax", "vmap")):
        if framework in bench.able:
            rows = bench.rows(stem, 16, 64, 256, workload="mlp", framework=framework)
            peaks.append(f"{framework}: {[(row.batch_size, row.peak_bytes, row.output_bytes) for row in rows]}")
            known = [row for row in rows if row.peak_bytes is not None and row.output_bytes]
            right &= len(known) == len(rows)
            right &= all(1 <= (row.peak_bytes or 0) / (row.output_bytes or 1) < 10 for row in known)
    return right, "; ".join(peaks)


def failures(bench: Bench) -> tuple[bool | None, str]:
    """Memory that runs out, an assertion on the device and a result on the host cost one case each, by name."""
    if "torch" not in bench.able:
        return None, "needs PyTorch"
    expected = {
        "out_of_device_memory": (Status.OUT_OF_MEMORY, ""),
        "asserts_on_the_device": (Status.ERROR, ""),
        "result_on_the_host": (Status.DISAGREES, "device"),
    }
    said, right = [], True
    for stem, (status, broken) in expected.items():
        if bench.device == "cpu" and stem != "asserts_on_the_device":
            continue
        first, after = bench.rows(stem, 1, 2)
        right &= (first.status, first.broken, after.status) == (status, broken, Status.OK)
        said.append(f"{stem}: {first.status} ({first.reason[:80]}), then {after.status}")
    return right, "; ".join(said)


def repeatability(bench: Bench) -> tuple[bool, str]:
    """The same case in two processes takes the same time, within a tenth."""
    said, right = [], True
    for framework, stem in (("torch", "func-vmap"), ("jax", "vmap")):
        if framework not in bench.able:
            continue
        one, two = [row for _ in range(2) for row in bench.rows(stem, 64, workload="cnn", framework=framework)]
        if one.median_s is None or two.median_s is None:
            right = False
            said.append(f"{framework}: {one.status} {one.reason}, {two.status} {two.reason}")
        else:
            right &= abs(one.median_s / two.median_s - 1) < 0.1
            said.append(f"{framework}: {one.median_s:.6f} s and {two.median_s:.6f} s")
    return right, "; ".join(said)


def whole_run(bench: Bench) -> tuple[bool, str]:
    """`pergrad run` on the device ends with a report."""
    device = f"gpu:{bench.gpu}" if bench.gpu else bench.device
    options = ["--device", device, "--budget", "120s", "--passes", "1", "--batch-size", "64", "--name", "run"]
    options += ["--workload", "policy", "--workload", "cnn"]
    options += ["--results", str(bench.folder / "results"), "--reports", str(bench.folder / "reports")]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.app", "run", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    (bench.folder / "run.log").write_text(done.stdout + done.stderr)
    if not (bench.folder / "reports" / "run" / "index.html").exists():
        return False, (done.stderr.strip().splitlines() or ["no report was written"])[-1]
    rows = [row for row in store.load(bench.folder / "results" / "run").rows if row.device == bench.device]
    tally = {str(status): sum(row.status is status for row in rows) for status in {row.status for row in rows}}
    return done.returncode == 0 and tally.get("ok", 0) > 0, f"{tally}; exit status {done.returncode}"


CHECKS = (
    *(frameworks_and_names, the_cpu_has_no_gpu, products_are_float32, waiting_waits, ceilings, agreement),
    *(memory, failures, repeatability, whole_run),
)


def all_checks(bench: Bench) -> Iterator[Check]:
    """One after the other; what fails in a way that nobody foresaw has failed."""
    for check in CHECKS:
        name, started = check.__name__.replace("_", " "), time.monotonic()
        try:
            passed, seen = check(bench)
        except Exception as error:
            note = "; ".join(getattr(error, "__notes__", ())) if isinstance(error, ChildProcessFailed) else ""
            passed, seen = False, f"{type(error).__name__}: {error} {note[-600:]}"
        yield Check(name, passed, seen, time.monotonic() - started)


def table(checks: list[Check]) -> str:
    """One line per check."""
    words = {True: "passed", False: "FAILED", None: "not made"}
    lines = ["check | result | seconds | what was seen", "--- | --- | --- | ---"]
    for check in checks:
        seen = " ".join(check.seen.split()).replace("|", "/")[:600]
        lines.append(f"{check.name} | {words[check.passed]} | {check.seconds:.0f} | {seen}")
    return "\n".join(lines)


def main() -> int:
    """Make all checks, write what they saw, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("acceptance"), help="folder for everything that is seen")
    parser.add_argument("--device", default="gpu", help="gpu, gpu:1, gpu:UUID; cpu tries the script itself")
    given = parser.parse_args()
    kind, chosen = device_and_gpu(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    seen = detect.detect([name for name in framework_names() if name != "numpy"], None, chosen)
    if kind == "gpu":
        detect.require_gpu(seen)
    able = [name for name, answer in seen.items() if kind in {device["kind"] for device in answer["devices"]}]
    checks = []
    for check in all_checks(Bench(kind, chosen, given.out.resolve(), tuple(able))):
        print(f"{check.name}: {check.passed} ({check.seconds:.0f} s): {check.seen[:300]}", file=sys.stderr)
        checks.append(check)
    cards = [card.as_json() for card in gpu.cards()]
    (given.out / "checks.json").write_text(json.dumps({"gpus": cards, "checks": list(map(asdict, checks))}, indent=1))
    text = table(checks)
    (given.out / "table.md").write_text(text + "\n")
    print(text)
    return int(any(check.passed is False for check in checks))


if __name__ == "__main__":
    sys.exit(main())
