"""How rows become one line per case."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis import case_summary, panels, steady
from harness.analysis.case_summary import CaseSummary
from harness.analysis.panels import Panel
from harness.core import store
from harness.core.records import Mark, MarkKind, Measurement, Status
from harness.core.store import Run
from tests import made_runs
from tests.made_runs import failed, ok

BASE = "tf1/session-loop"


def run_of(*rows: Measurement, **info: Any) -> Run:
    return Run(Path("made"), {"baseline": BASE, **info}, rows)


def only_panel(*rows: Measurement, **info: Any) -> Panel:
    (panel,) = panels.panels([run_of(*rows, **info)])
    return panel


def case(panel: Panel, strategy: str, batch_size: int = 4) -> CaseSummary:
    (found,) = (case for case in panel.cases if (case.strategy, case.batch_size) == (strategy, batch_size))
    return found


def around(nanoseconds: int) -> list[int]:
    return [nanoseconds + step * nanoseconds // 1000 for step in range(-5, 6)]


def test_a_case_measured_in_three_passes_is_one_line(tmp_path: Path) -> None:
    # given a run of 7 strategies, 5 batch sizes and 3 passes
    run = store.load(made_runs.normal(tmp_path / "run"))
    # when it is analysed
    (panel,) = panels.panels([run])
    # then there are 35 lines, each made of 3 passes
    assert len(panel.cases) == 35
    assert {found.passes for found in panel.cases} == {3}
    assert tuple(panels.table(panel.cases).columns) == panels.COLUMNS


def test_the_time_is_the_median_over_passes_of_the_median_of_rounds() -> None:
    panel = only_panel(
        ok("jax/vmap", 4, 1, [1000, 2000, 3000]),
        ok("jax/vmap", 4, 2, [4000, 5000, 6000]),
        ok("jax/vmap", 4, 3, [9000, 9000, 9000]),
    )

    assert case(panel, "jax/vmap").time_s == pytest.approx(5e-6)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_case_takes_its_worst_status_and_then_has_no_time(status: Status) -> None:
    # given a case that is ok in two passes and something else in one
    rows = [
        ok("jax/vmap", 4, 1, around(1000)),
        failed("jax/vmap", 4, 2, status, "why"),
        ok("jax/vmap", 4, 3, around(1000)),
    ]
    # when it is analysed, with a baseline beside it
    found = case(only_panel(*rows, ok(BASE, 4, 1, around(9000))), "jax/vmap")
    # then the status is the worst, with its reason, and nothing is ranked
    assert found.status == status
    assert found.reason == "why (in pass 2)"
    assert math.isnan(found.time_s)
    assert math.isnan(found.speedup.value)
    assert (found.passes_ok, found.passes) == (2, 3)


def test_wrong_numbers_are_worse_than_no_numbers() -> None:
    assert case_summary.SEVERITY[0] is Status.OK
    assert case_summary.SEVERITY[-1] is Status.DISAGREES
    assert set(case_summary.SEVERITY) == set(Status)


def test_what_was_not_measured_is_nan_and_never_zero() -> None:
    # given a row in which every optional value is null
    panel = only_panel(failed("jax/vmap", 4, 1, Status.TIMEOUT, "60 s"))
    # when it is analysed
    found = case(panel, "jax/vmap")
    # then each of them is NaN
    empty = [
        *("import_s", "build_s", "first_call_s", "fetch_s", "case_s", "floor_s", "minor_faults", "cores_busy"),
        *("time_s", "time_low_s", "time_high_s", "peak_bytes", "output_bytes", "digits", "system_share"),
    ]
    assert all(math.isnan(getattr(found, column)) for column in empty)
    assert math.isnan(found.speedup.value)


def test_a_case_that_is_ok_without_any_timed_call_has_no_time_and_says_so() -> None:
    found = case(only_panel(ok("jax/vmap", 4, 1, [])), "jax/vmap")

    assert math.isnan(found.time_s)
    assert found.reason == "no timed call is on record"


def test_a_row_without_samples_counts_with_its_median() -> None:
    found = case(only_panel(ok("jax/vmap", 4, 1, [], median_s=0.25)), "jax/vmap")

    assert found.time_s == 0.25


def test_a_speedup_has_direction_interval_and_verdict() -> None:
    # given a strategy ten times as fast as the baseline
    panel = only_panel(ok(BASE, 4, 1, around(100_000)), ok("jax/vmap", 4, 1, around(10_000)))
    # when it is analysed
    found = case(panel, "jax/vmap")
    # then 10 means faster, and lies within its interval
    assert found.speedup.low <= found.speedup.value <= found.speedup.high
    assert found.speedup.value == pytest.approx(10)
    assert found.verdict == "FASTER"


def test_the_baseline_is_compared_with_nothing() -> None:
    found = case(only_panel(ok(BASE, 4, 1, around(100_000))), BASE)

    assert (found.speedup.value, found.verdict) == (1.0, "")


def test_without_a_baseline_there_is_no_speedup() -> None:
    found = case(only_panel(ok("jax/vmap", 4, 1, around(1000)), failed(BASE, 4, 1, Status.ERROR, "no")), "jax/vmap")

    assert math.isnan(found.speedup.value)


@pytest.mark.parametrize("dimension", ["workload", "quantity", "device", "dtype", "allocator"])
def test_cases_that_differ_in_more_than_strategy_and_batch_size_are_never_compared(dimension: str) -> None:
    # given a baseline under one condition and a strategy under another
    rows = [ok(BASE, 4, 1, around(9000)), ok("jax/vmap", 4, 1, around(1000), **{dimension: "other"})]
    # when the run is analysed
    found = panels.panels([run_of(*rows)])
    # then they stand in two panels, and there is no speed-up across them
    assert len(found) == 2
    assert (
        sum(not math.isnan(case.speedup.value) for panel in found for case in panel.cases) == 1
    )  # the baseline itself


def test_two_runs_are_never_mixed() -> None:
    # given two runs whose folders have one name
    runs = [run_of(ok(BASE, 4, 1, around(9000))), run_of(ok("jax/vmap", 4, 1, around(1000)))]
    # when they are analysed together
    found = panels.panels(runs)
    # then each has its own panel, and a name of its own
    assert [panel.conditions.run for panel in found] == ["made (1)", "made (2)"]


def test_a_case_that_was_measured_again_counts_once_with_the_last_try() -> None:
    # given a pass that failed and was measured again by a resumed sweep
    rows = [failed("jax/vmap", 4, 1, Status.CRASHED, "signal 9"), ok("jax/vmap", 4, 1, around(1000))]
    # then the second try stands
    found = case(only_panel(*rows), "jax/vmap")
    assert (found.status, found.passes) == ("ok", 1)


def test_planned_cases_of_an_interrupted_run_are_named_as_skipped() -> None:
    # given a run that planned two strategies at two batch sizes and measured one case
    plan = {"workloads": ["policy"], "strategies": [BASE, "jax/vmap"], "devices": ["cpu"], "batch_sizes": [1, 4]}
    panel = only_panel(ok(BASE, 1, 1, around(1000)), plan=plan, state="interrupted")
    # then the other three are there, with the reason
    missing = [found for found in panel.cases if found.status is Status.SKIPPED]
    assert len(missing) == 3
    assert {found.reason for found in missing} == {case_summary.NOT_REACHED}


def test_agreement_is_the_worst_over_passes_and_zero_error_is_exact() -> None:
    # given one strategy with two errors, and one without any
    rows = [
        ok("jax/vmap", 4, 1, around(1000), max_relative_error=1e-7, worst_parameter="a"),
        ok("jax/vmap", 4, 2, around(1000), max_relative_error=1e-5, worst_parameter="b"),
        ok(BASE, 4, 1, around(1000), max_relative_error=0.0, digits=None),
    ]
    panel = only_panel(*rows)
    # then the larger counts, with its parameter, and no error is infinitely many digits
    assert case(panel, "jax/vmap").digits == pytest.approx(5)
    assert case(panel, "jax/vmap").worst_parameter == "b"
    assert case(panel, BASE).digits == math.inf


def test_a_leak_is_one_where_every_process_shows_it() -> None:
    leak = Mark(MarkKind.LEAK, "memory grows by 5 MB with every call")
    once = [ok("jax/vmap", 4, 1, around(1000), marks=(leak,)), ok("jax/vmap", 4, 2, around(1000))]
    always = [ok("jax/scan", 4, number, around(1000), marks=(leak,)) for number in (1, 2)]

    panel = only_panel(*once, *always)

    assert case(panel, "jax/vmap").marks == ()
    assert case(panel, "jax/scan").marks == (leak,)


def test_the_control_is_one_more_process_of_the_baseline() -> None:
    # given the baseline under a second name, 5 % apart
    rows = [ok(BASE, 4, 1, around(100_000)), ok("tf1/again", 4, 1, around(105_000))]
    # then that is the floor
    floor = only_panel(*rows, control="tf1/again").floor
    assert (floor.source, floor.pairs) == ("processes", 1)
    assert floor.factor == pytest.approx(1.05)


def test_the_control_is_in_the_table_and_never_ranked() -> None:
    # given a control that happens to be the fastest
    panel = only_panel(ok(BASE, 4, 1, around(9000)), ok("tf1/again", 4, 1, around(8000)), control="tf1/again")
    # then it has its line, and the baseline is still the fastest
    assert case(panel, "tf1/again").status == "ok"
    assert [found.strategy for found in panel.at(4)] == [BASE]


def test_the_noise_floor_comes_from_all_pairs_of_processes_of_one_case() -> None:
    floor = only_panel(*(ok(BASE, 4, number, around(100_000 + 1000 * number)) for number in (1, 2, 3))).floor

    assert (floor.source, floor.pairs) == ("processes", 3)
    assert floor.factor == pytest.approx(103 / 101)


def test_with_one_pass_the_noise_floor_is_assumed() -> None:
    floor = only_panel(ok(BASE, 4, 1, around(1000))).floor

    assert (floor.source, floor.factor) == ("assumed", 1.2)


def test_strategies_stand_in_the_order_of_speed_at_the_largest_batch_size_they_reached(tmp_path: Path) -> None:
    (panel,) = panels.panels([store.load(made_runs.normal(tmp_path / "run"))])

    assert panel.strategies[0] == "jax/vmap"
    assert panel.strategies[-1] == "tf1/unstack"  # fast, but it stopped at 64


def test_an_interval_does_not_depend_on_what_else_the_run_holds() -> None:
    # given one case alone, and the same case among others
    rng = np.random.default_rng(0)
    row = ok("jax/vmap", 4, 1, made_runs.noisy(rng, 100, 40))
    alone, among = only_panel(row), only_panel(ok(BASE, 4, 1, around(9000)), row)
    # then it has the same interval
    assert case(alone, "jax/vmap").estimate == case(among, "jax/vmap").estimate


@pytest.mark.parametrize(
    "oddity",
    [
        {"samples_ns": ["one", None, -3, 1000]},
        {"build_s": "soon"},
        {"workload": None},
        {"marks": [{"kind": "no such kind", "text": ""}]},
        {"batch_size": "many"},
        {"pass": "first"},
        {"status": "wonderful"},
    ],
    ids=lambda oddity: next(iter(oddity)),
)
def test_a_row_that_holds_the_wrong_kind_of_value_is_left_out_and_named(tmp_path: Path, oddity: dict[str, Any]) -> None:
    store.create(tmp_path / "run", {})
    store.append(tmp_path / "run", ok(BASE, 4, 1, around(1000)))
    odd = ok("jax/vmap", 4, 1, around(1000)).as_json() | oddity
    with (tmp_path / "run" / store.ROWS_FILE).open("a") as file:
        file.write(json.dumps(odd) + "\n")

    run = store.load(tmp_path / "run")

    assert [row.strategy for row in run.rows] == [BASE]
    assert run.unreadable[0].startswith("line 2: ")
    (panel,) = panels.panels([run])
    assert panel.strategies == [BASE]


def test_a_run_without_rows_has_an_empty_table() -> None:
    assert panels.panels([run_of()]) == []
    assert panels.table([]).empty


def test_a_run_tells_how_much_of_it_was_timed_and_in_how_many_turns() -> None:
    rows = [ok("jax/vmap", 4, 1, around(1000), timed_s=0.5), ok("jax/vmap", 8, 1, [1000] * 5, timed_s=1.0)]

    assert steady.steady_share(run_of(*rows, wall_s=6.0)) == pytest.approx(0.25)
    assert steady.turns(run_of(*rows)) == (5, 8, 11)


def test_a_run_without_a_wall_time_or_turns_tells_neither() -> None:
    run = run_of(ok("jax/vmap", 4, 1, around(1000)))

    assert steady.steady_share(run) is None
    assert steady.turns(run) is None
