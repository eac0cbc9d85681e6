"""Helpers for tests that need a framework: every one of them runs in a spawned process, never in pytest's own."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from harness import frameworks
from harness.core import find_strategies, find_workloads
from harness.core import strategy as strategy_
from harness.core.framework import framework as framework_of
from harness.core.workload import Arrays, Workload, cast
from harness.frameworks.base import to_numpy
from harness.reference import build, compare, files
from tests import framework_server

HERE = Path(__file__)

REFERENCES = "PERGRAD_TEST_REFERENCES"
"""Environment variable that names the folder of the references of a test session."""


def installed(framework: str) -> bool:
    """Whether a framework's package can be found; nothing is imported."""
    return importlib.util.find_spec(framework_of(framework).package) is not None


def needs(framework: str) -> pytest.MarkDecorator:
    """Skips a test by name where a framework is not installed."""
    return pytest.mark.skipif(not installed(framework), reason=f"{framework_of(framework).package} is not installed")


def each(*names: str) -> list[Any]:
    """Frameworks as parameters of a test."""
    return [pytest.param(name, marks=needs(name)) for name in names]


def run(
    function: Callable[..., Any], *arguments: Any, framework: str, dtype: str = "float32", optimized: bool = True
) -> Any:
    """Call a function of a test file in the process that all tests with this framework share.

    Args:
        optimized: whether XLA may take its time to optimise what JAX compiles. It takes longer than all else where
            many strategies run once.
    """
    target = f"{function.__code__.co_filename}:{function.__name__}"
    return framework_server.call(target, *arguments, framework=framework, dtype=dtype, optimized=optimized)


@functools.cache
def catalogue() -> find_strategies.Catalogue:
    """All strategies, found once: reading their files takes as long as most of them take on a tiny workload."""
    return find_strategies.discover()


def gradients(
    framework: str, strategy: str, workload: Workload, parameters: Arrays, batch: Arrays, check: bool = True
) -> Arrays:
    """Per-instance gradients by a built-in strategy, canonical. Called in the framework's own process."""
    adapter = frameworks.load(framework)
    device = adapter.device("cpu")
    size = len(next(iter(batch.values())))
    problem = adapter.bind(workload, parameters, device, size)
    with adapter.scope(problem):
        step = catalogue().find(strategy).build(problem)
        output = adapter.wait(step(adapter.place(adapter.native(batch, workload.layouts), device)))
        return adapter.canonical(to_numpy(adapter, output), workload.layouts)


STRATEGIES = {
    "jax": ("jax/vmap",),
    "torch": ("torch/func-vmap",),
    "tf1": ("tf1/session-loop", "tf1/unstack"),
    "tf2": ("tf2/vectorized-map", "tf2/jacobian"),
    "numpy": ("numpy/autograd-loop",),
}
"""The strategies that stand for a framework here: they differentiate in different ways. All are measured by runs."""


def verdicts(
    framework: str, dtype: str, names: list[str], sizes: list[int], chosen: list[str] | None = None
) -> dict[str, list[str]]:
    """A framework's strategies on some workloads: {case: [status, reason]}. In its own process."""
    found = {}
    quantities = {strategy.name: strategy.quantity for strategy in catalogue().strategies}
    for name in names:
        workload = find_workloads.find(name)
        parameters = cast(workload.initial_parameters(0), dtype)
        for size in sizes:
            batch = cast(workload.batches(0, size, 1)[0], dtype)
            reference = files.load(reference_file(workload, size, dtype))[0]
            for strategy in chosen or STRATEGIES[framework]:
                case = f"{strategy} on {name} at {size}"
                try:
                    rows = gradients(framework, strategy, workload, parameters, batch)
                    verdict = compare.check(rows, reference, dtype, quantities[strategy])
                    found[case] = [str(verdict.status), verdict.reason]
                except (strategy_.Unsupported, ModuleNotFoundError) as error:  # a package beyond the framework
                    found[case] = ["unsupported", str(error)]
                except Exception as error:
                    found[case] = ["error", f"{type(error).__name__}: {str(error)[:300]}"]
    return found


def reference_file(workload: Workload, size: int, dtype: str) -> Path:
    """The file with the reference for batches of a workload, computed once for all processes of a test session."""
    name = re.sub(r"\W+", "-", f"{workload.source}-{size}-{dtype}")
    path = Path(os.environ[REFERENCES]) / f"{name}.npz"
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            build.write(path, workload.source, size, 0, dtype)
    return path
