"""Shared means of the tests. No framework is ever imported into the test process: workers do that."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from harness.core import find_strategies, find_workloads
from harness.core.records import Measurement
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.runner import workers
from harness.system import roofline
from tests import bound, pergrad_at_once
from tests.bound import installed

__all__ = ["PLANTED", "MeasureQuickly", "installed"]

PLANTED = Path(__file__).parent / "planted"

MeasureQuickly = Callable[..., list[Measurement]]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """What tests start computes with one thread: on small arrays others wait in a loop, on cores that tests need."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))


@pytest.fixture(scope="session", autouse=True)
def shared_references(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All processes of a session find references in one folder."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "references"
    folder.mkdir(exist_ok=True)
    os.environ[bound.REFERENCES] = str(folder)


SLOW = {
    *("test_cli", "test_check", "test_documentation", "test_edge_cases", "test_framework", "test_interruptions"),
    *("test_jax", "test_new", "test_notebook", "test_own_module", "test_planted_faults", "test_plugin_package"),
    *("test_standalone", "test_strategies", "test_tensorflow", "test_torch", "test_wheel", "test_workloads"),
    "test_second_device",
    "test_fuzz",
    "test_fleet_connection",
    "test_fleet_faults",
}
"""Modules that start many workers or compile much: all but a tenth of the suite's time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow modules."""
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have tests with one framework run in one process of `pytest -n`, where they share what they start.

    What `--dist loadgroup` is for, which groups nothing with pytest 9.2: pytest-dev/pytest-xdist#1386.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFramework(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            if Path(module).stem in TOGETHER:
                return module
            found = FRAMEWORK_OF_A_TEST.search(nodeid)
            return f"{found[1]} {'strategies' if found[2] else ''}" if found else nodeid

    return ByFramework(config, log)


TOGETHER = {"test_framework", "test_planted_faults", "test_plugin_package", "test_wheel"}
"""Modules whose tests share what takes seconds to make: an installed package, a run, a worker."""

FRAMEWORK_OF_A_TEST = re.compile(r"[\[-](numpy|jax|torch|tf1|tf2)(/[\w-]+)?\]$")
"""The last parameter of a test: a framework, or a strategy, whose tests are another group of the framework."""

IS_INSIDE_A_TEST = "PYTEST_CURRENT_TEST" in os.environ
"""Whether a test has started this pytest: it waits for it, and must not be waited for."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test marked `alone` while no other process of `pytest -n` runs one.

    Others share `turn`, such a test has it for itself. Whoever asks for it passes `gate` first and keeps it closed
    while waiting, so that one who needs to be alone is not overtaken for ever.
    """
    if IS_INSIDE_A_TEST:
        return (yield)
    with Path(__file__).open() as turn:
        with Path(bound.__file__).open() as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(turn, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        return (yield)


@pytest.fixture(autouse=True)
def lock_of_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests take a lock of their own: they neither wait for a run on this machine nor hold one up."""
    monkeypatch.setenv("PERGRAD_LOCK", str(tmp_path / "pergrad.lock"))


@pytest.fixture(autouse=True)
def given_roofline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs inside pytest's own process are given what the machine can do; runs of `test_wheel.py` measure it."""
    monkeypatch.setattr(roofline, "measure", pergrad_at_once.given)


@pytest.fixture(scope="session")
def task_for() -> Callable[..., Task]:
    """A task for a strategy that spends next to no time on timing."""

    def task(strategy: Strategy, *batch_sizes: int, workload: str = "policy", limit_s: float = 600) -> Task:
        found = find_workloads.find(workload)
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
            references={size: str(bound.reference_file(found, size, "float32")) for size in batch_sizes},
            seed=0,
            limit_s=limit_s,
            target_s=0.01,
            environment=dict(strategy.environment),
        )

    return task


def strategy_of(stem: str) -> Strategy:
    """The strategy that a file of `tests/planted/` defines."""
    path = PLANTED / f"{stem}.py"
    return next(s for s in find_strategies.discover([path]).strategies if s.path == path)


@pytest.fixture(scope="session")
def planted(task_for: Callable[..., Task]) -> MeasureQuickly:
    """Measure a planted strategy of `tests/planted/` in a real worker: (file's stem, *batch sizes) -> rows."""

    def measure(stem: str, *batch_sizes: int, limit_s: float = 600) -> list[Measurement]:
        return list(workers.measure((task_for(strategy_of(stem), *batch_sizes, limit_s=limit_s),)))

    return measure
