"""The built-in workloads: what they are, that all frameworks agree on them, and what is known of them beforehand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from harness.core import find_workloads, synthetic
from harness.core import workload as workloads_
from harness.core.find_workloads import find
from harness.core.plugins import PluginError
from harness.core.workload import Workload, cast
from harness.reference import flops
from harness.reference.workload_info import workload_info
from tests import bound

NAMES = ("cifar-cnn", "cnn", "embedding", "functorch-cnn", "lstm", "mlp", "policy", "transformer")
SMALL = [f"{name}-small" for name in NAMES]

PARAMETERS = {
    "policy": 45,
    "cnn": 26_010,
    "cifar-cnn": 605_226,
    "functorch-cnn": 1_199_882,
    "mlp": 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10,
    "embedding": 10_004 * 16 + 16 * 2 + 2,
    "lstm": 10_004 * 100 + 2 * 100 * 400 + 400 + 100 * 2 + 2,
    "transformer": 2_000 * 64 + 32 * 64 + 4 * (64 * 64 + 64) + 64 * 256 + 256 + 256 * 64 + 64 + 3 * 2 * 64,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_has_the_published_number_of_parameters(name: str) -> None:
    assert sum(value.size for value in find(name).initial_parameters(0).values()) == PARAMETERS[name]
    assert f"{PARAMETERS[name]:,} parameters" in find(name).summary


def test_every_built_in_workload_is_tested_here() -> None:
    assert [workload.name for workload in find_workloads.builtin()] == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_batches_have_one_entry_per_instance_and_repeat_with_the_seed(name: str) -> None:
    workload = find(name)
    first, second = workload.batches(0, 3, 2)
    assert {len(value) for value in first.values()} == {3}
    assert any((first[key] != second[key]).any() for key in first)
    again = workload.batches(0, 3, 2)
    assert all((first[key] == again[0][key]).all() for key in first)
    assert {len(value) for value in workload.batches(0, 0, 1)[0].values()} == {0}


@pytest.mark.parametrize("name", NAMES)
def test_the_small_variant_has_the_same_names_and_layouts(name: str) -> None:
    real, small = find(name), find(name, small=True)
    assert list(small.initial_parameters(0)) == list(real.initial_parameters(0))
    assert sum(value.size for value in small.initial_parameters(0).values()) < 5_000
    assert set(small.layouts) == set(real.layouts)
    assert find(small.source).source == small.source


@pytest.mark.parametrize("name", NAMES)
def test_layouts_belong_to_parameters_and_inputs_and_fit_them(name: str) -> None:
    workload = find(name)
    arrays = workload.initial_parameters(0) | workload.batches(0, 2, 1)[0]
    for key, layout in workload.layouts.items():
        np.testing.assert_array_equal(layout.restore(layout.reorder(arrays[key])), arrays[key])


@pytest.mark.parametrize("framework", bound.each("jax", "torch", "tf1", "tf2"))
@pytest.mark.parametrize(("dtype", "sizes"), [("float32", [1, 3]), ("float64", [2]), ("bfloat16", [2])])
def test_every_strategy_computes_the_true_rows_of_every_small_workload(
    framework: str, dtype: str, sizes: list[int]
) -> None:
    """At one instance and at several, in every dtype that frameworks have."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    found = bound.run(bound.verdicts, framework, dtype, SMALL, sizes, framework=framework, dtype=dtype)
    assert found
    wrong = {case: verdict for case, verdict in found.items() if verdict[0] not in ("ok", "unsupported")}
    assert not wrong


def test_digits_are_real_centred_and_between_0_and_1() -> None:
    images, labels = synthetic.digits(np.random.default_rng(0), 500)
    assert images.shape == (500, 28, 28, 1)
    assert images.min() == 0
    assert images.max() == 1
    assert images[:, :4].sum() == images[:, :, -4:].sum() == 0
    assert set(labels) == set(range(10))
    assert labels.dtype == np.int64
    ones, zeros = images[labels == 1].mean(0), images[labels == 0].mean(0)
    assert ones[14, 14, 0] > 0.5 > zeros[14, 14, 0]  # a zero is hollow


def test_texts_are_padded_with_zeros_where_the_mask_says_so() -> None:
    tokens, mask = synthetic.texts(np.random.default_rng(0), 200, 256, 10_004)
    assert ((tokens == 0) == (mask == 0)).all()
    assert 0 < tokens.max() < 10_004
    assert set(np.unique(mask)) == {0, 1}
    assert mask.sum(1).min() >= 64
    assert len(set(tokens[0])) < mask[0].sum()  # words are repeated


def test_layers_are_drawn_within_the_bound_that_pytorch_uses() -> None:
    drawn = synthetic.layers(np.random.default_rng(0), {"conv": (3, 3, 4, 50)})
    assert drawn["conv.weight"].shape == (3, 3, 4, 50)
    assert drawn["conv.bias"].shape == (50,)
    assert 0.95 / 6 < np.abs(drawn["conv.weight"]).max() < 1 / 6  # 1 / sqrt(3 x 3 x 4)


