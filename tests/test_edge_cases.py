"""Tiny workloads with values derived by hand: what has gone wrong for people, in every framework that is installed."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness import frameworks, reference, strategies, workloads
from harness.cli import app
from harness.facts import Facts
from harness.reference import NotFinite
from harness.workloads import cast, find
from tests import bound, edges

FRAMEWORKS = bound.each("numpy", "jax", "torch", "tf1", "tf2")
HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"


@functools.cache
def run(framework: str, dtype: str = "float32") -> dict[str, Any]:
    """Everything in one process."""
    answers: dict[str, Any] = bound.run(edges.everything, framework, dtype, framework=framework, dtype=dtype)
    return answers


def found(framework: str, edge: str, dtype: str = "float32") -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """strategy -> rows of one edge; an error is a failure of the test."""
    answers = run(framework, dtype)["rows"][edge]
    broken = {strategy: answer for strategy, answer in answers.items() if isinstance(answer, str)}
    assert not broken
    return {s: {key: np.array(values) for key, (_, values) in rows.items()} for s, rows in answers.items()}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", [name for name, edge in edges.EDGES.items() if edge.rows])
def test_rows_are_those_derived_by_hand(name: str, framework: str) -> None:
    expected = edges.EDGES[name].rows
    for strategy, rows in found(framework, name).items():
        assert set(rows) == set(expected), strategy
        for key, value in expected.items():
            assert rows[key].shape == np.shape(value), (strategy, key)
            np.testing.assert_allclose(rows[key], value, atol=1e-6, err_msg=f"{strategy} {key}")


@pytest.mark.parametrize("name", [name for name, edge in edges.EDGES.items() if edge.rows])
def test_the_reference_says_what_was_derived_by_hand(name: str) -> None:
    edge = edges.EDGES[name]
    batch = edge.workload(name).batches(0, 100, 1)[0]
    truth = reference.compute(edge.workload(name), edge.workload(name).initial_parameters(0), batch)
    assert set(truth.rows) == set(edge.rows)
    for key, value in edge.rows.items():
        np.testing.assert_allclose(truth.rows[key], value, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_at_a_kink_every_framework_gives_a_subgradient_though_not_the_same(framework: str) -> None:
    """|w x| at w = 0 has slopes from -x to x, max(w x, 0) has slopes from 0 to x."""
    x = np.array([1.0, 2.0])
    for rows in found(framework, "abs has a kink at 0").values():
        assert (np.abs(rows["w"]) <= x).all()
    for rows in found(framework, "maximum has a kink at a tie").values():
        assert ((rows["w"] >= 0) & (rows["w"] <= x)).all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_equal_largest_values_share_one_unit_of_gradient(framework: str) -> None:
    for rows in found(framework, "the largest is met several times").values():
        assert (rows["w"][:, 0] == 0).all()
        np.testing.assert_allclose(rows["w"].sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_have_the_dtype_of_the_parameters(framework: str, dtype: str) -> None:
    """JAX gives float32 where float64 is asked, unless the process was started for it."""
    for edge in run(framework, dtype)["rows"].values():
        for rows in edge.values():
            assert {kind for kind, _ in rows.values()} == {dtype}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_batch_of_one_keeps_its_axis_and_has_the_row_it_has_in_a_larger_batch(framework: str) -> None:
    for strategy, by_size in run(framework)["sizes"].items():
        for name, (shape, one) in by_size["1"].items():
            assert shape == [1, *by_size["3"][name][0][1:]], strategy
            np.testing.assert_allclose(one[0], by_size["3"][name][1][0], rtol=1e-4, atol=1e-6, err_msg=strategy)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_batch_of_none_has_no_rows_or_says_so(framework: str) -> None:
    """An empty list is no rows. `tape.jacobian` cannot: pfor adds up the gradients of zero losses."""
    for strategy, by_size in run(framework)["sizes"].items():
        if strategy == "tf2/jacobian":
            assert "InvalidArgumentError" in by_size["0"]
            continue
        for name, (shape, _) in by_size["0"].items():
            assert shape == [0, *by_size["3"][name][0][1:]], strategy


NAKED_ROOT = '''"""A branch that is not chosen has no derivative."""
import numpy as np


def losses(ops, parameters, batch):
    z = batch["x"] + parameters["w"]
    return ops.where(ops.less(z, z * 0 + 1), z, ops.sqrt(z))


def parameters(rng):
    return {"w": np.array(0.0)}


def batch(rng, size):
    return {"x": np.zeros(size)}
'''


def test_a_workload_without_a_finite_gradient_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "root.py"
    path.write_text(NAKED_ROOT)
    with np.errstate(all="ignore"), pytest.raises(NotFinite, match=r"of w is NaN or infinite for instance 0.*where"):
        reference.write(tmp_path / "truth.npz", str(path), 2, 0, "float32")


def test_bytes_are_known_before_anything_runs() -> None:
    """16,000 rows of an embedding of a million words, five wide."""
    known = Facts({"table": (1_000_000, 5)}, (), ("torch",), None, "")
    assert 16_000 * known.gradient_bytes("float32") / 2**30 == pytest.approx(298.02, abs=0.01)


def concurrent_rows() -> list[bool]:
    """Whether each of 20 calls of the concurrent strategy gives the rows of the loop, in order; in tf1's process."""
    policy = find("policy")
    parameters, batch = cast(policy.initial_parameters(0), "float32"), cast(policy.batches(0, 8, 1)[0], "float32")
    expected = bound.gradients("tf1", "tf1/session-loop", policy, parameters, batch)
    adapter = frameworks.load("tf1")
    problem = adapter.bind(policy, parameters, adapter.device("cpu"), 8)
    with adapter.scope(problem):
        step = strategies.discover().find("tf1/concurrent-sessions").build(problem)
        calls = [step(batch) for _ in range(20)]
    return [
        all(np.allclose(row[name], expected[name][i], rtol=1e-5) for i, row in enumerate(rows) for name in expected)
        for rows in calls
    ]


