"""Tiny workloads with values derived by hand: what has gone wrong for people, in every framework that is installed."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness import frameworks
from harness.cli.app import app
from harness.core import find_strategies, find_workloads
from harness.core import strategy as strategy_
from harness.core.find_workloads import find
from harness.core.records import Status
from harness.core.workload import cast
from harness.reference import build, compare
from harness.reference.build import NotFinite
from harness.reference.result import Reference
from harness.reference.workload_info import WorkloadInfo
from tests import bound, edges
from tests.test_strategies import SLOW

FRAMEWORKS = bound.each("numpy", "jax", "torch", "tf1", "tf2")
HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"


def run(framework: str, dtype: str = "float32") -> dict[str, Any]:
    """Everything in one process."""
    return run_once(framework, dtype)


@functools.cache
def run_once(framework: str, dtype: str) -> dict[str, Any]:
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


LAYERED = re.compile(r"/(layer-rules|outer-products|ghost|opacus|backpack|expanded-weights)")
"""Strategies that know layers and nothing else."""

DIVIDED = ("jax/sharded",)
"""Needs several devices, which a run gives it and this test does not."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_strategy_of_every_quantity_is_right_by_hand_or_says_that_there_is_no_rule(framework: str) -> None:
    chosen = [s.name for s in bound.catalogue().strategies if s.framework == framework and s.name not in SLOW]

    cases = bound.run(edges.verdicts, framework, chosen, framework=framework, optimized=False)

    assert {case: answer for case, answer in cases.items() if answer not in ("ok", "unsupported", "unavailable")} == {}
    refused = {case for case, answer in cases.items() if answer == "unsupported"}
    assert {case for case in refused if not LAYERED.search(case) and not case.startswith(DIVIDED)} == set()


@pytest.mark.parametrize("name", [name for name, edge in edges.EDGES.items() if edge.rows])
def test_the_reference_says_what_was_derived_by_hand(name: str) -> None:
    edge = edges.EDGES[name]
    batch = edge.workload(name).batch(np.random.default_rng(0), 100)  # all there are
    reference = build.compute(edge.workload(name), edge.workload(name).initial_parameters(0), batch)
    assert set(reference.rows) == set(edge.rows)
    for key, value in edge.rows.items():
        np.testing.assert_allclose(reference.rows[key], value, atol=1e-12, err_msg=key)


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


KINKS = {
    "abs has a kink at 0": ([[1, 2], [-1, -2], [0, 0], [0.5, 1]], [[3, 6], [-3, -6], [0, 7]]),
    "maximum has a kink at a tie": ([[0, 0], [1, 2], [0.5, 1]], [[2, 4], [-1, -2], [1, 5]]),
    "the largest is met several times": (
        [[[0, 1, 0, 0]] * 2, [[0, 0, 0, 1]] * 2, [[0, 1 / 3, 1 / 3, 1 / 3]] * 2],
        [[[0, 3, 0, 0]] * 2, [[0, 1, 0, 0], [0, -2, 1, 1]], [[0, 1, 0, 0], [2, 0, 0, 0]]],
    ),
    "the largest of a window is met several times": (
        [np.reshape(choice * 2, (2, 2, 2, 1)) for choice in ([0, 1, 0, 0], [0, 0, 0, 1], [0, 0.5, 0.5, 0])],
        [np.reshape(choice * 2, (2, 2, 2, 1)) for choice in ([0, 4, 0, 0], [0, 1, 0, 3], [0, -3, 0, 0])],
    ),
}
"""Edge -> (rows that are right, each by another choice of subgradient; rows that are not)."""


@functools.cache
def truth_at(edge: str) -> Reference:
    workload = edges.EDGES[edge].workload(edge)
    batch = cast(workload.batch(np.random.default_rng(0), 100), "float32")  # all there are
    return build.compute(workload, cast(workload.initial_parameters(0), "float32"), batch)


def verdict(edge: str, rows: Any) -> compare.Agreement:
    return compare.check({"w": np.array(rows, np.float32)}, truth_at(edge), "float32")


