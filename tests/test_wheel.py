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

from harness.core import find_strategies, find_workloads

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
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a fresh environment: pergrad from the wheel, its dependencies from this environment."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    command = ["pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True)
    own = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    (own / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return folder / "bin"


def run(command: Sequence[str | Path], folder: Path) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_strategies_workloads_their_data_and_the_pages_templates_travel_in_it(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())

    files = [path for package in ("harness", "strategies") for path in (ROOT / package).rglob("*") if path.is_file()]
    expected = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    assert expected <= inside, sorted(expected - inside)
    assert {path.suffix for path in files} >= {".py", ".npy", ".html", ".json", ".typed"}
    assert not [name for name in inside if name.startswith(("tests/", "results/", "reports/"))]


def test_it_is_the_installed_one_that_runs(fresh: Path, tmp_path: Path) -> None:
    script = "import harness, strategies; print(harness.__file__, *strategies.__path__, sep='\\n')"

    places = run([fresh / "python", "-c", script], tmp_path).split()

    assert len(places) == 2
    assert all(Path(place).is_relative_to(fresh.parent) for place in places)


def test_lists_hold_all_that_the_checkout_has(fresh: Path, tmp_path: Path) -> None:
    listed = json.loads(run([fresh / "pergrad", "list", "strategies", "--json"], tmp_path))
    models = json.loads(run([fresh / "pergrad", "list", "workloads", "--json"], tmp_path))

    assert {entry["name"] for entry in listed} >= {s.name for s in find_strategies.discover().strategies}
    assert {entry["name"] for entry in models} >= {workload.name for workload in find_workloads.builtin()}


def test_a_strategy_is_shown_with_its_code(fresh: Path, tmp_path: Path) -> None:
    assert "jax.jit(jax.vmap(jax.grad(problem.loss)" in run([fresh / "pergrad", "show", "jax/vmap"], tmp_path)


def test_a_run_and_its_report_lie_in_the_current_folder(fresh: Path, tmp_path: Path) -> None:
    options = ["--workload", "policy", "--strategy", "numpy/outer-products", "--batch-size", "1,4"]

    run([fresh / "pergrad", "run", "--quick", *options, "--target", "0.05s", "--name", "mine"], tmp_path)
    (page := tmp_path / "reports" / "mine" / "index.html").unlink()
    run([fresh / "pergrad", "report"], tmp_path)

    results = tmp_path / "results" / "mine"
    info = json.loads((results / "run.json").read_text())
    assert info["state"] == "complete"
    assert all(figure > 0 for figure in info["ceilings"]["cpu"].values())
    assert (results / "pytest-benchmark.json").exists()
    rows = [json.loads(line) for line in (results / "measurements.jsonl").read_text().splitlines()]
    assert [(row["strategy"], row["batch_size"], row["status"]) for row in rows] == [
        ("numpy/outer-products", 1, "ok"),
        ("numpy/outer-products", 4, "ok"),
    ]
    assert "outer-products" in page.read_text()
    assert list(page.parent.glob("*.png"))


def test_a_new_strategy_is_found_in_the_current_folder(fresh: Path, tmp_path: Path) -> None:
    run([fresh / "pergrad", "new", "strategy", "numpy/my-idea"], tmp_path)

    found = run([fresh / "pergrad", "check", "numpy/my-idea", "--workload", "policy"], tmp_path)

    assert "numpy/my-idea: right" in found
