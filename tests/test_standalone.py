"""What is printed to be copied: a file of its own, which runs with the framework alone and computes what it says."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core.find_strategies import discover
from harness.core.standalone import standalone
from harness.core.strategy import Strategy
from tests import bound

ROOT = Path(__file__).parent.parent

SIZE = 4

DRIVER = '''
"""Runs every file in this folder, where nothing of pergrad can be imported but the modules that stand alone."""
import contextlib
import importlib.abc
import runpy
import sys
from pathlib import Path

import numpy as np


class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("harness", "strategies"):
            raise ModuleNotFoundError(f"{name} is not at hand")


sys.meta_path.insert(0, Nothing())
framework, given = sys.argv[1], dict(np.load("given.npz"))
sys.path.insert(0, str(Path.cwd()))


def native(value):
    if framework == "jax":
        import jax.numpy as jnp

        return jnp.asarray(value)
    if framework == "torch":
        import torch

        return torch.from_numpy(value.copy())
    if framework == "tf2":
        import tensorflow as tf

        return tf.constant(value)
    return value


def functions():
    """tanh, and the sum over the last axis."""
    if framework == "jax":
        import jax.numpy as anp
    elif framework == "torch":
        import torch

        return torch.tanh, lambda x: x.sum(1)
    elif framework == "numpy":
        import autograd.numpy as anp
    else:
        import tensorflow as tf

        return tf.tanh, lambda x: tf.reduce_sum(x, 1)
    return anp.tanh, lambda x: anp.sum(x, 1)


def dense(x, weight, bias):
    return x @ weight + bias


def problem_of(file):
    """The same two layers for every strategy, in the form that its file takes."""
    if "example" in file["problem"].__dict__:
        return module_problem(file)
    tanh, total = functions()
    values = {name: native(given[name]) for name in ("w", "b", "v", "c")}
    if framework.startswith("tf"):
        import tensorflow as tf

        variable = tf.compat.v1.Variable if framework == "tf1" else tf.Variable
        values = {name: variable(value) for name, value in values.items()}

    def losses(parameters, batch, ops=None):
        layer = ops.dense if ops else dense
        hidden = tanh(layer(batch["x"], parameters["w"], parameters["b"]))
        return total((layer(hidden, parameters["v"], parameters["c"]) - batch["y"]) ** 2)

    more = {name: file["problem"].__dict__[name] for name in ("ops", "device") if name in file["problem"].__dict__}
    if "weights" in file["problem"].__dict__:
        more["weights"] = native(given["weights"])
    if framework == "tf1":
        import tensorflow as tf

        sizes = {name: (tf.float32, given[name].shape[1:]) for name in ("x", "y")}
        return file["GraphProblem"](losses, values, batch_size=len(given["x"]), inputs=sizes, **more)
    return file["Problem"](losses, values, batch_size=len(given["x"]), **more)


def module_problem(file):
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    values = {"0.weight": given["w"].T, "0.bias": given["b"], "2.weight": given["v"].T, "2.bias": given["c"]}
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in values.items()})
    example = {name: native(given[name][:1]) for name in ("x", "y")}
    return file["Problem"](
        model,
        lambda batch: (batch["x"],),
        lambda output, batch: (output - batch["y"]).square().sum(1),
        batch_size=len(given["x"]),
        example=example,
    )


def plain(found):
    """NumPy arrays by the names of the parameters; a list of instances is stacked."""
    if not hasattr(found, "items"):
        return {name: np.stack([plain(one)[name] for one in found]) for name in found[0]}
    names = {"0.weight": "w", "0.bias": "b", "2.weight": "v", "2.bias": "c"}
    arrays = {}
    for name, value in found.items():
        array = np.array(value.detach() if hasattr(value, "detach") else value)
        arrays[names.get(name, name)] = array.swapaxes(-1, -2) if name.endswith("weight") else array
    return arrays


def graph():
    if framework != "tf1":
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.Graph().as_default()


results = {}
for path in sorted(Path.cwd().glob("of_*.py"), key=lambda path: "os.environ[" not in path.read_text()):
    try:
        with graph():
            file = runpy.run_path(str(path), run_name="__main__")
        assert file["gradients"] is not None
        with graph():
            problem = problem_of(file)
            batch = {name: native(given[name]) for name in ("x", "y")}
            function = file["FUNCTION"] if "FUNCTION" in file else file[path.stem[3:]]
            found = plain(function(problem)(batch))
        results.update({f"{path.stem[3:]}:{name}": value for name, value in found.items()})
    except Exception as error:
        results[f"{path.stem[3:]}!{type(error).__name__}: {error}"] = np.zeros(())
np.savez("results.npz", **results)
'''


def truth(given: dict[str, np.ndarray], quantity: str) -> dict[str, np.ndarray]:
    """The two layers' gradients by hand, in float64."""
    at = {name: value.astype(float) for name, value in given.items()}
    hidden = np.tanh(at["x"] @ at["w"] + at["b"])
    above = 2 * (hidden @ at["v"] + at["c"] - at["y"])
    below = above @ at["v"].T * (1 - hidden**2)
    rows = {"w": at["x"][:, :, None] * below[:, None], "b": below, "v": hidden[:, :, None] * above[:, None], "c": above}
    norms = np.sqrt(sum((row.reshape(SIZE, -1) ** 2).sum(1) for row in rows.values()))
    if quantity == "gradients":
        return rows
    if quantity == "norms":
        return {"norms": norms}
    factors = at["weights"] if quantity == "weighted_sum" else 1 / np.maximum(norms, 1)
    return {name: np.tensordot(factors, row, 1) for name, row in rows.items()}


