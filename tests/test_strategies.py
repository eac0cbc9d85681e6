"""Every strategy that is discovered computes what it claims, on several small workloads and in real workers.

A new file in `strategies/` is tested here without touching anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from harness.core import find_strategies
from harness.core.framework import BUILT_IN as FRAMEWORKS
from harness.core.records import Measurement, Status
from harness.core.strategy import Strategy
from harness.core.task import Task
from harness.runner import workers
from tests import bound
from tests.conftest import installed

STRATEGIES = find_strategies.discover().strategies
SMALL = ("cnn-small", "transformer-small")
"""Every kind of layer: dense, convolution, embedding, normalisation, attention, a table used twice."""

SLOW = ("torch/compiled-func-vmap",)
"""Half a minute per workload: measured on one only."""

VALUES = 45
"""Parameters of the policy network."""


def in_a_worker(strategy: Strategy) -> bool:
    """Whether all checks of a run are made here too. They take seconds each; a run makes them for every strategy."""
    first = ("session-loop", "concurrent-sessions", "unstack", "jacobian", "vectorized-map", "vmap", "func-vmap")
    direct = ("batch-gradient", "ghost-norms", "ghost-clipping")
    name = strategy.name.partition("/")[2]
    return name in (*first, *direct) or strategy.reuses_output or bool(strategy.environment)


def output_bytes(quantity: str, batch_size: int) -> int:
    """Of policy, in float32."""
    return 4 * {"gradients": batch_size * VALUES, "norms": batch_size}.get(quantity, VALUES)


@pytest.mark.parametrize("framework", bound.each(*FRAMEWORKS))
@pytest.mark.parametrize(("names", "sizes"), [(("policy",), (1, 8)), (SMALL, (3,))], ids=["policy", "small"])
def test_every_strategy_agrees_with_the_reference_or_says_why_not(
    framework: str, names: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    """All strategies of a framework in one process."""
    chosen = [s.name for s in STRATEGIES if s.framework == framework and (s.name not in SLOW or names != SMALL)]

    found = bound.run(
        bound.verdicts, framework, "float32", names, sizes, chosen, framework=framework, optimized=names != SMALL
    )

    assert len(found) == len(names) * len(sizes) * len(chosen)
    assert {case: verdict for case, verdict in found.items() if verdict[0] not in ("ok", "unsupported")} == {}
    assert all(reason for status, reason in found.values() if status == "unsupported")


@pytest.fixture(scope="module")
def row_of(task_for: Callable[..., Task]) -> Callable[[Strategy], Measurement]:
    """The row of one of these strategies; those that can share a worker, which imports their framework, do."""

    @functools.cache
    def rows(framework: str, environment: tuple[tuple[str, str], ...]) -> dict[str, Measurement]:
        among = [s for s in STRATEGIES if in_a_worker(s) and (s.framework, s.environment) == (framework, environment)]
        return {row.strategy: row for row in workers.measure(tuple(task_for(strategy, 3) for strategy in among))}

    return lambda strategy: rows(strategy.framework, strategy.environment)[strategy.name]


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if in_a_worker(s)], ids=lambda strategy: strategy.name)
def test_passes_every_check_in_a_real_worker(strategy: Strategy, row_of: Callable[[Strategy], Measurement]) -> None:
    if not installed(strategy.framework):
        pytest.skip(f"{strategy.framework} is not installed")

    row = row_of(strategy)

    if row.status is Status.UNSUPPORTED:
        pytest.skip(row.reason)  # one core cannot be shared out
    assert row.status is Status.OK, f"{row.reason}\n{row.detail}"
    assert row.digits is not None
    assert row.digits > 5
    assert row.rows_checked == (3 if strategy.quantity in ("gradients", "norms") else 0)
    assert all(sample > 0 for sample in row.samples_ns)
    assert None not in (row.import_s, row.build_s, row.first_call_s, row.fetch_s, row.median_s)
    assert row.output_bytes == output_bytes(strategy.quantity, 3)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_explains_itself_in_a_first_line_that_stands_alone(strategy: Strategy) -> None:
    assert strategy.summary.endswith((".", ":"))
    assert 20 < len(strategy.summary) <= 110
    assert strategy.source


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_a_compiled_strategy_is_not_compiled_again_by_being_watched(task_for: Callable[..., Task]) -> None:
    strategy = next(s for s in STRATEGIES if s.name == "torch/compiled-func-vmap")

    (row,) = workers.measure((task_for(strategy, 3),))

    if row.status is Status.UNSUPPORTED:
        pytest.skip(row.reason)
    assert row.status is Status.OK, row.reason
    assert row.retraces == 0
    assert row.median_s is not None
    assert row.first_call_s is not None
    assert row.median_s < row.first_call_s / 10
