"""Shared means of the tests. No framework is ever imported into the test process: workers do that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core import find_strategies, find_workloads
from harness.core.framework import framework as known_framework
from harness.core.records import Measurement, Task
from harness.core.strategy import Strategy
from harness.core.workload import cast
from harness.reference import build
from harness.runner import workers

PLANTED = Path(__file__).parent / "planted"

MeasureQuickly = Callable[..., list[Measurement]]


def installed(framework: str) -> bool:
    """Whether the framework's package can be imported here; found out without importing it."""
    return known_framework(framework).is_installed


@pytest.fixture(autouse=True)
def lock_of_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests take a lock of their own: they neither wait for a run on this machine nor hold one up."""
    monkeypatch.setenv("PERGRAD_LOCK", str(tmp_path / "pergrad.lock"))


@pytest.fixture(scope="session")
def truth_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], str]:
    """The reference for batches of a workload, computed once per session: (workload, batch size) -> file."""
    folder = tmp_path_factory.mktemp("references")
    cache: dict[tuple[str, int], str] = {}

    def truth_file(name: str, size: int) -> str:
        if (name, size) not in cache:
            workload = find_workloads.find(name)
            parameters = cast(workload.initial_parameters(0), "float32")
            batches = [cast(batch, "float32") for batch in workload.batches(0, size, build.BATCHES)]
            path = folder / f"{name}-{size}.npz"
            build.save(path, [build.compute(workload, parameters, batch) for batch in batches])
            cache[name, size] = str(path)
        return cache[name, size]

    return truth_file


@pytest.fixture(scope="session")
def task_for(truth_files: Callable[[str, int], str]) -> Callable[..., Task]:
    """A task for a strategy that spends next to no time on timing."""

    def task(strategy: Strategy, *batch_sizes: int, workload: str = "policy", limit_s: float = 60) -> Task:
        return Task(
            strategy=strategy.name,
            framework=strategy.framework,
            plugin=strategy.plugin,
            workload=workload,
            quantity=strategy.quantity,
            device="cpu",
            dtype="float32",
            batch_sizes=batch_sizes,
            pass_number=1,
            references={size: truth_files(workload, size) for size in batch_sizes},
            seed=0,
            limit_s=limit_s,
            target_s=0.01,
            most_rounds=20,
            environment=dict(strategy.environment),
        )

    return task


@pytest.fixture(scope="session")
def planted(task_for: Callable[..., Task]) -> MeasureQuickly:
    """Measure a planted strategy of `tests/planted/` in a real worker: (file's stem, *batch sizes) -> rows."""

    def measure(stem: str, *batch_sizes: int, limit_s: float = 60) -> list[Measurement]:
        path = PLANTED / f"{stem}.py"
        strategy = next(s for s in find_strategies.discover([path]).strategies if s.path == path)
        return list(workers.measure((task_for(strategy, *batch_sizes, limit_s=limit_s),)))

    return measure
