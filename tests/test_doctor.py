"""`pergrad doctor`: every finding, on both sides of its threshold, with what to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import doctor, lock
from harness.cli import app
from harness.doctor import NOTE, OK, PROBLEM, WARNING, Examination, Finding, Watched

GIB = 1 << 30
SEES_CPU = {"status": "ok", "reason": "", "devices": [{"kind": "cpu", "name": "cpu:0"}], "threads": {}}
ABSENT = {"status": "unavailable", "reason": "torch is not installed; pip install 'pergrad[torch]'", "devices": []}


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (doctor.busy(Watched(0.05, (), 0)), OK),
        (doctor.busy(Watched(0.3, ("python",), 0)), WARNING),
        (doctor.busy(Watched(0.9, ("python",), 0)), PROBLEM),
        (doctor.steal(0.0), OK),
        (doctor.steal(0.1), WARNING),
        (doctor.memory(20 * GIB, 0), OK),
        (doctor.memory(20 * GIB, GIB), NOTE),
        (doctor.memory(4 * GIB, 0), WARNING),
        (doctor.memory(GIB // 2, 0), PROBLEM),
        (doctor.disk(GIB), OK),
        (doctor.disk(GIB // 100), PROBLEM),
        (doctor.frequency("performance"), OK),
        (doctor.frequency("powersave"), WARNING),
        (doctor.frequency(None), NOTE),
        (doctor.threads({}), OK),
        (doctor.threads({"OMP_NUM_THREADS": "1"}), WARNING),
        *((found, OK) for found in doctor.cores({"cores_available": 8, "cores_logical": 8, "cpu_quota": None})),
        *((found, OK) for found in doctor.cores({"cores_available": 8, "cores_logical": 8, "cpu_quota": 8.0})),
        *((found, NOTE) for found in doctor.cores({"cores_available": 2, "cores_logical": 8, "cpu_quota": None})),
        *((found, WARNING) for found in doctor.cores({"cores_available": 8, "cores_logical": 8, "cpu_quota": 1.5})),
        *((found, PROBLEM) for found in doctor.another_run("process 7 into results/x")),
        *((found, NOTE) for found in doctor.peers(set())),
    ],
)
def test_a_condition_has_its_level_and_what_to_do_about_it(finding: Finding, level: str) -> None:
    assert finding.level == level
    assert bool(finding.do) == (level != OK)


def test_a_machine_with_one_framework_is_ready() -> None:
    found = list(doctor.installed({"jax": SEES_CPU, "torch": ABSENT, "numpy": SEES_CPU}, {"jax": "0.9"}))

    assert Examination(tuple(found)).ok
    assert "jax 0.9, sees cpu (cpu:0)" in found[0].found
    assert "pip install 'pergrad[torch]'" in found[1].found


def test_a_machine_without_any_is_not() -> None:
    found = list(doctor.installed({"torch": ABSENT, "numpy": SEES_CPU}, {}))

    assert not Examination(tuple(found)).ok
    assert "pergrad[all]" in found[-1].do


def test_throttled_cores_are_answered_with_the_threads_to_use() -> None:
    (found,) = doctor.cores({"cores_available": 8, "cores_logical": 8, "cpu_quota": 2.5})

    assert "--threads 2" in found.do


def test_a_run_that_holds_the_machine_is_seen(tmp_path: Path) -> None:
    assert lock.holder() == ""

    with lock.only_run(tmp_path / "mine"):
        assert "mine" in lock.holder()


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

    assert {"tf1", "tf2", "jax", "torch", "numpy", "load", "memory", "disk"} <= {f.what for f in found.findings}
    assert "\n" in found.text()
