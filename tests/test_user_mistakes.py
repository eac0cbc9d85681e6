"""A mistake in a workload's file becomes one sentence with its place, the same for `ops` and for one framework."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core import store
from harness.core.find_workloads import find
from harness.core.plugins import PluginError
from harness.reference import build, files
from harness.reference.independence import Random
from tests import bound
from tests.conftest import PLANTED

HEADERS = {
    "ops": "import numpy as np\n",
    "numpy": 'import autograd.numpy as anp\nimport numpy as np\n\nframeworks = ("numpy",)\n',
    "torch": 'import numpy as np\nimport torch\n\nframeworks = ("torch",)\n',
    "jax": 'import jax.numpy as jnp\nimport numpy as np\n\nframeworks = ("jax",)\n',
    "tf2": 'import numpy as np\nimport tensorflow as tf\n\nframeworks = ("tf2",)\n',
}
MEAN = {
    "ops": "ops.mean({}, {axis})",
    "numpy": "anp.mean({}, axis={axis})",
    "torch": "torch.mean({}, {axis})",
    "jax": "jnp.mean({}, {axis})",
    "tf2": "tf.reduce_mean({}, {axis})",
}
EXPAND = {
    "ops": "ops.expand_dims({}, 1)",
    "numpy": "anp.expand_dims({}, 1)",
    "torch": "torch.unsqueeze({}, 1)",
    "jax": "jnp.expand_dims({}, 1)",
    "tf2": "tf.expand_dims({}, 1)",
}
EVERY = ["ops", *bound.each("numpy", "torch", "jax", "tf2")]

RESIDUAL = 'parameters["slope"] * batch["x"] - batch["y"]'
PARAMETERS = '{"slope": rng.standard_normal(())}'
BATCH = '{"x": rng.standard_normal(size), "y": rng.standard_normal(size), "wide": rng.standard_normal((size, 3))}'


def write(
    folder: Path, framework: str, losses: str, parameters: str = PARAMETERS, batch: str = BATCH, name: str = "fitted"
) -> Path:
    first = "ops, parameters, batch" if framework == "ops" else "parameters, batch"
    path = folder / f"{name}.py"
    path.write_text(
        f"{HEADERS[framework]}\n\ndef losses({first}):\n    return {losses}\n\n\n"
        f"def parameters(rng):\n    return {parameters}\n\n\ndef batch(rng, size):\n    return {batch}\n"
    )
    return path


def refused(folder: Path, path: Path, framework: str = "ops") -> str:
    """The sentence with which a workload is refused."""
    arguments = (str(folder / "reference.npz"), str(path), 4)
    if framework == "ops":
        sentence = refusal(*arguments)
    else:
        sentence = str(bound.run(refusal, *arguments, framework=framework, dtype="float64"))
    assert sentence
    assert "\n" not in sentence
    return sentence


def refusal(reference: str, path: str, size: int) -> str:
    """The same in the framework's process."""
    found = build.write_here([(size, reference)], path, 0, "float32", ["gradients"], True)
    return str(found[0][-1]) if found else ""


@pytest.mark.parametrize("framework", EVERY)
def test_a_shape_of_the_losses_is_told_with_what_is_expected_and_the_usual_cause(
    framework: str, tmp_path: Path
) -> None:
    expand, mean = EXPAND[framework], MEAN[framework]
    wide = 'parameters["slope"] * ' + expand.format('batch["x"]')
    shapes = {
        mean.format(f"({RESIDUAL}) ** 2", axis=0): "shape () for a batch of 4, expected (4,): they are averaged or",
        expand.format(f"({RESIDUAL}) ** 2"): "shape (4, 1) for a batch of 4, expected (4,): the last axis of length 1",
        f'({wide} - batch["y"]) ** 2': "shape (4, 4) for a batch of 4, expected (4,): predictions (B, 1) minus targets",
        f'{wide} * batch["wide"]': "shape (4, 3) for a batch of 4, expected (4,): one loss per instance",
        "None": "returns NoneType, expected an array of shape (B,)",
    }
    for number, (losses, expected) in enumerate(shapes.items()):
        assert expected in refused(tmp_path, write(tmp_path, framework, losses, name=f"f{number}"), framework)