@pytest.mark.parametrize(("edge", "rows"), [(edge, rows) for edge, (right, _) in KINKS.items() for rows in right])
def test_at_a_kink_any_subgradient_is_right(edge: str, rows: Any) -> None:
    assert verdict(edge, rows).status is Status.OK, verdict(edge, rows).reason


@pytest.mark.parametrize(("edge", "rows"), [(edge, rows) for edge, (_, wrong) in KINKS.items() for rows in wrong])
def test_at_a_kink_what_is_no_subgradient_is_wrong(edge: str, rows: Any) -> None:
    found = verdict(edge, rows)

    assert found.status is Status.DISAGREES
    assert found.worst_instance in (0, 1)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("edge", sorted(KINKS))
def test_a_framework_is_not_called_wrong_for_its_choice_at_a_kink(edge: str, framework: str) -> None:
    for strategy, rows in found(framework, edge).items():
        assert verdict(edge, rows["w"]).status is Status.OK, strategy


@pytest.mark.parametrize("wrong", [1.01, 0.0])
def test_beside_a_kink_the_derivative_is_one_and_no_other(wrong: float) -> None:
    """relu(w x) at w x = 1: the instance at 0 has a choice, this one has none."""
    assert verdict("relu has derivative 0 at 0", [0, 1, 0]).status is Status.OK

    assert verdict("relu has derivative 0 at 0", [0, wrong, 0]).worst_instance == 1


@pytest.mark.parametrize("power", [1.5, 0.5])
def test_a_parameter_at_the_edge_of_a_domain_leaves_the_judge_strict(power: float) -> None:
    """(x + w)^p at w = 0: for x = 0 and below there is no root, for which nobody is forgiven anything."""
    workload = edges.Edge(
        lambda ops, p, b: ops.sqrt(b["x"] + p["w"]) ** (2 * power), {"w": 0.0}, {"x": [1.0, 4.0]}
    ).workload("root")
    reference = build.compute(
        workload, cast(workload.initial_parameters(0), "float32"), cast(workload.batches(0, 2, 1)[0], "float32")
    )
    right = np.array([power, power * 4 ** (power - 1)], np.float32)

    assert compare.check({"w": right}, reference, "float32").status is Status.OK
    assert compare.check({"w": right * np.float32(1.001)}, reference, "float32").status is Status.DISAGREES


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dropout_differs_from_instance_to_instance_and_repeats_with_the_seed(framework: str) -> None:
    masks = [edges.DROPOUT.batches(seed, 4, 1)[0]["mask"] for seed in (0, 0, 1)]
    assert len({tuple(mask) for mask in masks[0]}) == 4

    for strategy, rows in run(framework)["dropout"].items():
        for found, mask in zip(rows, masks, strict=True):
            np.testing.assert_array_equal(found, mask / (1 - edges.DROPOUT_RATE), err_msg=strategy)
        assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize("framework", bound.each(*edges.JACOBIANS))
def test_a_jacobian_of_images_has_one_row_per_instance_and_no_square_of_them(framework: str) -> None:
    for strategy, rows in run(framework)["jacobians"].items():
        for name, expected in edges.GREY_IMAGES.rows.items():
            np.testing.assert_array_equal(rows[name], expected, err_msg=f"{strategy} {name}")


@pytest.mark.parametrize("framework", bound.each("tf2"))
def test_a_jacobian_does_not_depend_on_how_many_iterations_run_at_a_time(framework: str) -> None:
    """If the tape is not persistent, TensorFlow has given other numbers without a word; now it refuses."""
    answers = run(framework)["parallel"]
    assert set(answers) == set(edges.JACOBIANS["tf2"])
    for strategy, by_iterations in answers.items():
        assert by_iterations == [run(framework)["jacobians"][strategy]] * 3, strategy


@pytest.mark.parametrize("framework", bound.each(*edges.CHUNKED))
def test_rows_by_chunks_are_those_without_chunks_also_of_an_odd_batch(framework: str) -> None:
    by_chunks, whole = (run(framework)["chunked"][strategy] for strategy in edges.CHUNKED[framework])
    for name, rows in whole.items():
        assert len(by_chunks[name]) == edges.ODD_SIZE
        np.testing.assert_allclose(by_chunks[name], rows, rtol=1e-4, atol=1e-6, err_msg=name)


