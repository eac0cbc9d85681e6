"""A package of plugins from elsewhere: installed, found, checked and measured as those of pergrad are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.core import store
from harness.core.domain import INTERFACE
from harness.core.records import Status
from tests.conftest import installed

PACKAGE = Path(__file__).resolve().parent.parent / "examples" / "plugin-package"
ROOT = PACKAGE.parent.parent

FOR_ANOTHER_VERSION = f"written for version {INTERFACE + 1} of pergrad's plugin interface"

pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")


def install(package: Path, target: Path) -> None:
    """Install a package into a folder, without its dependencies and without the network."""
    command = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", *command, str(package)], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    install(PACKAGE, target)
    return target


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package, written for the interface that comes after this one."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(PACKAGE, folder / "package")
    for path in (folder / "package").rglob("*.py"):
        path.write_text(path.read_text().replace(f"interface={INTERFACE}", f"interface={INTERFACE + 1}"))
    install(folder / "package", folder / "site")
    return folder / "site"


def pergrad(site: Path, folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run pergrad in a folder of its own, with the packages of `site`."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    command = [sys.executable, "-P", "-m", "tests.pergrad_at_once", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_the_least_package_with_one_strategy_is_found_and_right(tmp_path: Path) -> None:
    install(PACKAGE.parent / "one-strategy", tmp_path / "site")

    result = pergrad(tmp_path / "site", tmp_path, ["check", "numpy/backward-loop", "--workload", "policy"])

    assert "numpy/backward-loop: right; 2 of 2 cases ok" in result.stdout, result.stdout + result.stderr


def test_what_a_package_declares_is_listed(site: Path, tmp_path: Path) -> None:
    strategies = json.loads(pergrad(site, tmp_path, ["list", "strategies", "--json"]).stdout)
    workloads = json.loads(pergrad(site, tmp_path, ["list", "workloads", "--json"]).stdout)

    assert {"numpy/residuals", "torch/vmap-of-losses"} <= {entry["name"] for entry in strategies}
    (ridge,) = [entry for entry in workloads if entry["name"] == "ridge"]
    assert ridge["parameters"] == 21


def test_its_strategy_is_right_on_its_workload_and_says_no_to_others(site: Path, tmp_path: Path) -> None:
    result = pergrad(site, tmp_path, ["check", "numpy/residuals", "--workload", "ridge", "--workload", "policy"])

    assert result.returncode == 0, result.stdout + result.stderr
    assert "numpy/residuals: right; 2 of 4 cases ok" in result.stdout
    assert "unsupported  policy: only a linear model" in result.stdout


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_its_strategy_of_a_framework_is_right_on_every_kind_of_layer(site: Path, tmp_path: Path) -> None:
    options = ["--workload", "ridge", "--workload", "cnn-small"]

    result = pergrad(site, tmp_path, ["check", "torch/vmap-of-losses", *options])

    assert "torch/vmap-of-losses: right; 4 of 4 cases ok" in result.stdout, result.stdout + result.stderr


def test_it_is_measured_like_any_other(site: Path, tmp_path: Path) -> None:
    options = ["--strategy", "numpy/residuals", "--workload", "ridge", "--batch-size", "1,8", "--passes", "1"]

    result = pergrad(site, tmp_path, ["run", *options, "--target", "0.05s", "--name", "mine"])

    assert result.returncode == 0, result.stdout + result.stderr
    rows = store.load(tmp_path / "results" / "mine").rows
    assert [(row.workload, row.strategy, row.status) for row in rows] == [("ridge", "numpy/residuals", Status.OK)] * 2
    assert "residuals" in (tmp_path / "reports" / "mine" / "index.html").read_text()


def test_a_plugin_for_another_interface_is_listed_as_unavailable(newer: Path, tmp_path: Path) -> None:
    entries = json.loads(pergrad(newer, tmp_path, ["list", "strategies", "--json"]).stdout)

    (broken,) = [entry for entry in entries if entry["name"] == "pergrad-ridge"]
    assert broken["summary"].startswith("unavailable: ")
    assert FOR_ANOTHER_VERSION in broken["summary"]
    assert "install a newer pergrad" in broken["summary"]
    assert "jax/vmap" in {entry["name"] for entry in entries}

    models = json.loads(pergrad(newer, tmp_path, ["list", "workloads", "--json"]).stdout)

    (broken,) = [entry for entry in models if entry["name"] == "ridge"]
    assert FOR_ANOTHER_VERSION in broken["summary"]
    assert "policy" in {entry["name"] for entry in models}


def test_a_plugin_for_another_interface_keeps_nobody_from_measuring(newer: Path, tmp_path: Path) -> None:
    options = ["--strategy", "numpy/outer-products", "--workload", "policy", "--batch-size", "1", "--passes", "1"]

    result = pergrad(newer, tmp_path, ["run", *options, "--target", "0.05s", "--name", "theirs"])

    assert result.returncode == 0, result.stdout + result.stderr
    assert f"pergrad-ridge: unavailable: PluginError: {FOR_ANOTHER_VERSION}" in result.stderr
    assert [row.status for row in store.load(tmp_path / "results" / "theirs").rows] == [Status.OK]


@pytest.mark.parametrize(("what", "name"), [("--strategy", "numpy/residuals"), ("--workload", "ridge")])
def test_asked_for_by_name_it_is_refused_in_a_sentence(what: str, name: str, newer: Path, tmp_path: Path) -> None:
    result = pergrad(newer, tmp_path, ["run", what, name])

    assert result.returncode == 2
    assert "\npergrad: " in f"\n{result.stderr}"  # what else is unavailable may stand before it
    assert "Traceback" not in result.stderr
