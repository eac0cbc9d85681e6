"""`pergrad doctor`: every finding, on both sides of its threshold, with what to do about it."""

from __future__ import annotations

import json
import os
import sys
from collections import namedtuple
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.find_strategies import Catalogue
from harness.core.framework import framework_names
from harness.core.strategy import strategy
from harness.frameworks import child_process
from harness.system import diagnostics, doctor, info, lock
from harness.system.diagnostics import NOTE, OK, PROBLEM, WARNING, Finding, Peer, Watched
from harness.system.doctor import Examination

GIB = 1 << 30
SEES_CPU = {"status": "ok", "reason": "", "devices": [{"kind": "cpu", "name": "cpu:0"}], "threads": {}}
ABSENT = {"status": "unavailable", "reason": "torch is not installed; pip install 'pergrad[torch]'", "devices": []}
BROKEN = {"status": "unavailable", "reason": "importing it failed: OSError: libtorch.so", "devices": []}
MACHINE = {"cores_available": 8, "cores_logical": 8, "cpu_quota": None}


def has(finding: Finding, level: str) -> None:
    """Whether it is of that level, and says what to do unless all is well."""
    assert finding.level == level
    assert finding.found
    assert bool(finding.do) == (level != OK)


@pytest.mark.parametrize(
    ("cores", "busy", "lately", "level"),
    [
        pytest.param(2, 0.0, 0.0, OK, id="idle"),
        pytest.param(2, 0.09, 0.0, OK, id="below a tenth of a core of two"),
        pytest.param(2, 0.11, 0.0, WARNING, id="above a tenth of a core of two"),
        pytest.param(2, 0.49, 0.0, WARNING, id="below half a core of two"),
        pytest.param(2, 0.51, 0.0, PROBLEM, id="above half a core of two"),
        pytest.param(64, 3.0, 0.0, OK, id="three cores of many"),
        pytest.param(64, 8.0, 0.0, WARNING, id="eight cores of many"),
        pytest.param(64, 17.0, 0.0, PROBLEM, id="a quarter of many cores"),
        pytest.param(2, 0.0, 0.4, OK, id="quiet now and before"),
        pytest.param(2, 0.0, 0.6, NOTE, id="quiet now but not before"),
        pytest.param(2, 0.9, 0.6, PROBLEM, id="busy now and before"),
    ],
)
def test_cores_that_others_use(cores: int, busy: float, lately: float, level: str) -> None:
    has(diagnostics.busy(Watched(cores, busy, ("chrome (0.4)",), lately)), level)


def test_the_programs_that_use_them_are_named() -> None:
    found = diagnostics.busy(Watched(2, 0.7, ("chrome (0.4)", "indexer (0.3)"))).found

    assert found == "0.7 of 2 cores are used by others, most by chrome (0.4), indexer (0.3)"


def test_programs_of_other_containers_are_said_to_be_out_of_sight() -> None:
    assert "cannot be seen from here" in diagnostics.busy(Watched(2, 0.7)).found
    assert diagnostics.busy(Watched(2, 0.0)).found == "0.0 of 2 cores are used by others"


@pytest.mark.parametrize(("share", "level"), [(0.0, OK), (0.02, OK), (0.021, WARNING), (0.5, WARNING)])
def test_time_that_the_host_gives_to_others(share: float, level: str) -> None:
    has(diagnostics.steal(share), level)


@pytest.mark.parametrize(
    ("free", "level"), [(GIB - 1, PROBLEM), (GIB, WARNING), (6 * GIB - 1, WARNING), (6 * GIB, OK), (64 * GIB, OK)]
)
def test_free_memory(free: int, level: str) -> None:
    has(diagnostics.memory(free), level)


def test_swap_is_noted_when_it_is_in_use() -> None:
    assert not list(diagnostics.swap(0))
    assert not list(diagnostics.swap(diagnostics.SWAPPED_BYTES))

    (found,) = diagnostics.swap(diagnostics.SWAPPED_BYTES + 1)

    has(found, NOTE)


@pytest.mark.parametrize(("free", "level"), [(0, PROBLEM), ((100 << 20) - 1, PROBLEM), (100 << 20, OK), (GIB, OK)])
def test_free_disk(free: int, level: str) -> None:
    has(diagnostics.disk(free), level)