def test_a_squeeze_too_many_is_found_in_a_batch_of_any_size(tmp_path: Path) -> None:
    path = write(tmp_path, "numpy", f"anp.squeeze(({RESIDUAL}) ** 2)")
    sentence = refused(tmp_path, path, "numpy")
    assert "shape () for a batch of 1, expected (1,): a squeeze without an axis" in sentence


@pytest.mark.parametrize("framework", ["ops", *bound.each("torch")])
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"parameters": "[1.0, 2.0]"}, "parameters() of workload fitted returns list, expected a dict"),
        ({"parameters": '{"slope": 3}'}, "has nothing to differentiate: parameters() returns no floating-point array"),
        ({"parameters": "{}"}, "has nothing to differentiate"),
        ({"parameters": '{"slope": {"deep": 1.0}}'}, "give nested parameters flat, as 'layer.weight'"),
        (
            {"parameters": '{"slope": np.array(1.0), "phase": np.array(1j)}'},
            "give real and imaginary part as two arrays",
        ),
        ({"parameters": '{"slope": np.array(["a"])}'}, "returns slope with dtype str32"),
        ({"parameters": "rng.no_such_method()"}, "fails in parameters(), line "),
        ({"batch": "None"}, "batch() of workload fitted returns NoneType"),
        (
            {"batch": '{"x": rng.standard_normal(7), "y": rng.standard_normal(size)}'},
            "x with shape (7,) for a batch of 4",
        ),
        (
            {"batch": '{"x": rng.standard_normal(()), "y": rng.standard_normal(size)}'},
            "x with shape () for a batch of 4",
        ),
        ({"losses": f'({RESIDUAL}) ** 2 + batch["label"]'}, "of fitted.py: KeyError: 'label'"),
    ],
)
def test_what_a_function_may_not_return_is_said_in_one_sentence(
    framework: str, changed: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    given = {"losses": f"({RESIDUAL}) ** 2", **changed}
    assert sentence in refused(tmp_path, write(tmp_path, framework, **given), framework)


@pytest.mark.parametrize(
    ("framework", "value"),
    [
        *(
            (f, v)
            for f, v in (("torch", "torch.ones(())"), ("tf2", "tf.ones(())"), ("jax", "jnp.ones(())"))
            if bound.installed(f)
        )
    ],
)
def test_a_frameworks_tensor_among_the_parameters_is_refused_with_the_way_to_numpy(
    framework: str, value: str, tmp_path: Path
) -> None:
    path = write(tmp_path, framework, f"({RESIDUAL}) ** 2", parameters=f'{{"slope": {value}}}')
    assert "expected a NumPy array: write " in refused(tmp_path, path)


COUPLED = {
    "statistics of the batch": f"({RESIDUAL} - {{mean_of_x}}) ** 2",
    "statistics behind a factor that is 0": f'({RESIDUAL}) ** 2 + parameters["zero"] * {{mean_of_x}}',
    "a constant that hides the others": f"({RESIDUAL}) ** 2 + {{mean}} - {{constant}}",
}
DETACHED = {"ops": "ops.stop_gradient({})", "torch": "({}).detach()"}


@pytest.mark.parametrize("framework", ["ops", *bound.each("torch")])
@pytest.mark.parametrize("kind", list(COUPLED))
def test_instances_that_depend_on_each_other_are_refused_wherever_the_dependence_lies(
    framework: str, kind: str, tmp_path: Path
) -> None:
    """In the values of the losses, or in their gradients only."""
    mean_of_x = MEAN[framework].format('batch["x"]', axis=0)
    mean = MEAN[framework].format('parameters["slope"] * batch["x"]', axis=0)
    losses = COUPLED[kind].format(mean_of_x=mean_of_x, mean=mean, constant=DETACHED[framework].format(mean))
    path = write(tmp_path, framework, losses, parameters='{"slope": rng.standard_normal(()), "zero": np.zeros(())}')
    assert "couples its instances: the " in refused(tmp_path, path, framework)


@bound.needs("torch")
def test_random_numbers_in_the_losses_are_not_taken_for_coupling(tmp_path: Path) -> None:
    path = write(tmp_path, "torch", f'torch.nn.functional.dropout({RESIDUAL}, 0.5) ** 2 + batch["x"]')
    with pytest.raises(Random, match="draws random numbers in its losses"):
        build.write(tmp_path / "reference.npz", str(path), 4, 0, "float32")


def run(folder: Path, *paths: Path) -> tuple[int, str]:
    """`pergrad run` of an honest strategy on these workloads."""
    workloads = [part for path in paths for part in ("--workload", str(path))]
    result = CliRunner().invoke(
        app,
        [
            *("run", "--plugin", str(PLANTED / "honest.py"), "--strategy", "numpy/honest", *workloads),
            *("--batch-size", "1,3", "--passes", "1", "--target", "0.01", "--name", "mistakes"),
            *("--results", str(folder / "results"), "--reports", str(folder / "reports")),
        ],
    )
    return result.exit_code, result.output


def test_a_broken_workload_stops_no_other_and_is_the_same_for_every_command(tmp_path: Path) -> None:
    broken = write(tmp_path, "ops", f'({RESIDUAL}) ** 2 + batch["label"]', name="broken")
    sound = write(tmp_path, "ops", f"({RESIDUAL}) ** 2", name="sound")

    code, output = run(tmp_path, broken, sound)

    rows = store.load(tmp_path / "results" / "mistakes").rows
    sentence = "workload broken fails in losses(), line 5 of broken.py: KeyError: 'label'"
    assert {(row.workload, row.status) for row in rows} == {("broken", "error"), ("sound", "ok")}
    assert code == 1
    assert sentence in " ".join(output.split())
    assert "Traceback" not in output

    for command in (["advise", "--batch-size", "3"], ["check", "numpy/autograd-loop"]):
        result = CliRunner().invoke(app, [*command, "--workload", str(broken)])
        assert result.exit_code in (1, 2)
        assert sentence in " ".join(result.output.split())
        assert "Traceback" not in result.output


@pytest.mark.parametrize("framework", EVERY)
def test_losses_that_no_parameter_takes_part_in_are_refused(framework: str, tmp_path: Path) -> None:
    path = write(tmp_path, framework, 'batch["x"] ** 2')

    with pytest.raises(PluginError, match=r"gradients of zero, for every parameter \(slope\).* Is a result detached"):
        build.write(tmp_path / "reference.npz", str(path), 4, 0, "float64")


def test_a_batch_size_whose_gradient_is_not_finite_costs_no_other(tmp_path: Path) -> None:
    batch = '{"x": np.where(np.arange(size) == 2, np.inf, rng.standard_normal(size)), "y": rng.standard_normal(size)}'
    path = write(tmp_path, "ops", f"({RESIDUAL}) ** 2", batch=batch)

    run(tmp_path, path)

    rows = store.load(tmp_path / "results" / "mistakes").rows
    assert {(row.batch_size, row.status) for row in rows} == {(1, "ok"), (3, "unsupported")}


def test_workloads_are_listed_although_one_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads").mkdir()
    write(tmp_path / "workloads", "ops", f"({RESIDUAL}) ** 2", parameters="rng.no_such_method()", name="raising")

    result = CliRunner().invoke(app, ["list", "workloads", "--json"])

    found = {entry["name"]: entry["summary"] for entry in json.loads(result.stdout)}
    assert "policy" in found
    assert "fails in parameters()" in found["raising"]


@bound.needs("torch")
def test_a_loss_that_differentiates_itself_has_a_reference(tmp_path: Path) -> None:
    """u = (s x)^2, the loss is (du/dx)^2 = 4 s^4 x^2, its gradient 16 s^3 x^2."""
    losses = 'derivative(parameters["slope"], batch["x"]) ** 2 + 0 * batch["y"]'
    path = write(tmp_path, "torch", losses)
    path.write_text(
        path.read_text() + "\n\ndef derivative(slope, x):\n    x = x.clone().requires_grad_()\n"
        "    return torch.autograd.grad(((slope * x) ** 2).sum(), x, create_graph=True)[0]\n"
    )

    build.write(tmp_path / "reference.npz", str(path), 4, 0, "float64")

    slope = np.random.default_rng([0, zlib.crc32(b"fitted")]).standard_normal()
    x = np.random.default_rng([0, zlib.crc32(b"fitted"), 4, 0]).standard_normal(4)
    np.testing.assert_allclose(files.load(tmp_path / "reference.npz")[0].rows["slope"], 16 * slope**3 * x**2)


@bound.needs("jax")
def test_a_branch_on_values_in_python_has_a_reference_in_jax(tmp_path: Path) -> None:
    path = write(tmp_path, "jax", "each(parameters, batch)")
    path.write_text(
        path.read_text() + "\n\ndef each(parameters, batch):\n"
        '    sides = [parameters["slope"] * x if x > 0 else -3 * parameters["slope"] for x in batch["x"]]\n'
        "    return jnp.stack(sides)\n"
    )

    build.write(tmp_path / "reference.npz", str(path), 4, 0, "float32")

    reference = files.load(tmp_path / "reference.npz")[0]
    assert ((reference.rows["slope"] == -3) | (reference.rows["slope"] > 0)).all()


def test_a_workload_may_import_its_neighbours_and_read_their_data_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "my_network_of_this_test.py").write_text("SCALE = 2.0\n")
    (there / "scale_of_this_test.txt").write_text("1.5")
    path = write(there, "ops", f"SCALE * ({RESIDUAL}) ** 2", name="neighbourly")
    path.write_text(
        "from pathlib import Path\n\nfrom my_network_of_this_test import SCALE\n"
        + path.read_text()
        + '\n\nSCALE *= float((Path(__file__).parent / "scale_of_this_test.txt").read_text())\n'
    )
    monkeypatch.chdir(here)

    result = CliRunner().invoke(app, ["check", "numpy/autograd-loop", "--workload", "../there/neighbourly.py"])

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("encoding", "first"), [("utf-8-sig", ""), ("latin-1", "# -*- coding: latin-1 -*-\n")], ids=["mark", "latin-1"]
)
def test_a_file_in_another_encoding_is_read_as_python_reads_it(encoding: str, first: str, tmp_path: Path) -> None:
    path = write(tmp_path, "ops", f"({RESIDUAL}) ** 2", name=f"encoded_{len(first)}")
    path.write_bytes((first + '"""Größe."""\n' + path.read_text()).encode(encoding))

    found = find(str(path))

    assert found.docstring == "Größe."
    assert "Größe" in found.code


