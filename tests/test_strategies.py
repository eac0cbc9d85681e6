"""Every strategy that is discovered computes the true per-instance gradients, in a real worker.

A new file in `strategies/` is tested here without touching anything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import process, strategies
from harness.records import Measurement, Status
from harness.strategies import Strategy
from harness.task import Task
from tests.conftest import installed

BATCH_SIZES = (1, 3, 8)


@pytest.fixture(scope="module")
def rows_of(task_for: Callable[..., Task]) -> Callable[[Strategy], dict[int, Measurement]]:
    """One worker per strategy measures all batch sizes; its rows serve all tests of that strategy."""
    cache: dict[str, dict[int, Measurement]] = {}

    def rows(strategy: Strategy) -> dict[int, Measurement]:
        if not installed(strategy.framework):
            pytest.skip(f"{strategy.framework} is not installed")
        if strategy.name not in cache:
            found = process.measure((task_for(strategy, *BATCH_SIZES),))
            cache[strategy.name] = {row.batch_size: row for row in found}
        return cache[strategy.name]

    return rows


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("strategy", strategies.discover().strategies, ids=lambda strategy: strategy.name)
def test_agrees_with_the_reference_or_says_why_not(
    strategy: Strategy, batch_size: int, rows_of: Callable[[Strategy], dict[int, Measurement]]
) -> None:
    row = rows_of(strategy)[batch_size]

    assert row.status in (Status.OK, Status.UNSUPPORTED), f"{row.reason}\n{row.detail}"
    if row.status is Status.OK:
        assert row.digits is not None
        assert row.digits > 5
        assert row.rows_checked == batch_size
        assert all(sample > 0 for sample in row.samples_ns)
        assert None not in (row.import_s, row.build_s, row.first_call_s, row.fetch_s, row.median_s)
        assert row.output_bytes == batch_size * 45 * 4
    else:
        assert row.reason


@pytest.mark.parametrize("strategy", strategies.discover().strategies, ids=lambda strategy: strategy.name)
def test_explains_itself_in_a_first_line_that_stands_alone(strategy: Strategy) -> None:
    assert strategy.summary.endswith((".", ":"))
    assert 20 < len(strategy.summary) <= 110
    assert strategy.source