@pytest.mark.parametrize(
    ("about", "levels"),
    [
        pytest.param({}, [OK], id="all cores"),
        pytest.param({"cpu_quota": 8.0}, [OK], id="a quota of all cores"),
        pytest.param({"cpu_quota": 7.5}, [WARNING], id="a quota of fewer"),
        pytest.param({"cores_available": 7}, [NOTE], id="an affinity mask of fewer"),
        pytest.param({"cores_available": 4, "cpu_quota": 4.0}, [NOTE], id="a mask, and a quota of as many"),
        pytest.param({"cores_available": 4, "cpu_quota": 0.5}, [WARNING, NOTE], id="a mask, and a quota of fewer"),
        pytest.param({"cores_logical": None}, [OK], id="a system that does not tell"),
    ],
)
def test_cores_that_may_be_used(about: dict[str, object], levels: list[str]) -> None:
    found = list(diagnostics.cores(MACHINE | about))

    assert [finding.level for finding in found] == levels
    for finding, level in zip(found, levels, strict=True):
        has(finding, level)


@pytest.mark.parametrize(("quota", "threads"), [(2.5, 2), (1.0, 1), (0.5, 1)])
def test_throttled_cores_are_answered_with_the_threads_to_use(quota: float, threads: int) -> None:
    (found,) = diagnostics.cores(MACHINE | {"cpu_quota": quota})

    assert f"--threads {threads}" in found.do


@pytest.mark.parametrize(
    ("policy", "level"), [("performance", OK), ("powersave", WARNING), ("schedutil", WARNING), (None, NOTE)]
)
def test_the_clock_rate(policy: str | None, level: str) -> None:
    has(diagnostics.frequency(policy), level)


def test_variables_that_limit_threads() -> None:
    has(diagnostics.threads({}), OK)

    found = diagnostics.threads({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "2"})

    has(found, WARNING)
    assert found.found == "OMP_NUM_THREADS=1, MKL_NUM_THREADS=2"
    assert "unset OMP_NUM_THREADS MKL_NUM_THREADS" in found.do


def test_another_run() -> None:
    assert not list(diagnostics.another_run(""))

    (found,) = diagnostics.another_run("process 7 into results/x")

    has(found, PROBLEM)


def test_a_run_that_holds_the_machine_is_seen(tmp_path: Path) -> None:
    assert lock.holder() == ""

    with lock.only_run(tmp_path / "mine"):
        assert "mine" in lock.holder()


@pytest.mark.parametrize(
    ("answer", "versions", "level", "found", "do"),
    [
        pytest.param(SEES_CPU, {"torch": "2.9"}, OK, "torch 2.9, sees cpu (cpu:0)", "", id="seen"),
        pytest.param(ABSENT, {}, NOTE, "torch is not installed", "pip install 'pergrad[torch]'", id="absent"),
        pytest.param(BROKEN, {"torch": "2.9"}, WARNING, "libtorch.so", "pip install 'pergrad[torch]'", id="broken"),
    ],
)
def test_a_framework(answer: dict[str, object], versions: dict[str, str], level: str, found: str, do: str) -> None:
    finding = next(iter(diagnostics.installed({"torch": answer, "jax": SEES_CPU}, versions)))

    has(finding, level)
    assert found in finding.found
    assert do in finding.do


def test_a_machine_with_one_framework_is_ready() -> None:
    found = list(diagnostics.installed({"jax": SEES_CPU, "torch": ABSENT, "numpy": SEES_CPU}, {"jax": "0.9"}))

    assert Examination(tuple(found)).ok


def test_a_machine_without_any_is_not() -> None:
    found = list(diagnostics.installed({"torch": ABSENT, "numpy": SEES_CPU}, {}))

    assert not Examination(tuple(found)).ok
    has(found[-1], PROBLEM)
    assert "pergrad[all]" in found[-1].do


def test_a_machine_that_cannot_compute_the_truth_is_not() -> None:
    found = list(diagnostics.installed({"jax": SEES_CPU, "numpy": BROKEN}, {"jax": "0.9"}))

    assert not Examination(tuple(found)).ok
    assert "pip install autograd" in found[-1].do


@pytest.mark.parametrize(
    ("version", "reason", "level", "said"),
    [
        pytest.param("1.5", "", OK, "", id="installed"),
        pytest.param(None, "", NOTE, "pip install 'pergrad[peers]', if you want torch/opacus-hooks", id="absent"),
        pytest.param("1.5", "importing it failed: ImportError: x", WARNING, "in a new environment", id="broken"),
    ],
)
def test_a_package_that_strategies_need(version: str | None, reason: str, level: str, said: str) -> None:
    found = diagnostics.peer(Peer("opacus", "torch/opacus-hooks", version, reason))

    has(found, level)
    assert said in found.do