PRECISION = {
    "jax": {"products": "highest"},
    "torch": {"products": "highest", "TF32": [False, False]},
    "tf1": {"TF32": [False]},
    "tf2": {"TF32": [False]},
}
"""Framework -> what it is told. By default JAX and TensorFlow multiply in TF32 on a GPU, and PyTorch does not."""


@pytest.mark.parametrize("framework", bound.each(*PRECISION))
def test_products_of_float32_are_computed_in_float32_by_every_framework(framework: str) -> None:
    assert run(framework)["precision"] == {"TF32 by the driver": "0", **PRECISION[framework]}


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
        build.write(tmp_path / "reference.npz", str(path), 2, 0, "float32")


def test_bytes_are_known_before_anything_runs() -> None:
    """16,000 rows of an embedding of a million words, five wide."""
    known = WorkloadInfo({"table": (1_000_000, 5)}, (), ("torch",), None, "")
    assert 16_000 * known.gradient_bytes("float32") / 2**30 == pytest.approx(298.02, abs=0.01)


def concurrent_rows() -> list[bool]:
    """Whether each of 20 calls of the concurrent strategy gives the rows of the loop, in order; in tf1's process."""
    policy = find("policy")
    parameters, batch = cast(policy.initial_parameters(0), "float32"), cast(policy.batches(0, 8, 1)[0], "float32")
    expected = bound.gradients("tf1", "tf1/session-loop", policy, parameters, batch)
    adapter = frameworks.load("tf1")
    problem = adapter.bind(policy, parameters, adapter.device("cpu"), 8)
    with adapter.scope(problem):
        step = bound.catalogue().find("tf1/concurrent-sessions").build(problem)
        calls = [step(batch) for _ in range(20)]
    return [
        all(np.allclose(row[name], expected[name][i], rtol=1e-5) for i, row in enumerate(rows) for name in expected)
        for rows in calls
    ]


@pytest.mark.parametrize("framework", bound.each("tf1"))
def test_concurrent_runs_of_one_session_give_the_same_rows_in_order_every_time(framework: str) -> None:
    assert bound.run(concurrent_rows, framework=framework) == [True] * 20


def graph_sizes() -> list[list[int]]:
    """Operations in the graph before and after three calls of every strategy that stands for tf1; in its process."""
    policy = find("policy")
    parameters, batch = cast(policy.initial_parameters(0), "float32"), cast(policy.batches(0, 3, 1)[0], "float32")
    adapter = frameworks.load("tf1")
    counts = []
    for strategy in bound.STRATEGIES["tf1"]:
        problem: Any = adapter.bind(policy, parameters, adapter.device("cpu"), 3)
        with adapter.scope(problem):
            step = bound.catalogue().find(strategy).build(problem)
            before = len(problem.graph.get_operations())
            for _ in range(3):
                step(batch)
            counts.append([before, len(problem.graph.get_operations()), int(problem.graph.finalized)])
    return counts


@pytest.mark.parametrize("framework", bound.each("tf1"))
def test_calls_add_nothing_to_a_graph_which_is_finalized(framework: str) -> None:
    for before, after, finalized in bound.run(graph_sizes, framework=framework):
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


@pytest.mark.parametrize("framework", bound.each("torch"))
def test_a_module_with_a_parameter_and_a_submodule_counts_each_once(tmp_path: Path, framework: str) -> None:
    """Rows of x (own)' for the weight, of x for the own parameter: neither twice."""
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    rows = bound.run(rows_of_file, str(path), "torch/func-vmap", framework=framework)
    assert rows == {"layer.weight": [[[1, 2], [10, 20]], [[3, 4], [30, 40]]], "own": [[1, 2], [3, 4]]}