def test_facts_say_what_a_row_takes() -> None:
    known = workload_info(find("cnn"))
    assert known.parameter_count == 26_010
    assert known.gradient_bytes() == 4 * 26_010
    assert known.gradient_bytes("float64") == 8 * 26_010
    assert known.shapes["conv1.weight"] == (8, 8, 1, 16)
    assert known.frameworks == ("tf1", "tf2", "jax", "torch", "numpy")


def test_flops_are_counted_forwards_and_backwards_but_not_for_the_inputs_of_the_first_layer() -> None:
    """784-6-5-10: products forwards, then one per weight and one per hidden input."""
    first, second, third = 2 * 784 * 6, 2 * 6 * 5, 2 * 5 * 10
    relu, loss = 2 * (6 + 5), 2 * 10
    assert flops.count(find("mlp-small")) == 2 * first + 3 * second + 3 * third + relu + loss


def test_every_operation_has_a_price() -> None:
    """An operation that is not priced by name costs one per element of its result, which must be meant."""
    from harness.ops import numpy as ops

    priced = {*flops.PRODUCTS, *flops.WINDOWS, *flops.SUMS, *flops.MOVES}
    public = {name for name, value in vars(ops).items() if callable(value) and name[0] != "_"}
    one_per_element = public - priced
    assert {"relu", "tanh", "layer_norm", "softmax", "where"} < one_per_element
    assert priced <= public


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


COMPLETE = '''"""A line, fitted.

More words.
"""
import numpy as np


def losses(ops, parameters, batch):
    return (batch["x"] * parameters["slope"] - batch["y"]) ** 2


def parameters(rng):
    return {"slope": rng.standard_normal(())}


def batch(rng, size):
    return {"x": rng.random(size), "y": rng.random(size)}
'''


def test_a_file_of_the_users_own_is_found_by_its_path(tmp_path: Path) -> None:
    workload = find(write(tmp_path, COMPLETE, "my_line.py"))
    assert (workload.name, workload.summary) == ("my-line", "A line, fitted.")
    assert workload.through_ops
    assert find(workload.source).docstring == workload.docstring
    assert workload_info(workload).parameter_count == 1


def test_a_file_for_one_framework_is_read_without_being_executed(tmp_path: Path) -> None:
    text = COMPLETE.replace("import numpy as np", 'frameworks = ("torch",)\nraise SystemExit("executed")')
    workload = find(write(tmp_path, text))
    assert workload.frameworks == ("torch",)
    assert workload.summary == "A line, fitted."
    assert not workload.through_ops


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COMPLETE.replace("def batch", "def batches"), r"lacks the function\(s\) batch"),
        (COMPLETE + '\nframeworks = ("pytorch",)\n', r"frameworks = \('pytorch',\) is not a tuple of names out of"),
        (COMPLETE + "\nframeworks = some_function()\n", "is not a tuple of names"),
        (COMPLETE + "\ndef (:\n", "is not valid Python: line"),
    ],
)
def test_a_file_that_contradicts_the_interface_is_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(PluginError, match=message):
        find(write(tmp_path, text))


def test_unknown_names_and_absent_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="did you mean 'transformer'"):
        find("transformr")
    with pytest.raises(PluginError, match="does not exist"):
        find(tmp_path / "absent.py")


def test_an_installed_package_brings_workloads_as_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, COMPLETE, "package_of_mine.py")
    information = tmp_path / "mine-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[pergrad.workloads]\nfitted-line = package_of_mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    workload = find("fitted-line")
    assert (workload.name, workload.source) == ("fitted-line", "fitted-line")
    assert workload.initial_parameters(0)["slope"].shape == ()


def test_casting_leaves_integers_alone() -> None:
    pytest.importorskip("ml_dtypes")
    arrays = {"weight": np.ones(2), "count": np.array([1])}
    coarse = cast(arrays, "bfloat16")
    assert {name: value.dtype.name for name, value in coarse.items()} == {"weight": "bfloat16", "count": "int64"}
    assert cast(coarse, "float64")["weight"].dtype == np.float64
    floats, state = workloads_.split(coarse)
    assert (list(floats), list(state)) == (["weight"], ["count"])


def test_a_workload_can_be_made_in_code() -> None:
    made = Workload(
        name="made",
        losses=lambda ops, parameters, batch: ops.sum(parameters["w"] * batch["x"], 1),
        parameters=lambda rng: {"w": np.ones(2)},
        batch=lambda rng, size: {"x": np.ones((size, 2))},
        docstring="",
        path=Path(__file__),
    )
    assert math.prod(made.initial_parameters(0)["w"].shape) == 2