def test_what_is_needed_is_what_the_strategies_found_here_say() -> None:
    @strategy(framework="jax", requires=["flax"])
    def mine(problem):  # type: ignore[no-untyped-def]
        """Idea."""

    assert doctor.needs(Catalogue((mine,))) == {
        "flax": ("jax", "jax/mine"),
        "ml_dtypes": ("numpy", "--dtype bfloat16"),
    }


def test_a_package_is_imported_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sound_peer.py").write_text("")
    (tmp_path / "broken_peer.py").write_text("raise RuntimeError('built for another version')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    needed = dict.fromkeys(("sound_peer", "broken_peer", "absent_peer"), ("numpy", "an idea"))
    sound, broken, absent = (diagnostics.peer(found) for found in doctor.look_for_peers(needed))

    assert [sound.level, broken.level, absent.level] == [OK, WARNING, NOTE]
    assert "RuntimeError: built for another version" in broken.found
    assert not {"sound_peer", "broken_peer"} & set(sys.modules)


def test_plugins_that_cannot_be_had() -> None:
    assert not list(diagnostics.plugins({}, ""))

    (broken,) = diagnostics.plugins({"jax/mine": "ImportError: x"}, "")
    (twins,) = diagnostics.plugins({}, "two strategies are called jax/mine")

    has(broken, WARNING)
    has(twins, PROBLEM)


def test_only_the_cores_that_may_be_used_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    core = namedtuple("core", "user nice system idle iowait irq softirq steal")
    times = [core(100, 0, 0, 0, 0, 0, 0, 0), core(10, 5, 10, 50, 5, 3, 2, 15)]
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda interval, percpu: times)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1}, raising=False)

    watched = doctor.watch()

    assert watched.cores == 1
    assert watched.busy == pytest.approx(0.30)
    assert watched.steal == pytest.approx(0.15)


def test_the_verdict_counts_what_is_wrong() -> None:
    fine, doubtful = Finding(OK, "load", "none"), Finding(WARNING, "host", "3%", "wait")
    wrong = Finding(PROBLEM, "disk", "0 B free", "free some")

    def verdict(*findings: Finding) -> str:
        return Examination(findings).text().splitlines()[-1]

    assert verdict(fine) == "ready to measure"
    assert verdict(fine, doubtful, doubtful) == "ready to measure, 2 warnings"
    assert verdict(fine, doubtful, wrong) == "1 problem, 1 warning"


def test_the_command_tells_scripts_by_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, status in ((WARNING, 0), (PROBLEM, 1)):
        made_up = Examination((Finding(level, "load", "0.9 cores are used by others", "stop them"),))
        monkeypatch.setattr(doctor, "examine", lambda made_up=made_up: made_up)

        assert CliRunner().invoke(app, ["doctor"]).exit_code == status
        found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)

        assert found["ok"] == (status == 0)
        assert found["findings"][0]["do"] == "stop them"


def test_this_machine_is_examined_and_every_framework_is_named() -> None:
    found = doctor.examine()

    looked_at = {finding.what for finding in found.findings}
    assert {*framework_names(), "load", "memory", "disk", "clock rate", "thread limits"} <= looked_at
    assert all(finding.do for finding in found.findings if finding.level != OK)
    assert json.loads(json.dumps(found.as_json()))["ok"] == found.ok
    assert not {"tensorflow", "jax", "torch"} & set(sys.modules)


def test_variables_are_recorded_by_their_exact_names_so_that_no_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("NVIDIA_API_KEY", "secret")
    monkeypatch.setenv("TF_TOKEN_app_terraform_io", "secret")
    monkeypatch.setenv("JAX_SECRET", "secret")

    recorded = info.environment()

    assert recorded["OMP_NUM_THREADS"] == "2"
    assert "secret" not in recorded.values()


def test_files_that_a_container_keeps_in_memory_count_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {
        "memory.max": "1000000\n",
        "memory.current": "900000\n",
        "memory.stat": "anon 100000\ninactive_file 700000\n",
    }.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(info, "CGROUP", tmp_path)

    assert info.available_bytes() == 800_000


def test_options_for_a_pytest_outside_reach_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-n 4 --benchmark-disable")
    monkeypatch.setenv("PYTEST_PLUGINS", "a_plugin_that_nobody_has")

    found = child_process.environment("numpy", "cpu", threads=None)

    assert not {"PYTEST_ADDOPTS", "PYTEST_PLUGINS"} & found.keys()


def test_the_processor_has_a_name() -> None:
    assert info.processor()