@pytest.mark.parametrize("framework", bound.each("torch"))
def test_python_branches_run_in_a_loop_and_are_refused_by_vmap_in_words(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "branching.py"
    path.write_text(BRANCHING)
    assert "data-dependent" in bound.run(rows_of_file, str(path), "torch/func-vmap", framework=framework)
    assert bound.run(rows_of_file, str(path), "torch/grad-loop", framework=framework) == {"w": [4, 3]}


EACH_ITS_OWN = '''"""A Python branch on the value of each instance."""
import numpy as np
import {module}

frameworks = ("{framework}",)


def loss(w, x):
    return x * x * w if x > 0 else 3 * w


def losses(parameters, batch):
    return {module}.stack([loss(parameters["w"], x) for x in batch["x"]])


def parameters(rng):
    return {{"w": np.array(1.0)}}


def batch(rng, size):
    return {{"x": rng.standard_normal(size)}}
'''


@bound.needs("torch")
def test_a_worker_calls_a_branch_that_vmap_cannot_follow_unsupported_and_data_dependent(tmp_path: Path) -> None:
    path = tmp_path / "branching.py"
    path.write_text(EACH_ITS_OWN.format(framework="torch", module="torch"))

    result = CliRunner().invoke(app, ["check", "torch/func-vmap", "--workload", str(path)])

    assert "unsupported  branching: data-dependent control flow:" in result.output


@bound.needs("jax")
def test_a_branch_that_jax_cannot_trace_runs_in_a_loop_without_jit_and_is_unsupported_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "branching.py"
    path.write_text(EACH_ITS_OWN.format(framework="jax", module="jax.numpy"))

    result = CliRunner().invoke(app, ["check", "jax/grad-loop-without-jit", "jax/vmap", "--workload", str(path)])

    assert "jax/grad-loop-without-jit: right; 2 of 2 cases ok" in result.output
    assert "unsupported  branching: data-dependent control flow:" in result.output


UNFITTING = '''"""A layer that was written for four inputs and is given three."""
import numpy as np


def losses(ops, parameters, batch):
    return ops.sum(ops.matmul(batch["x"], parameters["w"]), 1)


def parameters(rng):
    return {"w": np.zeros((4, 2))}


def batch(rng, size):
    return {"x": np.ones((size, 3))}
'''


def test_a_layer_that_does_not_fit_is_told_with_its_workload_and_line(tmp_path: Path) -> None:
    path = tmp_path / "unfitting.py"
    path.write_text(UNFITTING)

    result = CliRunner().invoke(app, ["check", "numpy/autograd-loop", "--workload", str(path)])

    assert "workload unfitting fails in losses(), line 6 of unfitting.py: ValueError: matmul" in result.output
    assert "Traceback" not in result.output


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


BY_LAYERS = {
    "jax": ("jax/layer-rules", "jax/ghost-norms"),
    "torch": ("torch/layer-rules", "torch/ghost-norms", "torch/opacus-hooks"),
    "tf1": ("tf1/ghost-norms",),
    "tf2": ("tf2/ghost-norms",),
}


@pytest.mark.parametrize("framework", bound.each("jax", "torch", "tf1", "tf2"))
def test_examples_of_the_users_own_model_are_measured_rightly(framework: str) -> None:
    """With the reference from `ops` where it is written through them, else from the framework itself in float64."""
    paths = [str(EXAMPLES / f"{name}.py") for name, run_by in CASES.items() if framework in run_by]
    chosen = [*bound.STRATEGIES[framework], *BY_LAYERS[framework]]

    verdicts = bound.run(bound.verdicts, framework, "float32", paths, [3], chosen, framework=framework)

    assert len(verdicts) == len(paths) * len(chosen)
    wrong = {case: verdict for case, verdict in verdicts.items() if verdict[0] != "ok"}
    refused = {case: reason for case, (status, reason) in wrong.items() if status == "unsupported"}
    assert wrong.keys() == refused.keys()
    for case, reason in refused.items():  # what a framework's own functions do with parameters has no layer rule
        assert case.startswith(BY_LAYERS[framework])
        assert "through_ops" not in case
        assert re.search("layer rule|not installed|[Oo]pacus", reason), (case, reason)


def test_an_example_is_described_without_importing_its_framework() -> None:
    for name, run_by in CASES.items():
        workload = find_workloads.find(EXAMPLES / f"{name}.py")
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


LOOKUP = '''"""A lookup as TensorFlow has it, whose gradient is a list of rows."""
import numpy as np
import tensorflow as tf

frameworks = ("tf1", "tf2")


def losses(parameters, batch):
    return tf.reduce_sum(tf.gather(parameters["table"], batch["ids"]), 1) ** 2


def parameters(rng):
    return {"table": np.array([1.0, 2.0, 4.0])}


def batch(rng, size):
    return {"ids": np.array([[0, 0], [2, 1], [1, 1]])[:size]}
'''


@pytest.mark.parametrize("framework", bound.each("tf1", "tf2"))
def test_the_sparse_gradient_of_a_lookup_comes_back_dense(tmp_path: Path, framework: str) -> None:
    """(a + a)^2 has 4 (a + a) for a; (a + b)^2 has 2 (a + b) for each of both."""
    path = tmp_path / "lookup.py"
    path.write_text(LOOKUP)
    names = [
        strategy.name
        for strategy in find_strategies.discover().strategies
        if strategy.framework == framework and strategy.quantity == "gradients" and strategy.name not in SLOW
    ]
    rows = bound.run(tables, str(path), names, framework=framework)
    assert rows
    for name, table in rows.items():
        assert table == [[8, 0, 0], [0, 12, 12], [0, 16, 0]], name


def tables(path: str, names: list[str]) -> dict[str, Any]:
    """The rows of `table` by each of these strategies of one framework, in its process."""
    workload = find(path)
    parameters, batch = cast(workload.initial_parameters(0), "float32"), cast(workload.batches(0, 3, 1)[0], "float32")
    return {
        name: bound.gradients(name.partition("/")[0], name, workload, parameters, batch)["table"].tolist()
        for name in names
    }


POSITIONS = edges.Edge(
    lambda ops, p, b: ops.sum(b["x"] * ops.sum(ops.embedding(p["positions"], p["table"]), 0), 1),
    {"positions": [0, 1, 0], "table": np.ones((4, 2))},
    {"x": [[1.0, 2.0], [3.0, 4.0]]},
)
"""Ids that all instances share; the rows of the table are 2 x, x, 0, 0."""

BY_LAYERS = {
    "jax": ("jax/layer-rules", "jax/layer-rules-norms", "jax/ghost-norms"),
    "torch": ("torch/layer-rules", "torch/layer-rules-norms", "torch/ghost-norms"),
    "tf2": ("tf2/ghost-norms",),
    "tf1": ("tf1/ghost-norms",),
    "numpy": ("numpy/outer-products", "numpy/outer-products-norms", "numpy/ghost-norms"),
}


def layered(framework: str) -> dict[str, list[Any]]:
    """strategy -> what layer rules make of a kernel that is not square, and of ids without an axis of the instances."""
    found: dict[str, list[Any]] = {}
    for edge in (edges.EDGES["a kernel is not square"], POSITIONS):
        workload = edge.workload("edge")
        parameters, batch = cast(workload.initial_parameters(0), "float32"), cast(workload.batch(None, 2), "float32")  # type: ignore[arg-type]
        for strategy in BY_LAYERS[framework]:
            try:
                rows = bound.gradients(framework, strategy, workload, parameters, batch)
                answer: Any = {name: value.tolist() for name, value in rows.items()}
            except strategy_.Unsupported as error:
                answer = str(error)
            found.setdefault(strategy, []).append(answer)
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_layer_rules_know_kernels_of_any_shape_and_refuse_ids_that_instances_share(framework: str) -> None:
    norms = [(21**2 + 27**2 + 6**2) ** 0.5, (42**2 + 54**2 + 6**2) ** 0.5]
    for strategy, (convolved, looked_up) in bound.run(layered, framework, framework=framework).items():
        if strategy.endswith("norms"):
            assert convolved["norms"] == pytest.approx(norms), strategy
        else:
            assert convolved["kernel"] == edges.EDGES["a kernel is not square"].rows["kernel"].tolist(), strategy
        assert "which have no axis of the instances" in looked_up, strategy
