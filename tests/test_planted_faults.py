"""Strategies that lie on purpose: each is caught in a real worker and named with the right status or mark."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from harness.core.records import Mark, MarkKind, Measurement, Status
from harness.core.task import Task
from harness.runner import heat, worker_process, workers
from harness.runner.case_run import CaseRun
from harness.runner.worker_process import Worker
from harness.system import info
from tests.conftest import MeasureQuickly, installed, strategy_of


def is_of_this_test(process: psutil.Process) -> bool:
    """What a test starts inherits the lock that it was given."""
    try:
        return process.environ().get("PERGRAD_LOCK") == os.environ["PERGRAD_LOCK"]
    except psutil.Error:
        return False


def only(rows: list[Measurement]) -> Measurement:
    (row,) = rows
    return row


@pytest.mark.alone
def test_the_honest_one_passes_every_check(planted: MeasureQuickly) -> None:
    rows = planted("honest", 1, 3, 8)

    assert [row.status for row in rows] == [Status.OK] * 3, [row.reason for row in rows]
    assert all(row.retraces == 0 for row in rows)
    assert not [mark for row in rows for mark in row.marks if mark.kind is not MarkKind.UNSETTLED]


WRONG = {
    "times_two": "twice what it should be",
    "divided_by_batch_size": "divided by the batch size",
    "rows_swapped": "in another order",
    "one_row_zero": "of instance 2",
    "summed_over_batch": "summed over the batch",
    "parameter_missing": "missing: hidden2.bias",
    "parameter_renamed": "unknown: weight",
    "parameters_exchanged": "weight of instance",
    "transposed": "hidden1.weight of instance",
    "batch_axis_lost": "has shape",
    "wrong_dtype": "dtype float64, expected float32",
    "none_for_a_parameter": "hidden1.bias is None",
    "names_differ": "row 1 has other names than row 0: another in one of them only",
    "float16_inside": "times the tolerance",
    "broadcast": "times the tolerance",
    "cached_by_value": "cached",
    "cached_by_identity": "cached",
    "cached_first_answer": "times the tolerance",
    "mutated_input": "uniform of batch",
    "mutated_parameter": "parameter hidden1.bias changed",
    "sleeps_in_the_conversion": "Lazy, expected an array of numpy",
    "works_when_released": "outside the clock",
    "works_as_long_when_released": "outside the clock",
    "remembers_most": "cached",
    "background_thread": "of instance",
    "touched_up_later": "changed after the call had returned",
}


BY_TIME = (
    *("cached_by_value", "cached_by_identity", "remembers_most"),
    *("works_when_released", "works_as_long_when_released", "background_thread", "touched_up_later"),
)
"""Planted strategies that are found out by when they do something, or by how long it takes: each has its own worker."""


@pytest.fixture(scope="module")
def lies(task_for: Callable[..., Task]) -> dict[str, Measurement]:
    """The rows of all the others, by the file's stem; one worker measures one after another."""
    tasks = {stem: task_for(strategy_of(stem), 8) for stem in WRONG if stem not in BY_TIME}
    rows = {row.strategy: row for row in workers.measure(tuple(tasks.values()))}
    return {stem: rows[task.strategy] for stem, task in tasks.items()}


@pytest.mark.parametrize(
    ("stem", "said"),
    [pytest.param(*case, id=case[0], marks=[pytest.mark.alone] * (case[0] in BY_TIME)) for case in WRONG.items()],
)
def test_planted_lie_disagrees_and_is_named(
    stem: str, said: str, planted: MeasureQuickly, lies: dict[str, Measurement]
) -> None:
    row = only(planted(stem, 8)) if stem in BY_TIME else lies[stem]

    assert row.status is Status.DISAGREES, (row.status, row.reason, row.detail)
    assert said in row.reason


def test_a_worker_may_be_ended_by_several_at_once(task_for: Callable[..., Task]) -> None:
    worker = Worker(task_for(strategy_of("honest"), 1))

    with ThreadPoolExecutor(8) as pool:
        ends = [pool.submit(worker.kill) for _ in range(8)]

    assert [end.exception() for end in ends] == [None] * 8
    assert worker.dead
    assert worker.exit_status == -signal.SIGKILL


@pytest.mark.alone
def test_planted_work_while_others_are_measured_is_marked(task_for: Callable[..., Task]) -> None:
    tasks = [replace(task_for(strategy_of(stem), 8), target_s=0.5) for stem in ("works_between_turns", "honest")]
    processes = [Worker(task) for task in tasks]
    try:
        cases = [CaseRun(process, task, 8) for process, task in zip(processes, tasks, strict=True)]
        rows = {row.strategy: row for row in heat.run(cases, "", 0.0, random.Random(0))}
    finally:
        for process in processes:
            process.kill()

    marked = [name for name, row in rows.items() if MarkKind.OUTSIDE_TURN in {mark.kind for mark in row.marks}]
    assert len(rows) == 2
    assert marked == [tasks[0].strategy]


def test_planted_nan_is_nonfinite_with_its_instance(planted: MeasureQuickly) -> None:
    row = only(planted("nan_in_one_row", 3))

    assert row.status is Status.NONFINITE
    assert "logit.weight of instance 1" in row.reason


def test_planted_second_forward_pass_is_marked(planted: MeasureQuickly) -> None:
    row = only(planted("forward_twice", 3))

    assert Mark(MarkKind.EVALUATIONS, "evaluates the loss 2 times per instance") in row.marks


def test_planted_leak_is_marked_with_its_size(planted: MeasureQuickly) -> None:
    row = only(planted("leaks", 1))

    assert any(mark.kind is MarkKind.LEAK and mark.text.startswith("memory grows by 5") for mark in row.marks), (
        row.marks
    )


