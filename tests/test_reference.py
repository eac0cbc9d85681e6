"""The reference: is it true, does it know its own precision, and does it refuse what has no reference?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core import find_workloads
from harness.core.find_workloads import find
from harness.core.user_code import Failing
from harness.core.workload import Arrays, Workload, cast
from harness.reference import build, compare, files, gradients
from harness.reference.gradients import ReferenceGradients
from harness.reference.independence import Coupled
from tests import bound
from tests.test_workloads import COMPLETE, NAMES, write

STEP = 1e-6
COORDINATES = 3
"""How many entries of every parameter are checked against finite differences."""


def central_difference(
    engine: ReferenceGradients, parameters: Arrays, name: str, index: tuple[int, ...], instance: int
) -> float:
    losses = []
    for step in (STEP, -STEP):
        moved = {key: value.copy() for key, value in parameters.items()}
        moved[name][index] += step
        there = ReferenceGradients(engine.workload, moved, engine.batch, "float64")
        losses.append(float(there.losses(slice(instance, instance + 1))[0]))
    return (losses[0] - losses[1]) / (2 * STEP)


@pytest.mark.parametrize("name", NAMES)
def test_true_rows_are_what_central_differences_of_the_loss_say(name: str) -> None:
    """The largest entry of a row and some drawn ones, of every parameter, at the real size."""
    workload = find(name)
    parameters, batch = workload.initial_parameters(0), workload.batches(0, 2, 1)[0]
    exact = ReferenceGradients(workload, parameters, batch, "float64")
    row = {key: value[0] for key, value in exact.rows([1]).items()}
    rng = np.random.default_rng(0)
    for key, true in row.items():
        drawn = [int(np.abs(true).argmax()), *rng.integers(true.size, size=COORDINATES - 1)]
        for index in (tuple(map(int, np.unravel_index(flat, true.shape))) for flat in drawn):
            difference = central_difference(exact, parameters, key, index, instance=1)
            assert true[index] == pytest.approx(difference, rel=1e-5, abs=1e-5 * np.abs(true).max() + 1e-9), (
                key,
                index,
            )


@pytest.mark.parametrize("name", ["policy", "cnn-small", "transformer-small"])
def test_the_weighted_gradient_is_the_weighted_sum_of_the_rows(name: str) -> None:
    """Also over more instances than are differentiated at a time."""
    workload = find(name)
    batch = workload.batches(0, gradients.CHUNK + 3, 1)[0]
    reference = build.compute(workload, workload.initial_parameters(0), batch)
    assert len(reference.instances) == gradients.CHUNK + 3
    for key, rows in reference.rows.items():
        summed = np.tensordot(reference.weights, rows, axes=1)
        np.testing.assert_allclose(reference.weighted[key], summed, rtol=1e-9, atol=1e-12 * np.abs(rows).max() + 1e-16)


@pytest.mark.parametrize(("dtype", "epsilon"), [("float64", 2.0**-52), ("float32", 2.0**-23), ("bfloat16", 2.0**-7)])
def test_the_row_error_is_the_error_of_the_dtype_under_test(dtype: str, epsilon: float) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    workload = find("mlp-small")
    parameters, batch = cast(workload.initial_parameters(0), dtype), cast(workload.batches(0, 4, 1)[0], dtype)
    reference = build.compute(workload, parameters, batch)
    for key, rows in reference.rows.items():
        relative = reference.row_errors[key] / np.abs(rows).reshape(4, -1).max(1)
        assert (relative > epsilon / 30).all()
        assert (relative < epsilon * 30).all()


def test_the_truth_is_that_of_the_inputs_after_they_were_rounded() -> None:
    workload = find("policy")
    exact = workload.initial_parameters(0)
    single = cast(exact, "float32")
    batch = workload.batches(0, 4, 1)[0]
    reference = build.compute(workload, single, batch)
    expected = ReferenceGradients(workload, cast(single, "float64"), batch, "float64").rows(range(4))
    for key, rows in reference.rows.items():
        np.testing.assert_array_equal(rows, expected[key])


def test_of_a_large_batch_a_sample_of_rows_is_checked_and_the_weighted_sum_covers_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "MOST_VALUES", 45 * 6)
    workload = find("policy")
    parameters, batch = workload.initial_parameters(0), workload.batches(0, 20, 1)[0]
    reference = build.compute(workload, parameters, batch)
    assert (len(reference.instances), reference.batch_size) == (6, 20)
    assert (np.diff(reference.instances) > 0).all()

    rows = ReferenceGradients(workload, parameters, batch, "float64").rows(range(20))
    assert compare.check(rows, reference, "float64").status == "ok"
    unchecked = next(i for i in range(20) if i not in reference.instances)
    rows["logit.bias"][unchecked] += 1
    assert "weighted sum" in compare.check(rows, reference, "float64").reason


def test_a_file_keeps_everything_that_was_computed(tmp_path: Path) -> None:
    path = tmp_path / "reference.npz"
    build.write(path, "policy", 5, 0, "float32")
    loaded = files.load(path)
    assert len(loaded) == build.BATCHES
    workload = find("policy")
    parameters = cast(workload.initial_parameters(0), "float32")
    for found, batch in zip(loaded, workload.batches(0, 5, build.BATCHES), strict=True):
        expected = build.compute(workload, parameters, cast(batch, "float32"))
        for field in dataclasses.fields(expected):
            np.testing.assert_equal(getattr(found, field.name), getattr(expected, field.name))
    assert loaded[0].computed_with == "HIPS autograd on NumPy, float64, one instance at a time"


NORMALISED = COMPLETE.replace(
    'batch["x"] * parameters["slope"]', 'parameters["slope"] * batch["x"] / ops.expand_dims(ops.mean(batch["x"], 0), 0)'
)


def test_a_loss_that_couples_its_instances_is_refused(tmp_path: Path) -> None:
    """As batch normalisation does: instance 0 has another loss in a batch than alone."""
    with pytest.raises(Coupled, match="couples its instances: the loss of instance"):
        build.write(tmp_path / "reference.npz", str(write(tmp_path, NORMALISED)), 4, 0, "float32")


STATEFUL = COMPLETE.replace(
    'return {"slope": rng.standard_normal(())}',
    'return {"slope": rng.standard_normal(()), "steps": np.array(3)}',
).replace('parameters["slope"] -', 'parameters["slope"] * parameters["steps"] -')


def test_integers_among_the_parameters_are_state_and_have_no_rows(tmp_path: Path) -> None:
    workload = find(write(tmp_path, STATEFUL))
    batch = {"x": np.array([1.0, 2.0]), "y": np.array([0.0, 0.0])}
    reference = build.compute(workload, {"slope": np.array(1.0), "steps": np.array(3)}, batch)
    assert list(reference.rows) == ["slope"]
    assert reference.rows["slope"].tolist() == [18.0, 72.0]  # d/ds (3 s x)^2 = 18 s x^2


ONLY = {
    "torch": ("import torch", "torch.as_tensor"),
    "jax": ("import jax.numpy as jnp", "jnp.asarray"),
    "tf2": ("import tensorflow as tf", "tf.convert_to_tensor"),
}


@pytest.mark.parametrize("framework", bound.each("torch", "jax", "tf2"))
def test_a_workload_of_one_framework_gets_its_truth_from_that_framework_in_float64(
    framework: str, tmp_path: Path
) -> None:
    header, convert = ONLY[framework]
    text = COMPLETE.replace("import numpy as np", f'import numpy as np\n{header}\n\nframeworks = ("{framework}",)\n')
    text = text.replace("losses(ops, parameters, batch)", "losses(parameters, batch)")
    text = text.replace('(batch["x"]', f'({convert}(batch["x"])')
    only = write(tmp_path, text, "fitted.py")
    (tmp_path / "ops").mkdir()
    same = write(tmp_path / "ops", COMPLETE, "fitted.py")  # its name is what the draws are made from

    build.write(tmp_path / "only.npz", str(only), 4, 0, "float32")
    build.write(tmp_path / "ops.npz", str(same), 4, 0, "float32")
    found, expected = (files.load(tmp_path / name)[0] for name in ("only.npz", "ops.npz"))
    assert found.computed_with == f"{framework} itself, float64, one instance at a time"
    np.testing.assert_allclose(found.rows["slope"], expected.rows["slope"], rtol=1e-14)


def test_a_failure_in_the_users_file_is_told_in_its_own_words(tmp_path: Path) -> None:
    text = COMPLETE.replace("import numpy as np", 'import numpy as np\nframeworks = ("numpy",)\n')
    text = text.replace("losses(ops, parameters, batch)", "losses(parameters, batch)")
    text = text.replace('batch["x"] *', 'batch["z"] *')
    with pytest.raises(Failing, match="KeyError: 'z'"):
        build.write(tmp_path / "reference.npz", str(write(tmp_path, text)), 2, 0, "float32")


def test_parameters_of_the_real_workloads_all_receive_gradients() -> None:
    """But for the key's bias of attention, which the softmax is blind to: its gradient is exactly 0 in theory."""
    for workload in find_workloads.builtin():
        if workload.name in ("cifar-cnn", "functorch-cnn"):
            continue  # slow, and covered by the differences above
        rows = _rows(workload)
        silent = [key for key, value in rows.items() if np.abs(value).max() < 1e-12]
        assert silent == (["key.bias"] if workload.name == "transformer" else [])


def _rows(workload: Workload) -> dict[str, Any]:
    return ReferenceGradients(workload, workload.initial_parameters(0), workload.batches(0, 2, 1)[0], "float64").rows(
        [0]
    )