@bound.needs("tf1")
def test_concurrent_runs_of_one_session_give_the_same_rows_in_order_every_time() -> None:
    assert bound.run(concurrent_rows, framework="tf1") == [True] * 20


def graph_sizes() -> list[list[int]]:
    """Operations in the graph before and after three calls of every strategy that stands for tf1; in its process."""
    policy = find("policy")
    parameters, batch = cast(policy.initial_parameters(0), "float32"), cast(policy.batches(0, 3, 1)[0], "float32")
    adapter = frameworks.load("tf1")
    counts = []
    for strategy in bound.STRATEGIES["tf1"]:
        problem: Any = adapter.bind(policy, parameters, adapter.device("cpu"), 3)
        with adapter.scope(problem):
            step = strategies.discover().find(strategy).build(problem)
            before = len(problem.graph.get_operations())
            for _ in range(3):
                step(batch)
            counts.append([before, len(problem.graph.get_operations()), int(problem.graph.finalized)])
    return counts


@bound.needs("tf1")
def test_calls_add_nothing_to_a_graph_which_is_finalized() -> None:
    for before, after, finalized in bound.run(graph_sizes, framework="tf1"):
        assert (before, finalized) == (after, 1)


NESTED = '''"""A module that owns a parameter and a submodule."""
import numpy as np
import torch
from torch.func import functional_call

frameworks = ("torch",)


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2, bias=False)
        self.own = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.layer(x) @ self.own


MODEL = Nested()


def losses(parameters, batch):
    return functional_call(MODEL, parameters, (batch["x"],))


def parameters(rng):
    return {"layer.weight": np.eye(2), "own": np.array([1.0, 10.0])}


def batch(rng, size):
    return {"x": np.array([[1.0, 2.0], [3.0, 4.0]])[:size]}
'''