def test_planted_exception_is_an_error_with_type_message_and_frames(planted: MeasureQuickly) -> None:
    row = only(planted("raises", 1))

    assert row.status is Status.ERROR
    assert row.reason == "ValueError: the moon is in the wrong quarter"
    assert "raises.py" in row.detail
    assert row.median_s is None


def test_planted_exception_at_64_costs_that_batch_size_only(planted: MeasureQuickly) -> None:
    rows = planted("raises_at_64", 1, 64, 65)

    assert [row.status for row in rows] == [Status.OK, Status.ERROR, Status.OK]


def test_planted_exit_is_a_crash_with_exit_status_and_last_words(planted: MeasureQuickly) -> None:
    rows = planted("exits", 1, 3, 8)

    assert [row.status for row in rows] == [Status.OK, Status.CRASHED, Status.OK]
    assert "exit status 7" in rows[1].reason
    assert "last words" in rows[1].detail


def test_planted_quiet_exit_is_a_crash_too(planted: MeasureQuickly) -> None:
    row = only(planted("exits_quietly", 1))

    assert row.status is Status.CRASHED
    assert "exit status 0" in row.reason


def test_planted_segmentation_fault_is_a_crash_with_its_signal(planted: MeasureQuickly) -> None:
    rows = planted("segfaults", 1, 3, 8)

    assert [row.status for row in rows] == [Status.OK, Status.CRASHED, Status.OK]
    assert "SIGSEGV" in rows[1].reason


def test_planted_hang_is_stopped_within_its_limit_and_leaves_nothing_running(planted: MeasureQuickly) -> None:
    started = time.monotonic()

    rows = planted("hangs", 1, 3, limit_s=2)

    assert [row.status for row in rows] == [Status.TIMEOUT, Status.SKIPPED]
    assert "batch size 1 already took longer" in rows[1].reason
    assert time.monotonic() - started < 500  # of the 1000 s that what it has started would live
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000"]]


def test_planted_fork_is_marked_and_does_not_outlive_the_worker(planted: MeasureQuickly) -> None:
    started = time.monotonic()

    row = only(planted("forks", 3))

    assert row.status is Status.OK
    assert Mark(MarkKind.FORKS, "forks a process that has threads") in row.marks
    assert time.monotonic() - started < 500  # of the 1000 s that what it has started would live
    assert not [p for p in psutil.process_iter() if p.pid != os.getpid() and is_of_this_test(p)]


def test_planted_output_that_looks_like_a_row_is_no_row(planted: MeasureQuickly) -> None:
    row = only(planted("prints_rows", 3))

    assert row.strategy == "numpy/prints-rows"
    assert row.median_s is not None
    assert row.median_s > 1e-6


def test_of_what_a_worker_writes_to_stderr_the_end_is_kept_and_no_more() -> None:
    log = worker_process.Log()

    for word in ("first", "last"):
        subprocess.run(["bash", "-c", f"head -c 3000000 /dev/zero; echo {word}"], stdout=log.file, check=True)
        log.cut()
        assert log.end().endswith(f"{word}\n".encode())
        assert log.size() <= 2000


def test_planted_want_of_memory_is_out_of_memory(planted: MeasureQuickly) -> None:
    assert only(planted("runs_out_of_memory", 1)).status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize(("counts", "status"), [([4, 5], Status.OUT_OF_MEMORY), ([4, 4], Status.CRASHED)])
def test_planted_kill_is_want_of_memory_only_if_the_kernel_has_killed_for_it(
    counts: list[int], status: Status, planted: MeasureQuickly, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = iter(counts)
    monkeypatch.setattr(info, "killed_for_memory", lambda: next(counters))

    row = only(planted("killed_from_outside", 1))

    assert row.status is status
    assert "SIGKILL" in row.reason


@pytest.mark.parametrize("stem", ["needs_a_package", "imports_a_package"])
def test_planted_package_that_is_not_installed_is_unavailable(stem: str, planted: MeasureQuickly) -> None:
    row = only(planted(stem, 1))

    assert row.status is Status.UNAVAILABLE
    assert "a_package_that_nobody_has" in row.reason


def test_planted_limit_of_a_strategy_is_unsupported_with_its_reason(planted: MeasureQuickly) -> None:
    rows = planted("gives_up", 1, 3)

    assert [row.status for row in rows] == [Status.OK, Status.UNSUPPORTED]
    assert rows[1].reason == "more than one instance at a time"


@pytest.mark.parametrize(("stem", "framework"), [("retraces", "jax"), ("retraces_in_tensorflow", "tf2")])
def test_planted_compilation_at_every_call_is_counted_and_marked(
    stem: str, framework: str, planted: MeasureQuickly
) -> None:
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")

    row = only(planted(stem, 3))

    assert row.retraces is not None
    assert row.retraces >= len(row.samples_ns)
    assert any(mark.kind is MarkKind.RETRACES for mark in row.marks)


def test_planted_loop_in_a_graph_is_marked(planted: MeasureQuickly) -> None:
    if not installed("tf2"):
        pytest.skip("tf2 is not installed")

    row = only(planted("loops_in_the_graph", 3))

    assert row.status is Status.OK, row.reason
    assert any(mark.kind is MarkKind.HIDDEN_LOOPS for mark in row.marks)


@pytest.mark.parametrize("stem", ["raises", "exits_quietly", "needs_a_package", "gives_up"])
def test_planted_fault_has_no_time_rather_than_zero(stem: str, planted: MeasureQuickly) -> None:
    row = planted(stem, 2)[0]

    assert row.median_s is None
    assert row.as_json()["median_s"] is None
    assert row.samples_ns == ()
