"""A framework is one adapter: a sixth one, from one file and an entry point, goes through every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import store
from harness.core.domain import usable_cores
from harness.core.framework import BUILT_IN, framework, framework_or_unknown
from harness.core.records import Measurement, Status

ROOT = Path(__file__).parents[1]

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
    return python(folder, "-m", "pergrad", *arguments)


def python(folder: Path, *arguments: str) -> str:
    """The same of Python; pergrad is that of this checkout, whichever one is installed."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "installed"), str(ROOT)])}
    command = [sys.executable, *arguments]
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
    python(folder, "-P", "-m", "tests.pergrad_at_once", "run", *names, *quickly)
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


BROKEN = {
    "absent": ("absent = there_is_no_such_module", ""),
    "raises": ("raises = its_module", "raise RuntimeError('half installed')"),
    "empty": ("empty = its_module", ""),
    "misnamed": ("misnamed = its_module", "from harness.frameworks.numpy import ADAPTER, FRAMEWORK"),
    "numpy": ("numpy = its_module", "from harness.frameworks.numpy import ADAPTER, FRAMEWORK"),
}
"""Framework -> its entry point and its module."""


def install(root: Path, entry_point: str, module: str) -> Path:
    """What installing a package with a framework leaves behind, beside an empty current folder."""
    information = root / "installed" / "some_package-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[pergrad.frameworks]\n{entry_point}\n")
    (root / "installed" / "its_module.py").write_text(module)
    (root / "here").mkdir()
    return root


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_cannot_be_had_is_named_and_the_others_go_on(tmp_path: Path, name: str) -> None:
    found = python(
        install(tmp_path, *BROKEN[name]),
        "-c",
        "import json; from harness.core.framework import framework, framework_names, unavailable;"
        "print(json.dumps([[framework(n).name for n in framework_names()], dict(unavailable())]))",
    )

    names, reasons = json.loads(found)
    assert tuple(names) == BUILT_IN
    assert list(reasons) == [name]
    assert reasons[name]


def test_the_doctor_names_one_that_cannot_be_had(tmp_path: Path) -> None:
    examined = json.loads(pergrad(install(tmp_path, *BROKEN["raises"]), "doctor", "--json"))

    (finding,) = (f for f in examined["findings"] if f["what"] == "plugin raises")
    assert finding["found"] == "RuntimeError: half installed"


def test_one_that_wraps_the_package_of_another_does_not_speak_for_it(tmp_path: Path) -> None:
    module = """
from dataclasses import replace
from harness.frameworks import numpy

FRAMEWORK = replace(numpy.FRAMEWORK, name="mine")

class ADAPTER(numpy.NumpyAdapter):
    def __init__(self, threads):
        raise OSError("no accelerator")
"""
    found = python(
        install(tmp_path, "mine = its_module", module),
        "-c",
        "import json; from harness.system.detect import detect; print(json.dumps(detect(('numpy', 'mine'), None)))",
    )

    seen = json.loads(found)
    assert seen["numpy"]["status"] == "ok"
    assert "no accelerator" in seen["mine"]["reason"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
@pytest.mark.skipif(len(usable_cores()) < 2, reason="a mask leaves something out only where there are two cores")
@pytest.mark.skipif(not framework("tf2").is_installed, reason="TensorFlow is not installed")
def test_tensorflow_counts_the_cores_that_it_may_use(tmp_path: Path) -> None:
    found = python(
        install(tmp_path, "absent = there_is_no_such_module", ""),
        "-c",
        "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]);"
        "from harness import frameworks; import json; print(json.dumps(frameworks.load('tf2').threads()))",
    )

    assert json.loads(found) == {"intra_op": 1, "inter_op": 1}