BRANCHING = '''"""A Python branch on the value of an instance."""
import numpy as np

frameworks = ("torch",)


def losses(parameters, batch):
    x = batch["x"]
    return x * x * parameters["w"] if x.sum() > 0 else 3 * parameters["w"] + 0 * x


def parameters(rng):
    return {"w": np.array(1.0)}


def batch(rng, size):
    return {"x": np.array([2.0, -1.0])[:size]}
'''


def rows_of_file(path: str, strategy: str) -> Any:
    """Rows of a workload of PyTorch, or the error in words; in its process."""
    workload = find(path)
    parameters, batch = cast(workload.initial_parameters(0), "float32"), cast(workload.batches(0, 2, 1)[0], "float32")
    try:
        rows = bound.gradients("torch", strategy, workload, parameters, batch)
    except Exception as error:
        return str(error)
    return {name: value.tolist() for name, value in rows.items()}


@bound.needs("torch")
def test_a_module_with_a_parameter_and_a_submodule_counts_each_once(tmp_path: Path) -> None:
    """Rows of x (own)' for the weight, of x for the own parameter: neither twice."""
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    rows = bound.run(rows_of_file, str(path), "torch/func-vmap", framework="torch")
    assert rows == {"layer.weight": [[[1, 2], [10, 20]], [[3, 4], [30, 40]]], "own": [[1, 2], [3, 4]]}


@bound.needs("torch")
def test_python_branches_run_in_a_loop_and_are_refused_by_vmap_in_words(tmp_path: Path) -> None:
    path = tmp_path / "branching.py"
    path.write_text(BRANCHING)
    assert "data-dependent" in bound.run(rows_of_file, str(path), "torch/func-vmap", framework="torch")
    assert bound.run(rows_of_file, str(path), "torch/grad-loop", framework="torch") == {"w": [4, 3]}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_integer_leaves_are_listed_as_excluded(framework: str) -> None:
    assert run(framework)["state"] == [["counts"], ["table", "w"]]


CASES = {
    "through_ops": ("jax", "torch", "tf1", "tf2"),
    "torch_module": ("torch",),
    "jax_function": ("jax",),
    "keras_model": ("tf2",),
    "tensorflow_function": ("tf1", "tf2"),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(CASES)


@pytest.mark.parametrize("framework", bound.each("jax", "torch", "tf1", "tf2"))
def test_examples_of_the_users_own_model_are_measured_rightly(framework: str) -> None:
    """With the truth from `ops` where it is written through them, else from the framework itself in float64."""
    paths = [str(EXAMPLES / f"{name}.py") for name, run_by in CASES.items() if framework in run_by]
    verdicts = bound.run(bound.verdicts, framework, "float32", paths, [3], framework=framework)
    assert len(verdicts) == len(paths) * len(bound.STRATEGIES[framework])
    assert {case: verdict for case, verdict in verdicts.items() if verdict[0] != "ok"} == {}


def test_an_example_is_described_without_importing_its_framework() -> None:
    for name, run_by in CASES.items():
        workload = workloads.find(EXAMPLES / f"{name}.py")
        assert workload.summary.startswith("Bring your model, ")
        assert set(run_by) <= set(workload.frameworks)
    assert not {"torch", "jax", "tensorflow", "keras"} & set(sys.modules)


def test_a_model_that_differs_from_process_to_process_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "unseeded.py").write_text(
        '"""Parameters that nobody seeded."""\nimport numpy as np\n\nframeworks = ("numpy",)\n\n\n'
        "def losses(parameters, batch):\n    return batch['x'] * parameters['w']\n\n\n"
        "def parameters(rng):\n    return {'w': np.random.default_rng().random(1)}\n\n\n"
        "def batch(rng, size):\n    return {'x': rng.random(size)}\n"
    )

    result = CliRunner().invoke(app, ["check", "numpy/autograd-loop", "--workload", str(tmp_path / "unseeded.py")])

    assert result.exit_code == 1
    assert "Irreproducible: workload unseeded has other parameters or batches in every process" in result.output
