"""The operations: one list of names, the same values and gradients in every framework, the dtype kept."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autograd import grad
from autograd.extend import defvjp, primitive
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import frameworks, ops
from harness.core import layouts
from harness.ops import numpy as reference
from harness.ops.bfloat16 import rounded
from tests import bound

FOLDER = Path(ops.__file__).parent
FRAMEWORKS = ("jax", "torch", "tf1", "tf2")

SAMPLES: dict[str, tuple[list[tuple[int, ...] | int], dict[str, Any]]] = {
    "dense": ([(2, 3), (3, 4), (4,)], {}),
    "conv2d": ([(2, 7, 6, 3), (3, 3, 3, 2), (2,)], {"stride": 2, "padding": 1}),
    "max_pool": ([(2, 5, 5, 2)], {"size": 2, "stride": 1}),
    "average_pool": ([(2, 4, 4, 2)], {"size": 2, "stride": 2}),
    "embedding": ([5, (5, 3)], {}),
    "layer_norm": ([(2, 3, 6), (6,), (6,)], {"epsilon": 1e-5}),
    "attention": ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], {"heads": 2, "causal": True}),
    "lstm": ([(2, 3, 4), (4, 8), (2, 8), (8,)], {}),
    "dropout": ([(2, 3), (2, 3)], {"rate": 0.25}),
    "masked_mean": ([(2, 3, 4), (2, 3)], {}),
    "softmax_cross_entropy": ([5, (2, 5)], {}),
    "sigmoid_cross_entropy": ([(2, 3), (2, 3)], {}),
    **{name: ([(2, 3)], {}) for name in ("relu", "elu", "tanh", "sigmoid", "exp", "abs")},
    "maximum": ([(2, 3), (2, 3)], {}),
    "where": ([(2, 3), (2, 3), (2, 3)], {}),
    "softmax": ([(2, 3)], {"axis": -1}),
    "log_softmax": ([(2, 3)], {"axis": -1}),
    "matmul": ([(2, 2, 3), (3, 4)], {}),
    **{name: ([(2, 3)], {"axis": 1}) for name in ("sum", "mean", "max", "expand_dims")},
    "squeeze": ([(2, 1)], {"axis": 1}),
    "reshape": ([(2, 3)], {"shape": (3, 2)}),
    "transpose": ([(2, 3, 4)], {"axes": (0, 2, 1)}),
}
"""Name -> (shapes of the arrays, an integer n meaning integers below n of shape (2,); keywords)."""

TORCH_LAYOUTS = {
    "conv2d": (layouts.IMAGE, layouts.KERNEL),
    "max_pool": (layouts.IMAGE,),
    "average_pool": (layouts.IMAGE,),
    "lstm": (None, layouts.TRANSPOSED, layouts.TRANSPOSED),
}
IMAGE_RESULTS = ("conv2d", "max_pool", "average_pool")


def arguments(name: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(len(name))
    shapes, _ = SAMPLES[name]
    return [rng.integers(s, size=2) if isinstance(s, int) else rng.standard_normal(s) for s in shapes]


def results(framework: str) -> dict[str, Any]:
    """Every operation on its sample, float64, canonical: what a framework's own process sends back."""
    adapter = frameworks.load(framework)
    device = adapter.device("cpu")
    found: dict[str, Any] = {}
    for name, (_, keywords) in SAMPLES.items():
        orders = TORCH_LAYOUTS.get(name, ()) if adapter.reorders else ()
        keys = [str(number) for number in range(len(arguments(name)))]
        own = {key: order for key, order in zip(keys, orders, strict=False) if order}
        given_arrays = adapter.native(dict(zip(keys, arguments(name), strict=True)), own)
        placed = adapter.place(given_arrays, device)
        axes = (
            {"axes": "dims", "axis": "dim"} if framework == "torch" else {"axes": "perm"} if "tf" in framework else {}
        )
        keywords = {axes.get(key, key): value for key, value in keywords.items()}
        if framework == "tf1":
            found[name] = _in_a_session(adapter, name, placed, keywords)
        else:
            found[name] = adapter.numpy(getattr(adapter.ops, name)(*placed.values(), **keywords))
        if adapter.reorders and name in IMAGE_RESULTS:
            found[name] = layouts.IMAGE.restore(found[name])
        found[name] = {"dtype": found[name].dtype.name, "value": found[name].tolist()}
    return found


def _in_a_session(adapter: Any, name: str, arrays: Any, keywords: Any) -> Any:
    tf = adapter.tf1
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(getattr(adapter.ops, name)(*(tf.constant(a) for a in arrays.values()), **keywords))


@pytest.mark.parametrize("framework", bound.each(*FRAMEWORKS))
def test_every_operation_has_the_same_value_as_in_the_reference(framework: str) -> None:
    found = bound.run(results, framework, framework=framework, dtype="float64")
    for name, (_, keywords) in SAMPLES.items():
        expected = getattr(reference, name)(*arguments(name), **keywords)
        assert found[name]["dtype"] == "float64", name
        np.testing.assert_allclose(found[name]["value"], expected, rtol=1e-12, atol=1e-14, err_msg=name)


