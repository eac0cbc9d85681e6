"""A run on disk: strict JSON, one row at a time, readable after any accident."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.core import store
from harness.core.records import Mark, MarkKind, Measurement, SkipCause, Status
from harness.core.store import StoreError


def row(**columns: object) -> Measurement:
    base = {
        "workload": "policy",
        "strategy": "jax/vmap",
        "framework": "jax",
        "quantity": "gradients",
        "device": "cpu",
        "dtype": "float32",
        "batch_size": 4,
        "pass_number": 1,
        "status": Status.OK,
    }
    return Measurement(**(base | columns))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.create(tmp_path / "run", {"created": "2026-12-01T00:00:00+00:00"})
    return tmp_path / "run"


def test_a_row_is_read_back_as_it_was_written(folder: Path) -> None:
    written = row(
        samples_ns=(1000, 1100),
        median_s=1.05e-6,
        facts={"threads": 2},
        marks=(Mark(MarkKind.SLOW_FALLBACK, "slow fallback"),),
    )

    store.append(folder, written)

    assert store.load(folder).rows == (written,)


def append_old(folder: Path, **columns: object) -> None:
    """A line as it was before marks had a kind and skipped cases a cause."""
    with (folder / store.ROWS_FILE).open("a") as file:
        file.write(json.dumps({k: v for k, v in row().as_json().items() if k != "skip_cause"} | columns) + "\n")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("warm-up had not settled", MarkKind.UNSETTLED),
        ("3 retraces in the timed calls", MarkKind.RETRACES),
        ("12 hidden loops: While nodes in its graph", MarkKind.HIDDEN_LOOPS),
        ("memory grows by 5 MB with every call", MarkKind.LEAK),
        ("forks a process that has threads", MarkKind.FORKS),
        ("evaluates the loss 2 times per instance", MarkKind.EVALUATIONS),
        ("unstable: the machine was disturbed", MarkKind.UNSTABLE),
        ("Conv2DBackpropFilter uses a while_loop. Fix that!", MarkKind.SLOW_FALLBACK),
    ],
)
def test_a_mark_of_an_old_run_gets_the_kind_that_its_text_tells(text: str, kind: MarkKind, folder: Path) -> None:
    append_old(folder, marks=[text])

    assert store.load(folder).rows[0].marks == (Mark(kind, text),)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("76 s expected from smaller batches, the limit is 60 s", SkipCause.LIMIT),
        ("batch size 8 already took longer than the limit of 60 s", SkipCause.LIMIT),
        ("64 rows take 9.1 GiB, the limit is 4 GiB of gradients in one result", SkipCause.SIZE),
        ("left out: the budget of 300 s was used up", SkipCause.BUDGET),
        ("skipped in pass 1 at batch size 128: 76 s expected, the limit is 60 s", SkipCause.EARLIER_PASS),
    ],
)
def test_a_skipped_case_of_an_old_run_gets_the_cause_that_its_reason_tells(
    reason: str, cause: SkipCause, folder: Path
) -> None:
    append_old(folder, status="skipped", reason=reason)

    assert store.load(folder).rows[0].skip_cause is cause


def test_not_a_number_becomes_null_and_no_invalid_json_is_written(folder: Path) -> None:
    store.append(folder, row(median_s=float("nan"), facts={"infinite": float("inf"), "numpy": np.float32(2)}))

    text = (folder / store.ROWS_FILE).read_text()
    values = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the file"))
    assert values["median_s"] is None
    assert values["facts"] == {"infinite": None, "numpy": 2.0}
    assert values["pass"] == 1


def test_a_torn_last_line_costs_that_row_only(folder: Path) -> None:
    store.append(folder, row())
    with (folder / store.ROWS_FILE).open("a") as file:
        file.write('{"workload": "policy", "strat')

    assert store.load(folder).rows == (row(),)


def test_a_line_torn_within_a_character_costs_that_row_only(folder: Path) -> None:
    store.append(folder, row())
    with (folder / store.ROWS_FILE).open("ab") as file:
        file.write('{"reason": "é'.encode()[:-1])

    assert store.load(folder).rows == (row(),)


@pytest.mark.parametrize("line", [b"[1, 2]", b"null", b"3", b'"text"', b"{}", b'{"reason": "\xff"}'])
def test_a_line_that_is_no_row_is_left_out_and_named(folder: Path, line: bytes) -> None:
    with (folder / store.ROWS_FILE).open("ab") as file:
        file.write(line + b"\n")
    store.append(folder, row())

    run = store.load(folder)
    assert run.rows == (row(),)
    assert [entry.split(":")[0] for entry in run.unreadable] == ["line 1"]


@pytest.mark.parametrize("content", [b"[]", b'{"schema": "2"}', b'{"schema": null}', b'{"a": "\xff"}', b"{"])
def test_a_description_that_cannot_be_read_is_said_with_its_file(folder: Path, content: bytes) -> None:
    (folder / store.RUN_FILE).write_bytes(content)

    with pytest.raises(StoreError, match=store.RUN_FILE):
        store.load(folder)


def test_a_broken_line_in_the_middle_is_named_and_never_overwritten(folder: Path) -> None:
    with (folder / store.ROWS_FILE).open("a") as file:
        file.write("rubbish\n")
    store.append(folder, row())

    run = store.load(folder)
    assert run.rows == (row(),)
    assert run.unreadable[0].startswith("line 1: ")
    with pytest.raises(StoreError, match=r"line 1: .*; remove or repair them"):
        store.repair(folder, lambda row: True)


def test_two_runs_never_write_into_one_folder(folder: Path) -> None:
    with pytest.raises(StoreError, match="already holds a run"):
        store.create(folder, {})


def test_a_results_folder_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="--results"):
        store.check_writable(tmp_path / "file" / "results")


def test_a_run_of_a_newer_version_is_refused(folder: Path) -> None:
    store.write_info(folder, {"schema": 99})

    with pytest.raises(StoreError, match="update pergrad"):
        store.load(folder)


def test_pytest_benchmark_compares_the_file_of_a_run(folder: Path) -> None:
    store.append(folder, row(samples_ns=(1000, 1100, 1200), median_s=1.1e-6))
    store.append(folder, row(strategy="torch/func-vmap", samples_ns=(5000,), median_s=5e-6))
    store.append(folder, row(status=Status.ERROR, reason="broken"))
    store.write_benchmark_file(store.load(folder))

    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", str(folder / store.BENCHMARK_FILE)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "jax/vmap" in done.stdout
    assert "torch/func-vmap" in done.stdout
