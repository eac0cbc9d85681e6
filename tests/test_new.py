"""`pergrad new`: files that already run, found by everything with nothing else touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harness.cli.app import app
from harness.core import find_strategies, find_workloads
from harness.core.framework import BUILT_IN as FRAMEWORKS
from tests.conftest import installed


@pytest.fixture(autouse=True)
def an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pergrad(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_new_strategy_is_ten_lines_that_are_found_and_right(framework: str) -> None:
    result = pergrad("new", "strategy", f"{framework}/my-idea")

    path = Path("strategies") / framework / "my_idea.py"
    assert result.exit_code == 0
    assert f"pergrad check {framework}/my-idea" in result.output
    assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 12
    assert f"{framework}/my-idea" in find_strategies.discover().measurable(full=False, frameworks=(framework,))
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")
    checked = pergrad("check", f"{framework}/my-idea", "--workload", "policy")
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("framework", [None, *FRAMEWORKS])
def test_a_new_workload_is_found_and_measured(framework: str | None) -> None:
    strategy = {
        None: "numpy/autograd-loop",
        "numpy": "numpy/autograd-loop",
        "torch": "torch/func-vmap",
        "jax": "jax/vmap",
        "tf1": "tf1/session-loop",
        "tf2": "tf2/vectorized-map",
    }[framework]

    result = pergrad("new", "workload", "my-model", *(["--framework", framework] if framework else []))

    assert result.exit_code == 0
    assert "--workload my-model" in result.output
    assert "my-model" in [workload.name for workload in find_workloads.others()]
    if framework and not installed(framework):
        pytest.skip(f"{framework} is not installed")
    checked = pergrad("check", strategy, "--workload", "my-model")
    assert checked.exit_code == 0, checked.output


def test_a_new_workload_is_part_of_the_default_plan() -> None:
    from harness.runner import plan

    assert pergrad("new", "workload", "my-model").exit_code == 0

    assert list(plan.requested_workloads([])) == [*plan.DEFAULT_WORKLOADS, "my-model"]


@pytest.mark.parametrize("name", ["my-idea", "theano/my-idea", "torch/", "torch/My Idea", "torch/../x"])
def test_a_name_that_is_none_is_refused_with_what_is_allowed(name: str) -> None:
    result = pergrad("new", "strategy", name)

    assert result.exit_code == 2
    assert "torch/my-idea" in result.output or "my-idea" in result.output
    assert not Path("strategies").exists()


def test_a_file_that_exists_is_never_overwritten() -> None:
    assert pergrad("new", "strategy", "numpy/my-idea").exit_code == 0
    path = Path("strategies/numpy/my_idea.py")
    path.write_text("# mine\n")

    result = pergrad("new", "strategy", "numpy/my-idea")

    assert result.exit_code == 2
    assert "exists already" in result.output
    assert path.read_text() == "# mine\n"


def test_what_is_below_the_current_folder_is_listed() -> None:
    pergrad("new", "strategy", "numpy/my-idea")
    pergrad("new", "workload", "my-model")

    listed = json.loads(pergrad("list", "strategies", "--json").stdout)
    models = json.loads(pergrad("list", "workloads", "--json").stdout)

    assert "numpy/my-idea" in [entry["name"] for entry in listed]
    assert "my-model" in [entry["name"] for entry in models]