def test_a_file_that_is_no_text_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\x00\xff\x00")

    with pytest.raises(PluginError, match="is not valid Python: "):
        find(str(tmp_path / "binary.py"))


def test_the_frameworks_of_a_workload_may_be_annotated(tmp_path: Path) -> None:
    path = write(tmp_path, "torch", f"({RESIDUAL}) ** 2")
    path.write_text(path.read_text().replace("frameworks =", "frameworks: tuple[str, ...] ="))

    assert find(str(path)).written_for == ("torch",)


@pytest.mark.parametrize("framework", ["ops", *bound.each("torch", "jax", "tf2")])
def test_floating_point_state_is_given_to_the_losses_and_has_no_rows(framework: str, tmp_path: Path) -> None:
    """The loss is s c x with a frozen c = 3: its gradient is 3 x. The state follows the dtype of the reference."""
    path = write(tmp_path, framework, 'parameters["slope"] * parameters["frozen"] * batch["x"]')
    path.write_text(path.read_text() + '\n\ndef state(rng):\n    return {"frozen": np.array(3.0, np.float32)}\n')

    build.write(tmp_path / "reference.npz", str(path), 4, 0, "float32")

    (reference, *_) = files.load(tmp_path / "reference.npz")
    x = np.random.default_rng([0, zlib.crc32(b"fitted"), 4, 0]).standard_normal(4).astype(np.float32)
    assert list(reference.rows) == ["slope"]
    np.testing.assert_allclose(reference.rows["slope"], 3.0 * x.astype(float), rtol=1e-12)


@pytest.mark.parametrize("label", [-100, -1, 3])
@pytest.mark.parametrize("use", ["softmax_cross_entropy", "embedding"])
def test_a_label_or_an_id_out_of_range_is_said_instead_of_a_reference(use: str, label: int, tmp_path: Path) -> None:
    """Frameworks make rows of zeros, of NaN, or those of another label of it."""
    losses = {
        "softmax_cross_entropy": 'ops.softmax_cross_entropy(batch["label"], parameters["slope"] * batch["wide"])',
        "embedding": 'ops.sum(ops.embedding(batch["label"], parameters["slope"] * np.ones((3, 2))), 1)',
    }
    batch = BATCH.replace("{", f'{{"label": np.where(np.arange(size) == 2, {label}, 1), ', 1)
    sentence = refused(tmp_path, write(tmp_path, "ops", losses[use], batch=batch))
    assert f"are integers from 0 to 2 here, and there is {label}" in sentence
