"""What `pergrad compare A B` may say of two runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.compare import CaseChange, Comparison, DifferentMachines, compare
from harness.analysis.statistics import Verdict
from harness.core import store
from harness.core.records import Measurement, Status
from harness.report.html import comparison
from tests import made_runs
from tests.made_runs import HOSTILE, failed, ok

BASE = "tf1/session-loop"


def stored(folder: Path, *rows: Measurement, **info: Any) -> Path:
    store.create(folder, made_runs.info([BASE]) | info)
    for row in rows:
        store.append(folder, row)
    return folder


def around(nanoseconds: int) -> list[int]:
    return [nanoseconds + step * nanoseconds // 1000 for step in range(-5, 6)]


def passes(nanoseconds: int, strategy: str = "jax/vmap", **changes: Any) -> list[Measurement]:
    """Five passes that agree within 2 %, which is then the noise floor."""
    steps = enumerate((-10, 0, 1, -1, 10), start=1)
    return [ok(strategy, 4, n, around(nanoseconds + step * nanoseconds // 1000), **changes) for n, step in steps]


def both(folder: Path, one: list[Measurement], two: list[Measurement]) -> Comparison:
    return compare(stored(folder / "a", *one), stored(folder / "b", *two))


def only(found: Comparison) -> CaseChange:
    (case,) = found.cases
    return case


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (100_000, 50_000, Verdict.FASTER),
        (100_000, 200_000, Verdict.SLOWER),
        (100_000, 100_000, Verdict.SAME),
        (100_000, 102_500, Verdict.AMBIGUOUS),
    ],
)
def test_a_case_gets_one_of_four_words(tmp_path: Path, before: int, after: int, verdict: Verdict) -> None:
    case = only(both(tmp_path, passes(before), passes(after)))

    assert case.verdict is verdict
    assert case.ratio is not None
    assert case.ratio.value == pytest.approx(before / after)  # above 1: faster


def test_a_difference_must_exceed_the_noise_floor_of_both_runs(tmp_path: Path) -> None:
    # given a quiet run, and one whose passes differ by 30 %
    quiet = passes(100_000)
    loud = [ok("jax/vmap", 4, n, around(time)) for n, time in ((1, 80_000), (2, 88_000), (3, 105_000))]
    # when they are compared in either direction
    found = [only(both(tmp_path / name, *pair)) for name, pair in (("x", (quiet, loud)), ("y", (loud, quiet)))]
    # then nothing is called faster or slower
    assert not {case.verdict for case in found} & {Verdict.FASTER, Verdict.SLOWER}
    assert all(case.floor > 1.3 for case in found)


def test_a_run_compared_with_itself_is_never_faster_or_slower(tmp_path: Path) -> None:
    run = made_runs.normal(tmp_path / "run")

    found = compare(run, run)

    assert set(found.counts()) <= {"SAME", "AMBIGUOUS", "NOT COMPARED"}
    assert (found.a, found.b) == ("run (1)", "run (2)")


def test_a_case_without_a_time_in_one_run_has_no_ratio_and_stays_in_the_list(tmp_path: Path) -> None:
    case = only(both(tmp_path, passes(100_000), []))

    assert (case.ratio, case.verdict, case.status_b) == (None, None, "not planned")


def test_a_case_that_fails_now_is_broken_and_stands_first(tmp_path: Path) -> None:
    # given a strategy that became slower, and one that no longer agrees
    one = [*passes(1000, "a/slower"), *passes(1000, "b/wrong")]
    two = [*passes(9000, "a/slower"), failed("b/wrong", 4, 1, Status.DISAGREES, "0 digits")]
    # when they are compared
    found = both(tmp_path, one, two)
    # then the broken one is named, first
    assert [case.strategy for case in found.broken()] == ["b/wrong"]
    assert [case.strategy for case in found.cases] == ["b/wrong", "a/slower"]


@pytest.mark.parametrize(("threshold", "count"), [(0.1, 1), (0.5, 0)])
def test_slower_than_needs_the_verdict_and_the_threshold(tmp_path: Path, threshold: float, count: int) -> None:
    found = both(tmp_path, passes(100_000), passes(125_000))

    assert len(found.slower_than(threshold)) == count


def test_different_machines_are_refused_and_named_unless_it_is_asked_for(tmp_path: Path) -> None:
    # given two runs, the second on another processor
    one = stored(tmp_path / "a", *passes(1000))
    two = stored(tmp_path / "b", *passes(1000), machine=made_runs.info([BASE])["machine"] | {"processor": "Other"})
    # then they are refused by name
    with pytest.raises(DifferentMachines, match=r"processor AMD EPYC 9R14 and Other.*--across-machines"):
        compare(one, two)
    # unless that is wanted; then the difference is part of the result
    assert "processor AMD EPYC 9R14 and Other" in compare(one, two, across_machines=True).differences


def test_a_little_more_memory_is_the_same_machine_and_other_versions_are_named(tmp_path: Path) -> None:
    here = made_runs.info([BASE])
    one = stored(tmp_path / "a", *passes(1000))
    machine = here["machine"] | {"memory_bytes": 16_010_000_000}
    two = stored(tmp_path / "b", *passes(1000), machine=machine, versions=here["versions"] | {"jax": "0.11.0"})

    assert compare(one, two).differences == ("jax 0.10.2 and 0.11.0",)


def test_allocators_and_devices_are_cases_of_their_own(tmp_path: Path) -> None:
    found = both(tmp_path, passes(1000), passes(500, allocator="reuse"))

    assert found.counts() == {"NOT COMPARED": 2}


def test_the_terminal_shows_the_worst_first_and_the_counts_last(tmp_path: Path) -> None:
    one = [*passes(1000, "a/same"), *passes(1000, "b/slower")]
    two = [*passes(1000, "a/same"), *passes(2000, "b/slower")]

    lines = comparison.as_text(both(tmp_path, one, two)).splitlines()

    assert lines[1].startswith("SLOWER  2× slower [")
    assert "policy: b/slower at batch size 4" in lines[1]
    assert lines[-1] == "1 SLOWER, 1 SAME"


def test_page_csv_and_json_tell_the_same(tmp_path: Path) -> None:
    index = comparison.write(both(tmp_path, passes(1000), passes(2000)), tmp_path / "out")

    written = json.loads((index.parent / "comparison.json").read_text())
    with (index.parent / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert written["counts"] == {"SLOWER": 1}
    assert written["cases"][0]["verdict"] == rows[0]["verdict"] == "SLOWER"
    assert float(rows[0]["ratio"]) == pytest.approx(written["cases"][0]["ratio"]["value"])
    assert "▼" in index.read_text()


def test_hostile_names_are_text_on_page_and_terminal(tmp_path: Path) -> None:
    rows = passes(1000, HOSTILE + "\x1b[31m", workload=HOSTILE)
    found = both(tmp_path, rows, rows)

    html = comparison.write(found, tmp_path / "out").read_text()

    assert html.lower().count("<script") == 1
    assert "<img" not in html
    assert "\x1b" not in comparison.as_text(found)


def test_two_runs_without_rows_compare_to_nothing(tmp_path: Path) -> None:
    found = both(tmp_path, [], [])

    assert comparison.as_text(found).endswith("There is no case in either run.")
    assert "Neither run has a case" in comparison.write(found, tmp_path / "out").read_text()
