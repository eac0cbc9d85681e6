"""Installed from a wheel in a fresh environment outside the checkout, everything works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import strategies, workloads

ROOT = Path(__file__).resolve().parent.parent

pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", *command, str(ROOT)], check=True, capture_output=True, text=True)
    (found,) = folder.glob("pergrad-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment: pergrad from the wheel, its dependencies from this environment."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    own = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "installed_base": str(folder)}))
    command = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(own), str(wheel)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True)
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def run(python: Path, folder: Path, arguments: Sequence[str]) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(python), *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pergrad(python: Path, folder: Path, *arguments: str) -> str:
    return run(python, folder, ["-m", "harness.cli", *arguments])


def test_strategies_workloads_their_data_and_the_pages_templates_travel_in_it(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    here = subprocess.run(["git", "ls-files", "harness", "strategies"], cwd=ROOT, capture_output=True, text=True)

    expected = set(here.stdout.split()) or {"harness/cli.py"}
    assert expected <= inside, sorted(expected - inside)
    assert "harness/py.typed" in inside
    assert not [name for name in inside if name.startswith(("tests/", "results/", "reports/"))]


def test_it_is_the_installed_one_that_runs(python: Path, tmp_path: Path) -> None:
    place = run(python, tmp_path, ["-c", "import harness; print(harness.__file__)"])

    assert str(python.parent.parent) in place


def test_lists_hold_all_that_the_checkout_has(python: Path, tmp_path: Path) -> None:
    listed = json.loads(pergrad(python, tmp_path, "list", "strategies", "--json"))
    models = json.loads(pergrad(python, tmp_path, "list", "workloads", "--json"))

    assert {entry["name"] for entry in listed} >= {s.name for s in strategies.discover().strategies}
    assert {entry["name"] for entry in models} >= {workload.name for workload in workloads.builtin()}


def test_a_run_and_its_report_lie_in_the_current_folder(python: Path, tmp_path: Path) -> None:
    options = ["--workload", "policy", "--strategy", "numpy/outer-products", "--batch-size", "1,4"]

    assert "outer_products" in pergrad(python, tmp_path, "show", "numpy/outer-products")
    pergrad(python, tmp_path, "run", "--quick", *options, "--target", "0.05s", "--name", "mine")
    pergrad(python, tmp_path, "report", "mine")

    assert (tmp_path / "results" / "mine" / "measurements.jsonl").read_text().count('"ok"') == 2
    assert "outer-products" in (tmp_path / "reports" / "mine" / "index.html").read_text()


def test_a_new_strategy_is_found_in_the_current_folder(python: Path, tmp_path: Path) -> None:
    pergrad(python, tmp_path, "new", "strategy", "numpy/my-idea")

    assert "numpy/my-idea: right" in pergrad(python, tmp_path, "check", "numpy/my-idea", "--workload", "policy")
