"""A framework is one adapter: a sixth one, from one file and an entry point, goes through every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import store
from harness.core.framework import BUILT_IN, framework, framework_or_unknown
from harness.core.records import Measurement, Status

ADAPTER = '''
"""A framework that nobody has: NumPy under another name, with error texts of its own."""

from harness.core.framework import Framework
from harness.frameworks.numpy import NumpyAdapter

FRAMEWORK = Framework(
    name="sixth",
    label="The sixth framework",
    package="sixth_framework",
    packages=("sixth-framework",),
    start_s=1.5,
    light="#123456",
    dark="#fedcba",
    precision="as fine as NumPy's",
    out_of_memory=("the sixth memory is full",),
    data_dependent=("the sixth does not branch",),
)


class SixthAdapter(NumpyAdapter):
    """NumPy's arrays and operations."""

    name = "sixth"


ADAPTER = SixthAdapter
'''

STRATEGY = '''
from pergrad import strategy


@strategy(framework="sixth", source="a test", loop={loop})
def {name}(problem):
    """{name} of the sixth framework."""
    from autograd import grad

    gradient = grad(problem.loss)

    def step(batch):
        {first_line}
        rows = range(problem.batch_size)
        return [gradient(problem.parameters, {{key: value[i] for key, value in batch.items()}}) for i in rows]

    return step
'''

STRATEGIES = {
    "plain_loop": "pass",
    "hungry": "raise RuntimeError('the sixth memory is full: 3 bytes wanted')",
    "branching": "raise TypeError('the sixth does not branch on values')",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A current folder with three strategies, and beside it what installing the framework leaves behind."""
    root = tmp_path_factory.mktemp("sixth")
    information = root / "installed" / "sixth_framework-6.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sixth-framework\nVersion: 6.0\n")
    (information / "entry_points.txt").write_text("[pergrad.frameworks]\nsixth = sixth_framework\n")
    (root / "installed" / "sixth_framework.py").write_text(ADAPTER)
    strategies = root / "here" / "strategies" / "sixth"
    strategies.mkdir(parents=True)
    for name, line in STRATEGIES.items():
        text = STRATEGY.format(name=name, first_line=line, loop=name == "plain_loop")
        (strategies / f"{name}.py").write_text(text)
    return root


def pergrad(folder: Path, *arguments: str) -> str:
    """What a command prints, in the current folder of a person who has installed the framework."""
    variables = {**os.environ, "PYTHONPATH": str(folder / "installed")}
    command = [sys.executable, "-m", "pergrad", *arguments]
    done = subprocess.run(
        command, cwd=folder / "here", env=variables, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(folder: Path) -> store.Run:
    """A run of its three strategies on the question's network."""
    names = [word for name in STRATEGIES for word in ("--strategy", f"sixth/{name.replace('_', '-')}")]
    quickly = ("--workload", "policy", "--batch-size", "2", "--passes", "1", "--target", "0.01s", "--name", "sixth")
    pergrad(folder, "run", *names, *quickly)
    return store.load(folder / "here" / "results" / "sixth")


def row(run: store.Run, name: str) -> Measurement:
    (found,) = (row for row in run.rows if row.strategy == f"sixth/{name}")
    return found


def test_its_strategies_are_listed(folder: Path) -> None:
    listed = json.loads(pergrad(folder, "list", "strategies", "--json"))

    assert {"sixth/plain-loop", "sixth/hungry", "sixth/branching"} <= {entry["name"] for entry in listed}


def test_its_strategies_are_measured_and_its_loop_is_the_baseline(run: store.Run) -> None:
    assert row(run, "plain-loop").status is Status.OK
    assert run.info["baseline"] == "sixth/plain-loop"
    assert row(run, "plain-loop-again").status is Status.OK


def test_its_own_error_texts_are_understood(run: store.Run) -> None:
    assert row(run, "hungry").status is Status.OUT_OF_MEMORY
    assert row(run, "branching").status is Status.UNSUPPORTED


def test_its_version_is_recorded(run: store.Run) -> None:
    assert run.info["versions"]["sixth-framework"] == "6.0"
    assert run.info["frameworks"]["sixth"]["status"] == "ok"


def test_the_report_has_its_colour_and_its_precision(folder: Path, run: store.Run) -> None:
    pergrad(folder, "report", "sixth")

    page = (folder / "here" / "reports" / "sixth" / "index.html").read_text()
    assert "--hue-sixth: #123456" in page
    assert "--hue-sixth: #fedcba" in page
    assert "as fine as NumPy" in page
    assert "sixth/plain-loop" in page


def test_its_strategies_are_checked(folder: Path) -> None:
    (checked,) = json.loads(pergrad(folder, "check", "sixth/plain-loop", "--workload", "policy", "--json"))

    assert checked["ok"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_framework_describes_itself(name: str) -> None:
    known = framework(name)

    assert known.name == name
    assert known.start_s > 0
    assert known.packages


def test_a_report_may_name_a_framework_that_is_not_here() -> None:
    assert framework_or_unknown("seventh").label == "seventh"
