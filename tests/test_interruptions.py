"""Whatever ends a sweep, what was measured is kept, and the run can go on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.core import store
from harness.core.store import Run
from harness.system.lock import Busy, only_run
from tests.conftest import PLANTED

START = [
    "--strategy",
    "numpy/honest",
    "--workload",
    "policy",
    "--batch-size",
    "1,2,3",
    "--passes",
    "3",
    "--name",
    "try",
    "--target",
    "0.005",
]
EXPECTED = {(size, number) for size in (1, 2, 3) for number in (1, 2, 3)}
ROOT = Path(__file__).parent.parent


def command(folder: Path, *arguments: str, plugin: str = "honest") -> list[str]:
    where = ["--results", str(folder / "results"), "--reports", str(folder / "reports")]
    return [
        sys.executable,
        "-m",
        "tests.pergrad_at_once",
        "run",
        "--plugin",
        str(PLANTED / f"{plugin}.py"),
        *where,
        *arguments,
    ]


def pergrad(folder: Path, *arguments: str, plugin: str = "honest") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments, plugin=plugin), capture_output=True, text=True, cwd=ROOT, check=False
    )


def run_of(folder: Path) -> Run:
    return store.load(folder / "results" / "try")


def cases(folder: Path) -> Counter[tuple[int, int]]:
    return Counter((row.batch_size, row.pass_number) for row in run_of(folder).rows)


def wait_for(condition: Callable[[], bool], limit_s: float = 300) -> None:
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def rows_so_far(folder: Path) -> int:
    path = folder / "results" / "try" / store.ROWS_FILE
    return len(path.read_text().splitlines()) if path.exists() else 0


def workers(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    return [p for p in psutil.Process(sweep.pid).children() if "harness.measure.worker" in p.cmdline()]


KILLS = int(os.environ.get("PERGRAD_TEST_KILLS", "6"))
"""How often a run is killed. Six meet every stage; twenty or more are for a night: PERGRAD_TEST_KILLS=50."""


def test_after_kills_at_random_moments_every_case_is_there_exactly_once(tmp_path: Path) -> None:
    rng = random.Random(20)
    orphans: list[psutil.Process] = []
    for kill in range(KILLS):
        arguments = ["--resume", "try", "--retry"] if kill else START
        sweep = subprocess.Popen(command(tmp_path, *arguments), cwd=ROOT, stderr=subprocess.DEVNULL, text=True)
        wait_for((tmp_path / "results" / "try" / store.RUN_FILE).exists)
        time.sleep(rng.uniform(0.2, 2.5))
        if sweep.poll() is None:
            orphans += workers(sweep)
            if orphans and rng.random() < 0.5:
                with contextlib.suppress(psutil.NoSuchProcess):  # it may just have ended
                    orphans[-1].kill()  # the worker dies under the sweep, which goes on ...
                time.sleep(0.2)
        sweep.kill()  # ... and the sweep dies
        sweep.wait()

    done = pergrad(tmp_path, "--resume", "try", "--retry")

    assert done.returncode == 0, done.stderr
    assert cases(tmp_path) == dict.fromkeys(EXPECTED, 1)
    assert run_of(tmp_path).info["state"] == "complete"
    assert not [p for p in orphans if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_a_worker_dies_with_a_sweep_that_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path, *START), cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for(lambda: bool(psutil.Process(process.pid).children()) and rows_so_far(tmp_path) >= 1)
    worker = psutil.Process(process.pid).children()[0]

    process.kill()
    process.wait()

    wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, 60)


def test_ctrl_c_leaves_a_report_and_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background inherits deafness
    process = subprocess.Popen(command(tmp_path, *START), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    wait_for(lambda: rows_so_far(tmp_path) >= 1)

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)

    assert process.returncode == 130, stderr
    assert "pergrad run --resume try" in stderr
    assert (tmp_path / "reports" / "try" / "index.html").exists()
    assert run_of(tmp_path).info["state"] == "interrupted"
    assert pergrad(tmp_path, "--resume", "try").returncode == 0
    assert cases(tmp_path) == dict.fromkeys(EXPECTED, 1)


def test_resume_measures_failed_cases_again_only_when_told(tmp_path: Path) -> None:
    pergrad(
        tmp_path,
        "--strategy",
        "numpy/raises",
        "--workload",
        "policy",
        "--batch-size",
        "1",
        "--passes",
        "1",
        "--name",
        "try",
        plugin="raises",
    )
    first = run_of(tmp_path).rows

    pergrad(tmp_path, "--resume", "try", plugin="raises")
    kept = run_of(tmp_path).rows
    pergrad(tmp_path, "--resume", "try", "--retry", plugin="raises")
    again = run_of(tmp_path).rows

    assert kept == first
    assert len(again) == 1
    assert again[0].started >= first[0].started
    assert again[0].case_s != first[0].case_s


def test_resume_goes_on_after_a_virtual_machine_has_started_with_a_little_less_memory(tmp_path: Path) -> None:
    pergrad(tmp_path, *START, "--budget", "0.1")
    path = tmp_path / "results" / "try"
    info = json.loads((path / store.RUN_FILE).read_text())
    info["machine"]["memory_bytes"] = int(info["machine"]["memory_bytes"] * 1.005)
    store.write_info(path, info)

    assert pergrad(tmp_path, "--resume", "try").returncode == 0


def test_resume_refuses_another_machine_unless_told(tmp_path: Path) -> None:
    pergrad(tmp_path, *START, "--budget", "0.1")
    path = tmp_path / "results" / "try"
    info = json.loads((path / store.RUN_FILE).read_text())
    info["machine"]["processor"] = "Abacus 3000"
    info["versions"]["numpy"] = "0.1"
    store.write_info(path, info)

    refused = pergrad(tmp_path, "--resume", "try")
    told = pergrad(tmp_path, "--resume", "try", "--across-machines")

    assert refused.returncode == 2
    assert "processor Abacus 3000 and " in refused.stderr
    assert "numpy: 0.1 there" in refused.stderr
    assert told.returncode == 0


def test_a_budget_leaves_cases_out_and_says_so(tmp_path: Path) -> None:
    done = pergrad(tmp_path, *START, "--budget", "1s")

    left_out = [row for row in run_of(tmp_path).rows if row.reason.startswith("left out: the budget")]
    assert done.returncode == 0
    assert left_out
    assert f"left out {len(left_out)} of 9 cases" in done.stderr
    assert cases(tmp_path) == dict.fromkeys(EXPECTED, 1)


def test_a_full_disk_ends_with_a_clear_message_and_a_readable_run(tmp_path: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    # Many rows with many samples, so that the file of rows is the one that grows too large.
    arguments = [*START, "--target", "0.3", "--passes", "12"]
    done = subprocess.run(
        command(tmp_path, *arguments),
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=small_files_only,
        env=environment,
        check=False,
    )

    assert done.returncode == 2, done.stderr
    assert "cannot add a row" in done.stderr, done.stderr
    assert "--resume try" in done.stderr
    assert run_of(tmp_path).rows


def test_a_second_run_is_refused_and_told_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with only_run(tmp_path / "results" / "first"):
        second = pergrad(tmp_path, *START)

    assert second.returncode == 2
    assert "another run is measuring" in second.stderr
    assert f"process {os.getpid()}" in second.stderr
    assert "first" in second.stderr


def test_the_lock_is_free_again_after_a_run_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path, *START), cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for(lambda: rows_so_far(tmp_path) >= 1)
    with pytest.raises(Busy), only_run(tmp_path):
        pass

    process.kill()
    process.wait()

    with only_run(tmp_path):
        pass