def of(framework: str) -> list[Strategy]:
    """The strategies of a framework whose packages are here."""
    found = [strategy for strategy in discover().strategies if strategy.framework == framework]
    return [strategy for strategy in found if all(importlib.util.find_spec(name) for name in strategy.requires)]


@pytest.mark.parametrize("framework", bound.each("numpy", "jax", "torch", "tf1", "tf2"))
def test_what_is_printed_runs_in_an_empty_folder_and_computes_what_it_says(framework: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0).standard_normal
    shapes = {"x": (SIZE, 5), "y": (SIZE, 3), "w": (5, 4), "b": (4,), "v": (4, 3), "c": (3,), "weights": (SIZE,)}
    given = {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "given.npz", **given)
    strategies = {strategy.name.partition("/")[2].replace("-", "_"): strategy for strategy in of(framework)}
    for function, strategy in strategies.items():
        (tmp_path / f"of_{function}.py").write_text(
            CliRunner().invoke(app, ["show", strategy.name]).output, encoding="utf-8"
        )
    alone = {"jax": "jax", "torch": "torch", "tf2": "tensorflow"}.get(framework)
    (tmp_path / "pergrad").mkdir()
    (tmp_path / "pergrad" / "__init__.py").touch()
    if alone:
        shutil.copy(ROOT / "pergrad" / f"{alone}.py", tmp_path / "pergrad")
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-I", "driver.py", framework], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(tmp_path / "results.npz") as file:
        results = dict(file)
    unable = [text for text in results if "!Unsupported: torch.compile needs" in text or "device only" in text]
    assert [text for text in results if "!" in text and text not in unable] == []
    for function, strategy in strategies.items():
        if any(text.startswith(f"{function}!") for text in unable):
            continue
        found = {name.partition(":")[2]: value for name, value in results.items() if name.partition(":")[0] == function}
        expected = truth(given, strategy.quantity)
        assert found.keys() == expected.keys(), function
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=f"{function} {name}")


def test_show_advise_and_the_report_print_one_text() -> None:
    strategy = discover().find("jax/vmap")

    assert CliRunner().invoke(app, ["show", "jax/vmap"]).output == strategy.code


PLUGIN = '''
from os import sep

import numpy as np

from pergrad import Problem, Step, strategy

LIMIT = 3
UNUSED = 4


@strategy(framework="jax")
def mine(problem: Problem) -> Step:
    """Mine."""
    from strategies._handles import others_refused

    # what it does
    return lambda batch: (np.zeros(LIMIT), others_refused)
'''


def test_of_a_file_only_what_the_strategy_needs_is_printed() -> None:
    text = standalone(PLUGIN, "jax/mine", "mine")

    assert "LIMIT = 3" in text
    assert "UNUSED" not in text
    assert "import sep" not in text
    assert "    # what it does\n" in text
    assert "def others_refused" in text
    assert "from strategies" not in text
    assert "@strategy" not in text


@pytest.mark.parametrize(
    ("text", "name", "function"),
    [
        (PLUGIN.replace("import others_refused", "import others_refused as other"), "jax/mine", "mine"),
        (PLUGIN, "sixth/mine", "mine"),
        (PLUGIN, "jax/made-elsewhere", "made_elsewhere"),
    ],
    ids=["a helper by another name", "another framework", "a function from elsewhere"],
)
def test_a_plugin_that_cannot_be_written_out_is_printed_as_it_is(text: str, name: str, function: str) -> None:
    assert standalone(text, name, function) == text