def names_in(path: Path) -> set[str]:
    """Public names that a module defines, read without importing its framework."""
    tree = ast.parse(path.read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assigned = {t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets}  # type: ignore[attr-defined]
    return {name for name in functions | assigned if name[0] not in "_" and not name[0].isupper()}


@pytest.mark.parametrize("framework", ["jax", "torch", "tensorflow", "numpy"])
def test_the_table_lists_exactly_the_operations_of_every_framework(framework: str) -> None:
    rows = [line.split(" | ")[0] for line in (ops.__doc__ or "").splitlines() if line.startswith("| `")]
    table = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    extra = {"attention_of", "lstm_of", "softmax_cross_entropy_of"} if framework == "numpy" else set()
    assert names_in(FOLDER / f"{framework}.py") - extra == table


def differentiable(name: str) -> list[int]:
    floats = [i for i, shape in enumerate(SAMPLES[name][0]) if not isinstance(shape, int)]
    return floats[1:] if name in ("where",) else floats


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_reference_differentiates_every_operation_rightly(name: str) -> None:
    """Against central differences: numbers that no rule of differentiation went into."""
    given_arrays, keywords = arguments(name), SAMPLES[name][1]
    weights = np.random.default_rng(1).standard_normal(getattr(reference, name)(*given_arrays, **keywords).shape)

    for position in differentiable(name):

        def value(x: Any, position: int = position) -> Any:
            filled = [*given_arrays[:position], x, *given_arrays[position + 1 :]]
            return reference.sum(reference.reshape(weights * getattr(reference, name)(*filled, **keywords), (-1,)), 0)

        x = given_arrays[position]
        if name == "masked_mean" and position == 1:
            continue  # a mask is data
        found, h = grad(value)(x), 1e-6
        for index in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[index] = h
            assert found[index] == pytest.approx((value(x + step) - value(x - step)) / (2 * h), rel=1e-6, abs=1e-8)


@primitive
def witnessed(x: Any, seen: list[str]) -> Any:
    return x


defvjp(witnessed, lambda _, x, seen: lambda g: seen.append(g.dtype.name) or g, argnums=(0,))


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"embedding", "softmax_cross_entropy"}))
def test_float32_stays_float32_on_the_way_back(name: str) -> None:
    """Otherwise the expected error would be that of a better arithmetic than the strategies have."""
    first, *rest = (a.astype(np.float32) for a in arguments(name))
    seen: list[str] = []
    operation = getattr(reference, name)
    position = 1 if name == "where" else 0

    def value(x: Any) -> Any:
        args = [witnessed(x, seen), *rest]
        if position:
            args = [first, witnessed(x, seen), rest[-1]]
        return reference.sum(reference.reshape(operation(*args, **SAMPLES[name][1]), (-1,)), 0)

    assert grad(value)(first).dtype == np.float32
    assert seen == ["float32"]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 3))
@settings(deadline=None)
def test_convolution_is_the_sum_it_is_defined_as(size: int, inputs: int, stride: int, padding: int, more: int) -> None:
    rng = np.random.default_rng(0)
    side = size + more
    x, kernel = rng.standard_normal((1, side, side, inputs)), rng.standard_normal((size, size, inputs, 2))
    found = reference.conv2d(x, kernel, np.zeros(2), stride, padding)
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    count = (side + 2 * padding - size) // stride + 1
    assert found.shape == (1, count, count, 2)
    for i in range(count):
        for j in range(count):
            window = padded[0, i * stride : i * stride + size, j * stride : j * stride + size]
            np.testing.assert_allclose(found[0, i, j], np.einsum("hwc,hwco->o", window, kernel), atol=1e-12)


def test_a_max_pool_gives_the_gradient_to_the_first_of_equal_values() -> None:
    x = np.array([1.0, 2.0, 2.0, 2.0]).reshape(1, 2, 2, 1)
    found = grad(lambda x: reference.sum(reference.reshape(reference.max_pool(x, 2, 2), (-1,)), 0))(x)
    assert found.ravel().tolist() == [0, 1, 0, 0]


def test_imitated_bfloat16_rounds_forwards_and_backwards() -> None:
    pytest.importorskip("ml_dtypes")
    coarse = rounded(reference)
    x = np.array([1 + 2**-7, 3.0], np.float32)
    assert coarse.exp(x).tolist() == np.exp(x).astype("bfloat16").astype(np.float32).tolist()
    back = grad(lambda x: reference.sum(coarse.exp(x) * np.float32(1 + 2**-12), 0))(x)
    assert back.tolist() == np.exp(x).tolist()  # the factor 1 + 2^-12 was rounded to 1


@given(st.integers(0, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
def test_a_layout_is_undone_by_its_inverse(leading: int, height: int, width: int, channels: int, outputs: int) -> None:
    shapes = {
        layouts.IMAGE: (height, width, channels),
        layouts.KERNEL: (height, width, channels, outputs),
        layouts.TRANSPOSED: (height, width),
        layouts.flattened_image(channels): (height * width * channels, outputs),
    }
    for layout, shape in shapes.items():
        array = np.random.default_rng(0).standard_normal((*[2] * leading, *shape))
        np.testing.assert_array_equal(layout.restore(layout.reorder(array)), array)


def test_the_weight_behind_a_flattened_image_follows_the_order_of_its_pixels() -> None:
    """Given an image and a weight, reordering both leaves their product what it was."""
    rng = np.random.default_rng(0)
    image, weight = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((60, 6))
    expected = image.reshape(2, 60) @ weight
    native = layouts.IMAGE.reorder(image).reshape(2, 60) @ layouts.flattened_image(5).reorder(weight)
    np.testing.assert_allclose(native, expected)
