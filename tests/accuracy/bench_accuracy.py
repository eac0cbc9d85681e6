"""Is the stopwatch right, and does a loss through `ops` cost what it costs by hand?

A benchmark, run on demand with `tox -e accuracy`, not part of the test suite: timings are no asserts there. Every
figure is the median of the ratios of pairs measured alternately in one process: 25, or 9 where a call takes over 0.2 s.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core import find_strategies, find_workloads
from harness.core.framework import framework_names
from harness.core.task import Task
from harness.frameworks.child_process import environment
from harness.runner import workers
from tests.conftest import PLANTED, installed

INSIDE = Path(__file__).with_name("inside.py")
CASES = [(name, size) for name in find_strategies.discover().measurable(False, framework_names()) for size in (1, 64)]
"""The strategies of the default plan."""
FRAMEWORKS = {"jax": "jax/vmap", "torch": "torch/func-vmap", "tf2": "tf2/vectorized-map", "tf1": "tf1/session-loop"}
"""Framework -> one of its strategies, whichever: a problem is bound for one."""
SLOW = {"cifar-cnn": 4, "transformer": 4}
"""Workload -> batch size, where one call at 16 would take long."""


def ratios(kind: str, strategy: str, batch_size: int, folder: Path, workload: str = "policy") -> list[float]:
    """Run `inside.py` for one strategy on one workload; returns the ratios of its pairs."""
    found = find_strategies.discover().find(strategy)
    if not installed(found.framework):
        pytest.skip(f"{found.framework} is not installed")
    out = folder / "ratios.json"
    variables = environment(found.framework, "cpu", None) | {
        "PERGRAD_ACCURACY": json.dumps([kind, found.framework, found.name, found.plugin, workload, batch_size]),
        "PERGRAD_ACCURACY_OUT": str(out),
    }
    command = [sys.executable, "-m", "pytest", str(INSIDE), "-q", "-c", os.devnull, "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin", "--benchmark-disable-gc"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=INSIDE.parents[2], check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    measured: list[float] = json.loads(out.read_text())
    return measured


def say(what: str, measured: list[float]) -> float:
    """Print the median ratio with its quartiles, return the median."""
    low, median, high = statistics.quantiles(measured, n=4)
    print(f"\n{what}: {median:.3f} (quartiles {low:.3f} to {high:.3f}, {len(measured)} pairs)")
    return median


@pytest.mark.parametrize(("milliseconds", "within"), [(1, 0.01), (10, 0.005), (100, 0.005)])
def bench_planted_busy_wait_is_reported_exactly(
    milliseconds: int, within: float, task_for: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERGRAD_BUSY_MS", str(milliseconds))
    path = PLANTED / "busy_wait.py"
    strategy = find_strategies.discover([path]).find("numpy/busy-wait")

    (row,) = workers.measure((replace(task_for(strategy, 1), target_s=1.0),))

    assert row.median_s is not None, row.reason
    print(f"\nbusy wait of {milliseconds} ms reported as {row.median_s * 1e3:.4f} ms ({row.status})")
    assert abs(row.median_s * 1e3 / milliseconds - 1) < within


@pytest.mark.parametrize("kind", ["stopwatch", "pedantic"])
@pytest.mark.parametrize(("strategy", "batch_size"), CASES)
def bench_a_turn_reports_what_others_measure(strategy: str, batch_size: int, kind: str, tmp_path: Path) -> None:
    other = {"stopwatch": "a loop by hand", "pedantic": "pytest-benchmark"}[kind]
    median = say(f"a turn / {other}, {strategy} B={batch_size}", ratios(kind, strategy, batch_size, tmp_path))

    assert abs(median - 1) < 0.05


@pytest.mark.parametrize("command", ["list strategies", "list workloads", "--help", "show jax/vmap"])
def bench_a_command_that_measures_nothing_answers_at_once(command: str) -> None:
    seconds = []
    for _ in range(9):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "harness.cli.app", *command.split()], capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    print(f"\npergrad {command}: {median:.2f} s (fastest {min(seconds):.2f}, slowest {max(seconds):.2f})")

    assert median < 0.5


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("workload", [workload.name for workload in find_workloads.builtin()])
def bench_a_loss_through_ops_costs_what_it_costs_by_hand(workload: str, framework: str, tmp_path: Path) -> None:
    batch_size = SLOW.get(workload, 16)
    measured = ratios("ops", FRAMEWORKS[framework], batch_size, tmp_path, workload)
    median = say(f"ops / by hand, {workload} in {framework} B={batch_size}", measured)

    assert median < 1.05
