"""A fleet on one machine, whose parts are killed: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.core import store
from harness.core.records import Status
from harness.core.store import Run
from tests.bound import installed
from tests.conftest import PLANTED

pytest.importorskip("distributed")

from tests.fleet_cluster import ROOT, Cluster, end, is_worker, measuring, wait_for

START = [
    *("--strategy", "numpy/honest", "--workload", "policy", "--batch-size", "1,2,3", "--passes", "3"),
    *("--name", "try", "--target", "0.005"),
]
EXPECTED = {(size, number): 1 for size in (1, 2, 3) for number in (1, 2, 3)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as found:
        yield found


def command(folder: Path, *arguments: str, plugin: Path = PLANTED / "honest.py") -> list[str]:
    where = ["--results", str(folder / "results"), "--reports", str(folder / "reports"), "--plugin", str(plugin)]
    return [sys.executable, "-m", "tests.pergrad_at_once", "run", *where, *arguments]


def pergrad(folder: Path, *arguments: str, plugin: Path = PLANTED / "honest.py") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments, plugin=plugin), capture_output=True, text=True, cwd=ROOT, check=False
    )


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background inherits deafness
    process = subprocess.Popen(
        command(folder, *arguments), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, before)
    return process


def run_of(folder: Path, name: str = "try") -> Run:
    return store.load(folder / "results" / name)


def cases(folder: Path, name: str = "try") -> Counter[tuple[int, int]]:
    return Counter((row.batch_size, row.pass_number) for row in run_of(folder, name).rows)


def rows_so_far(folder: Path) -> int:
    path = folder / "results" / "try" / store.ROWS_FILE
    return len(path.read_text().splitlines()) if path.exists() else 0


def at_work(cluster: Cluster) -> str:
    """A machine that is at a heat."""
    wait_for(lambda: any(map(measuring, cluster.machines.values())))
    return next(name for name, machine in cluster.machines.items() if measuring(machine))


KILLS = int(os.environ.get("PERGRAD_TEST_KILLS", "6"))
"""How often something is killed; twenty or more are for a night: PERGRAD_TEST_KILLS=50."""

PASSES = 2 * KILLS
"""So many that the last kill, too, meets heats that are under way."""


def test_after_kills_at_random_moments_every_case_is_there_exactly_once(tmp_path: Path, cluster: Cluster) -> None:
    rng = random.Random(16)
    names = ("a", "b", "c")
    for name in names:
        cluster.start(name)
    victims: Counter[str] = Counter()
    long = [*START, "--passes", str(PASSES)]
    client = begin(tmp_path, "--cluster", cluster.address, *long)
    wait_for((tmp_path / "results" / "try" / store.RUN_FILE).exists)
    for kill in range(KILLS):
        time.sleep(rng.uniform(0.5, 4))
        if client.poll() is not None:
            end(client)
            client = begin(tmp_path, "--cluster", cluster.address, "--resume", "try", "--retry")
            time.sleep(rng.uniform(2, 6))
        victim = ("machine", "strategy", "client", "scheduler")[kill % 4]
        victims[victim] += 1
        if victim == "machine":
            name = rng.choice(names)
            end(cluster.machines[name])
            cluster.start(name)
        elif victim == "strategy":
            for worker in [worker for machine in cluster.machines.values() for worker in measuring(machine)][:1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
        elif victim == "client":
            end(client)
        else:
            end(cluster.scheduler)
            for machine in cluster.machines.values():
                end(machine)
            cluster.start_scheduler()
            for name in names:
                cluster.start(name)
    end(client)

    done = pergrad(tmp_path, "--cluster", cluster.address, "--resume", "try", "--retry")

    assert done.returncode == 0, done.stderr
    assert cases(tmp_path) == {(size, number): 1 for size in (1, 2, 3) for number in range(1, PASSES + 1)}
    assert {row.status for row in run_of(tmp_path).rows} == {Status.OK}
    assert run_of(tmp_path).info["state"] == "complete"
    assert victims.total() == KILLS


def test_a_machine_that_dies_costs_its_heat_which_another_measures(tmp_path: Path, cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    client = begin(tmp_path, "--cluster", cluster.address, *START)

    dead = at_work(cluster)
    end(cluster.machines[dead])
    _, stderr = client.communicate(timeout=300)

    assert client.returncode == 0, stderr
    assert cases(tmp_path) == EXPECTED
    alive = "ab".replace(dead, "")
    assert {row.machine.partition("/")[2] for row in run_of(tmp_path).rows} >= {alive}


def test_a_machine_that_stops_answering_loses_its_heat_to_another(tmp_path: Path, cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    client = begin(tmp_path, "--cluster", cluster.address, *START)

    stopped = cluster.machines[at_work(cluster)]
    stopped.send_signal(signal.SIGSTOP)
    _, stderr = client.communicate(timeout=300)

    assert client.returncode == 0, stderr
    assert cases(tmp_path) == EXPECTED


def test_a_heat_that_kills_every_machine_is_given_up_and_the_others_are_measured(tmp_path: Path) -> None:
    deadly = tmp_path / "deadly.py"
    deadly.write_text(
        "import os, signal\n"
        "from pergrad import strategy\n"
        "from honest_rows import honest_rows\n"
        "@strategy(framework='numpy')\n"
        "def deadly(problem):\n"
        "    '''Kills the process that has started it where a batch has two instances.'''\n"
        "    if problem.batch_size == 2:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return honest_rows(problem)\n"
    )
    (tmp_path / "honest_rows.py").write_text((PLANTED / "base.py").read_text())

    done = pergrad(
        tmp_path,
        *("--cluster", "local:1", "--strategy", "numpy/deadly", "--workload", "policy", "--batch-size", "1,2,3"),
        *("--passes", "1", "--name", "try", "--target", "0.005"),
        plugin=deadly,
    )

    rows = {row.batch_size: row for row in run_of(tmp_path).rows}
    assert done.returncode == 1, done.stderr
    assert {size: row.status for size, row in rows.items()} == {1: Status.OK, 2: Status.CRASHED, 3: Status.OK}
    assert "died 3 times" in rows[2].reason
    assert rows[1].machine in rows[2].reason


def test_ctrl_c_ends_what_runs_and_the_run_goes_on_without_a_cluster(tmp_path: Path, cluster: Cluster) -> None:
    machine = cluster.start("a")
    client = begin(tmp_path, "--cluster", cluster.address, *START)
    wait_for(lambda: rows_so_far(tmp_path) >= 1 and bool(measuring(machine)))

    client.send_signal(signal.SIGINT)
    wait_for(lambda: not measuring(machine), 60)
    _, stderr = client.communicate(timeout=300)

    assert client.returncode == 130
    assert "pergrad run --resume try" in stderr
    assert run_of(tmp_path).info["state"] == "interrupted"
    assert pergrad(tmp_path, "--resume", "try", "--across-machines").returncode == 0
    assert cases(tmp_path) == EXPECTED


def test_what_a_dead_client_has_begun_is_ended(tmp_path: Path, cluster: Cluster) -> None:
    machine = cluster.start("a")
    client = begin(tmp_path, "--cluster", cluster.address, *START)
    wait_for(lambda: bool(measuring(machine)))

    client.kill()
    client.wait()

    wait_for(lambda: not measuring(machine), 60)
    assert machine.poll() is None


def test_a_scheduler_that_dies_is_named_and_the_run_goes_on_with_another(tmp_path: Path, cluster: Cluster) -> None:
    machine = cluster.start("a")
    client = begin(tmp_path, "--cluster", cluster.address, *START)
    wait_for(lambda: rows_so_far(tmp_path) >= 1)
    workers = measuring(machine)

    end(cluster.scheduler)
    _, stderr = client.communicate(timeout=300)

    assert client.returncode == 2
    assert f"the scheduler {cluster.address} is gone" in stderr
    wait_for(lambda: not any(map(is_worker, workers)), 60)
    cluster.start_scheduler()
    cluster.start("b")
    again = pergrad(tmp_path, "--cluster", cluster.address, "--resume", "try")
    assert again.returncode == 0, again.stderr
    assert cases(tmp_path) == EXPECTED


@pytest.mark.skipif(not installed("jax"), reason="jax is not installed")
def test_each_kind_measures_the_whole_plan_and_the_report_has_them_side_by_side(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.start("a", "Pretended 1")
    cluster.start("b", "Pretended 1")
    cluster.start("c", "Other 2")
    cluster.wait_for_machines()

    done = pergrad(
        tmp_path,
        *("--cluster", cluster.address, "--each", "--price", "other=0.42", "--name", "try"),
        *("--strategy", "numpy/honest", "--strategy", "jax/vmap", "--workload", "policy", "--batch-size", "1,8"),
        *("--passes", "1", "--target", "0.02"),
    )

    assert done.returncode == 0, done.stderr
    runs = store.runs(tmp_path / "results")
    kinds = {store.load(folder).info["fleet"]["kind"]: store.load(folder) for folder in runs}
    assert sorted(kind.partition("-")[0] for kind in kinds) == ["other", "pretended"]
    for kind, run in kinds.items():
        assert Counter((row.strategy, row.batch_size, row.pass_number) for row in run.rows) == {
            (name, size, 1): 1 for name in ("numpy/honest", "jax/vmap") for size in (1, 8)
        }
        assert {row.status for row in run.rows} == {Status.OK}
        machines = {row.machine.partition("/")[2] for row in run.rows}
        assert machines <= ({"c"} if kind.startswith("other") else {"a", "b"})
    page = (tmp_path / "reports" / "try" / "index.html").read_text()
    assert all(folder.name in page for folder in runs)


def test_machines_of_other_versions_are_refused_by_name(tmp_path: Path, cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b", pandas="0.1")
    cluster.wait_for_machines()

    done = pergrad(tmp_path, "--cluster", cluster.address, *START)

    assert done.returncode == 2
    assert "pandas" in done.stderr
    assert "0.1" in done.stderr
    assert "--across-versions" in done.stderr
    assert not (tmp_path / "results" / "try").exists()


def test_doctor_names_machines_their_kinds_and_what_is_wrong_with_them(tmp_path: Path, cluster: Cluster) -> None:
    cluster.start("a", "Pretended 1")
    cluster.start("b", "Other 2", pandas="0.1")
    cluster.wait_for_machines()
    arguments = ["-m", "harness.cli.app", "doctor", "--cluster", cluster.address]

    found = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)

    assert found.returncode == 1
    assert "Pretended 1" in found.stdout
    assert "Other 2" in found.stdout
    assert "versions: pandas" in found.stdout
