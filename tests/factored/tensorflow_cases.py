"""What `pergrad.tensorflow` promises, against plain gradients of one instance at a time in float64."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}  # oneDNN: see the test of what is refused

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
import pergrad.tensorflow as module  # noqa: E402
from pergrad.tensorflow import per_instance  # noqa: E402

Loss = Callable[[Any, Any], Any]
B = 5
total, tanh = tf.reduce_sum, tf.tanh


def normal(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def ids(entries: int, *shape: int) -> Any:
    return tf.constant(np.random.default_rng(0).integers(entries, size=shape), tf.int32)


def wide(values: Any) -> Any:
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float64) if x.dtype.is_floating else x, values)


def rows_of(loss: Loss, parameters: Any, batch: Any) -> list[np.ndarray[Any, Any]]:
    """Plain gradients, one instance at a time, in float64."""
    parameters, batch = wide(parameters), wide(batch)
    flat, found = tf.nest.flatten(parameters), []
    for i in range(tf.nest.flatten(batch)[0].shape[0]):
        with tf.GradientTape() as tape:
            tape.watch(flat)
            value = loss(parameters, tf.nest.map_structure(lambda x, i=i: x[i], batch))
        gradients = tape.gradient(value, flat, unconnected_gradients="zero")
        found.append([tf.convert_to_tensor(g).numpy() for g in gradients])
    return [np.stack(rows) for rows in zip(*found, strict=True)]


def norms_of(rows: list[np.ndarray[Any, Any]]) -> Any:
    return np.sqrt(sum((row.reshape(len(row), -1) ** 2).sum(1) for row in rows))


def assert_right(loss: Loss, parameters: Any, batch: Any, reference: Loss | None = None) -> None:
    """All four quantities."""
    rows = rows_of(reference or loss, parameters, batch)
    norms = norms_of(rows)
    clip, weights = float(np.median(norms)), np.arange(1.0, len(norms) + 1)
    scaled = {"weighted_sum": weights, "clipped_sum": np.minimum(1, clip / np.maximum(norms, 1e-30))}

    np.testing.assert_allclose(per_instance(loss, "norms")(parameters, batch), norms, rtol=3e-5)
    made = tf.nest.flatten(per_instance(loss)(parameters, batch))
    for row, want in zip(made, rows, strict=True):
        np.testing.assert_allclose(row, want, atol=1e-5 * norms.max())
    for quantity, factors in scaled.items():
        more = (tf.constant(factors, tf.float32),) if quantity == "weighted_sum" else ()
        found = per_instance(loss, quantity, clip_norm=clip)(parameters, batch, *more)
        for value, want in zip(tf.nest.flatten(found), rows, strict=True):
            assert tuple(value.shape) == want.shape[1:]
            np.testing.assert_allclose(value, np.tensordot(factors, want, 1), atol=3e-5 * (factors * norms).max())


def forms_of(loss: Loss, parameters: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """How the gradients were read."""
    seen, read = [], module._read_all

    def watched(gradients: Any, values: Any, found: list[Any]) -> Any:
        operands = read(gradients, values, found)
        seen[:] = found
        return operands

    monkeypatch.setattr(module, "_read_all", tf.autograph.experimental.do_not_convert(watched))
    per_instance(loss)(parameters, batch)
    return seen


def conv(x: Any, kernel: Any, strides: Any = 1, padding: Any = "SAME", **how: Any) -> Any:
    return tf.nn.conv2d(x if x.shape.rank == 4 else x[None], kernel, strides, padding, **how)


READ: dict[str, tuple[Loss, Any, Any]] = {
    "product": (lambda p, x: total(tanh(x[None] @ p)), normal(4, 5), normal(B, 4)),
    "few positions": (lambda p, x: total(tanh(x @ p)), normal(40, 50), normal(B, 3, 40)),
    "many positions": (lambda p, x: total(tanh(x @ p)), normal(4, 5), normal(B, 9, 4)),
    "one matrix for a stack": (lambda p, x: total(tanh(tf.matmul(x[None], p))), normal(4, 5), normal(B, 3, 4)),
    "tensordot": (lambda p, x: total(tanh(tf.tensordot(x, p, 1))), normal(4, 2, 5), normal(B, 3, 4)),
    "heads": (lambda p, x: total(tanh(tf.einsum("td,dhk->htk", x, p))), normal(14, 12, 15), normal(B, 3, 14)),
    "experts": (lambda p, x: total(tanh(tf.einsum("d,edf->ef", x, p))), normal(3, 4, 5), normal(B, 4)),
    "batched": (lambda p, x: total(tanh(x @ p)), normal(3, 14, 15), normal(B, 3, 2, 14)),
    "low rank": (lambda p, x: total(tanh(x[None] @ (p @ tf.transpose(p)))), normal(30, 2), normal(B, 30)),
    "lookup": (lambda p, x: total(tanh(tf.gather(p, x))), normal(9, 5), ids(9, B, 7)),
    "lookup of matrices": (lambda p, x: total(tanh(tf.gather(p, x))), normal(9, 2, 3), ids(9, B, 2, 3)),
    "two lookups": (
        lambda p, x: total(tanh(tf.gather(p, x[:3]))) * total(tanh(tf.gather(p, x[3:]))),
        normal(9, 5),
        ids(9, B, 7),
    ),
    "tied table": (lambda p, x: total(tanh(tf.gather(p, x) @ tf.transpose(p))), normal(90, 50), ids(90, B, 7)),
    "four uses": (
        lambda p, x: total(tanh(tanh(tanh(x @ p) @ p) @ tf.transpose(p)) @ p),
        normal(25, 25),
        normal(B, 1, 25),
    ),
    "stacked, by index": (lambda p, x: total(tanh(tanh(x[None] @ p[0]) @ p[2])), normal(3, 4, 4), normal(B, 4)),
    "stacked, by slice": (lambda p, x: total(tanh(x[None] @ p[:, 1:4])), normal(4, 6), normal(B, 4)),
    "stacked, unpacked": (
        lambda p, x: total(tanh(tanh(x[None] @ tf.unstack(p)[0]) @ tf.unstack(p)[1])),
        normal(2, 4, 4),
        normal(B, 4),
    ),
    "packed": (
        lambda p, x: total(tanh(x @ tf.split(p, 2, 1)[0]) * (x @ tf.split(p, 2, 1)[1])),
        normal(4, 10),
        normal(B, 2, 4),
    ),
    "convolution": (lambda p, x: total(tanh(conv(x, p, 2))), normal(4, 3, 2, 6), normal(B, 9, 8, 2)),
    "convolution, few positions": (
        lambda p, x: total(tanh(conv(x, p, 1, "VALID"))),
        normal(5, 5, 8, 9),
        normal(B, 7, 6, 8),
    ),
    "convolution, padded": (
        lambda p, x: total(tanh(conv(x, p, 2, [[0, 0], [2, 1], [1, 0], [0, 0]]))),
        normal(3, 3, 2, 2),
        normal(B, 9, 9, 2),
    ),
    "convolution of a set": (
        lambda p, x: total(tanh(conv(x, p, 2, "VALID"))),
        normal(3, 3, 3, 4),
        normal(B, 2, 9, 8, 3),
    ),
    "convolution, twice": (
        lambda p, x: total(tanh(conv(tanh(conv(x, p)), p, 1, "VALID"))),
        normal(3, 3, 3, 3),
        normal(B, 9, 8, 3),
    ),
    "one dimension": (lambda p, x: total(tanh(tf.nn.conv1d(x[None], p, 2, "SAME"))), normal(3, 2, 2), normal(B, 7, 2)),
    "three dimensions": (
        lambda p, x: total(tanh(tf.nn.conv3d(x[None], p, (1, 2, 2, 2, 1), "VALID"))),
        normal(3, 3, 2, 2, 2),
        normal(B, 5, 6, 4, 2),
    ),
    "transposed convolution": (
        lambda p, x: total(tanh(tf.nn.conv2d_transpose(x[None], p, (1, 12, 12, 3), 2, "SAME"))),
        normal(3, 3, 3, 2),
        normal(B, 6, 6, 2),
    ),
    "depthwise": (
        lambda p, x: total(tanh(tf.nn.depthwise_conv2d(x[None], p, (1, 2, 2, 1), "SAME"))),
        normal(3, 3, 2, 3),
        normal(B, 7, 6, 2),
    ),
}
"""Gradients that are read: nothing is executed row by row."""

EXECUTED: dict[str, tuple[Loss, Any, Any]] = {
    "bias, scale, unused": (
        lambda p, x: total(tanh(x * p["scale"] + p["bias"])),
        {"scale": normal(), "bias": normal(6), "unused": normal(3, 3)},
        normal(B, 6),
    ),
    "penalty in the loss": (lambda p, x: total(tanh(x[None] @ p)) + total(p * p), normal(6, 4), normal(B, 6)),
    "parameters alone": (lambda p, x: total(p * p), normal(6), normal(B, 6)),
    "weight norm": (lambda p, x: total(tanh(x[None] @ (p / tf.norm(p, axis=0)))), normal(4, 6), normal(B, 4)),
    "one part twice": (lambda p, x: total(tanh(tanh(x[None] @ p[0]) @ p[1]) @ p[0]), normal(3, 4, 4), normal(B, 4)),
    "nested structures": (
        lambda p, x: total(tanh(x["a"] @ p["l"][0] + x["b"][0] * p["l"][1])),
        {"l": [normal(4, 5), normal(5)]},
        {"a": normal(B, 1, 4), "b": (normal(B, 5),)},
    ),
}
"""What is right although nothing, or not all, is read."""


@pytest.mark.parametrize("name", READ)
def test_gradients_that_are_read_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, parameters, batch = READ[name]

    assert_right(loss, parameters, batch)

    assert type(forms_of(loss, parameters, batch, monkeypatch)[-1]) is not module.Form


@pytest.mark.parametrize("name", EXECUTED)
def test_everything_else_is_executed_and_right(name: str) -> None:
    assert_right(*EXECUTED[name])


def test_a_weight_in_a_while_loop_is_right() -> None:
    def loss(p: Any, x: Any) -> Any:
        return total(tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tanh(h @ p)), (0, x[None]))[1])

    p, x = normal(4, 4), normal(B, 4)

    np.testing.assert_allclose(per_instance(loss, "norms")(p, x), norms_of(rows_of(loss, p, x)), rtol=1e-4)


def test_dilation_and_groups_which_plain_gradients_lack_on_the_cpu() -> None:
    def apart(p: Any, x: Any) -> Any:
        kernel = tf.reshape(tf.stack([p, tf.zeros_like(p)], 1), (6, 3, 2, 2))[:5]
        kernel = tf.reshape(tf.stack([kernel, tf.zeros_like(kernel)], 2), (5, 6, 2, 2))[:, :5]
        return total(tanh(conv(x, kernel, 1, "VALID")))

    def groups(p: Any, x: Any) -> Any:
        return sum(total(tanh(conv(x[..., 2 * i : 2 * i + 2], p[..., 3 * i : 3 * i + 3]))) for i in (0, 1))

    rows = per_instance(lambda p, x: total(tanh(conv(x, p, 1, "VALID", dilations=2))))
    p, x = normal(3, 3, 2, 2), normal(B, 9, 9, 2)
    np.testing.assert_allclose(rows(p, x), rows_of(apart, p, x)[0], atol=1e-4)

    rows = per_instance(lambda p, x: total(tanh(conv(x, p))))
    p, x = normal(3, 3, 2, 6), normal(B, 6, 6, 4)
    np.testing.assert_allclose(rows(p, x), rows_of(groups, p, x)[0], atol=1e-4)


@pytest.mark.parametrize("case", ["positions", "tied table"])
def test_norms_keep_their_digits_where_contributions_cancel(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(B, 1, 64)
    if case == "positions":
        p, batch = normal(64, 48), tf.concat([x, -x + 1e-4 * normal(B, 1, 64, seed=1)], 1)

        def loss(p: Any, x: Any) -> Any:
            return total(x @ p)
    else:
        p, batch = normal(200, 64), {"id": ids(200, B, 5), "x": x}

        def loss(p: Any, b: Any) -> Any:
            same = total(tf.gather(p, b["id"])) - total(tf.one_hot(b["id"], 200, dtype=p.dtype) @ p)
            return same + tf.cast(1e-5, p.dtype) * total(b["x"] @ tf.transpose(p))

    want = norms_of(rows_of(loss, p, batch))

    np.testing.assert_allclose(per_instance(loss, "norms")(p, batch), want, rtol=5e-3)
    monkeypatch.setattr(module, "LEFT", -1e9)
    naive = per_instance(loss, "norms")(p, batch).numpy()
    assert not (np.abs(naive / want - 1) < 0.01).all()  # what the guard is for


def test_an_instance_without_gradient_has_norm_zero_and_adds_nothing() -> None:
    def loss(p: Any, x: Any) -> Any:
        return total(tanh(x @ p))

    p, x = normal(30, 40), tf.concat([normal(2, 3, 30), tf.zeros((1, 3, 30))], 0)
    with_it, without = (per_instance(loss, "clipped_sum")(p, part) for part in (x, x[:2]))

    assert per_instance(loss, "norms")(p, x)[2] == 0
    np.testing.assert_allclose(with_it, without, rtol=1e-5, atol=1e-6)


def test_variables_are_read_anew_and_python_numbers_are_frozen() -> None:
    p, captured, number = tf.Variable(normal(4)), tf.Variable(1.0), [1.0]
    x = normal(B, 4)
    norms = per_instance(lambda p, x: total(tanh(p * x)) * captured * number[0], "norms")
    first = norms(p, x).numpy()

    captured.assign(3.0)
    number[0] = 7.0

    np.testing.assert_allclose(norms(p, x), 3 * first, rtol=1e-5)
    p.assign(tf.zeros(4))
    np.testing.assert_allclose(norms(p, x), 3 * np.linalg.norm(x, axis=1), rtol=1e-5)


def test_parameters_may_be_variables_that_the_loss_knows_itself() -> None:
    table, weight = tf.Variable(normal(9, 4)), tf.Variable(normal(4, 3))

    def loss(_: Any, x: Any) -> Any:
        return total(tanh(tf.gather(table, x) @ weight))

    x = ids(9, B, 6)
    rows = per_instance(loss)([table, weight], x)
    want = rows_of(lambda p, x: total(tanh(tf.gather(p[0], x) @ p[1])), [table.value(), weight.value()], x)

    for row, expected in zip(rows, want, strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_works_in_a_function_for_every_batch_size_and_for_one_traced_without_it() -> None:
    loss, p, x = READ["few positions"]
    norms = tf.function(
        per_instance(loss, "norms"), input_signature=[tf.TensorSpec((40, 50)), tf.TensorSpec((None, 3, 40))]
    )

    for size in (1, 2, B):
        np.testing.assert_allclose(norms(p, x[:size]), norms_of(rows_of(loss, p, x[:size])), rtol=1e-5)


def test_dropout_draws_for_every_instance_and_call() -> None:
    rows = per_instance(lambda p, x: total(tf.nn.dropout(x[None] @ p, 0.5)))
    p, x = normal(3, 40), tf.ones((B, 3))

    kept = [rows(p, x).numpy()[:, 0] != 0 for _ in range(2)]

    assert (kept[0] != kept[1]).any()
    assert (kept[0][0] != kept[0][1]).any()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
def test_dtypes_are_kept_and_norms_are_added_up_in_float32_at_least(dtype: Any) -> None:
    loss, p, x = READ["few positions"]
    p, x = tf.cast(p / 8, dtype), tf.cast(x, dtype)
    want = norms_of(rows_of(loss, p, x))

    found = per_instance(loss, "norms")(p, x)

    assert found.dtype == per_instance(loss, "clipped_sum")(p, x).dtype == dtype
    np.testing.assert_allclose(tf.cast(found, tf.float64), want, rtol=1e-12 if dtype == tf.float64 else 0.03)


def test_a_product_that_onednn_gets_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])

    with pytest.raises(NotImplementedError, match="TF_ENABLE_ONEDNN_OPTS=0"):
        per_instance(lambda p, x: total(tanh(tf.matmul(x, p))), "norms")(normal(4, 5), normal(B, 1, 3, 4))


def test_says_what_it_cannot_be_asked() -> None:
    with pytest.raises(ValueError, match="no quantity"):
        per_instance(lambda p, x: p, "sums")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        per_instance(lambda p, x: p, "clipped_sum", clip_norm=0)


@settings(max_examples=6, deadline=None)
@given(st.permutations("gtmn"), st.permutations("gtmn"), st.permutations("gmn"), st.integers(0, 99))
def test_any_einsum(first: list[str], second: list[str], other: list[str], seed: int) -> None:
    """Labels of groups, positions and own axes of both, in any order."""
    sizes = dict(zip("gtmn", np.random.default_rng(seed).integers(1, 5, 4).tolist(), strict=True))
    x = "".join(k for k in first if k != "n")
    w = "".join(k for k in other)
    y = "".join(k for k in second if k != "m")

    def loss(p: Any, x_: Any) -> Any:
        return total(tanh(tf.einsum(f"{x},{w}->{y}", x_, p)))

    assert_right(loss, normal(*(sizes[k] for k in w)), normal(B, *(sizes[k] for k in x)))


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.sampled_from(["SAME", "VALID"]), st.integers(1, 3),
    st.integers(4, 8),
)  # fmt: skip
def test_any_convolution(high: int, wide_: int, stride: int, padding: str, filters: int, side: int) -> None:
    def loss(p: Any, x: Any) -> Any:
        return total(tanh(conv(x, p, stride, padding)))

    assert_right(loss, normal(high, wide_, 2, filters), normal(B, side, side + 1, 2))


LAYERS: dict[str, Callable[[Any, Any], Any]] = {
    "dense": lambda p, h: tanh(h @ p["square"]),
    "turned": lambda p, h: tanh(h @ tf.transpose(p["square"])),
    "tensordot": lambda p, h: tanh(tf.tensordot(h, p["square"], [[1], [1]])),
    "bias": lambda p, h: h + p["bias"],
    "norm": lambda p, h: (h - tf.reduce_mean(h, -1, keepdims=True)) * p["bias"],
    "mixed": lambda p, h: tanh(tf.transpose(tf.transpose(h) @ p["mix"])),
    "heads": lambda p, h: tf.reshape(tf.einsum("td,dhk->thk", h, tf.reshape(p["square"], (4, 2, 2))), (3, 4)),
    "part": lambda p, h: tanh(h @ p["stack"][0]),
    "last": lambda p, h: h + h @ p["stack"][-1],
    "table": lambda p, h: h @ tf.transpose(p["table"]) @ p["table"] / 9,
}


@settings(max_examples=7, deadline=None)
@given(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4))
def test_any_composition(layers: list[str]) -> None:
    def loss(p: Any, x: Any) -> Any:
        h = tf.gather(p["table"], x)
        for layer in layers:
            h = LAYERS[layer](p, h)
        return total(tanh(h))

    shapes = {"square": (4, 4), "bias": (4,), "mix": (3, 3), "stack": (3, 4, 4), "table": (9, 4)}
    parameters = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}

    assert_right(loss, parameters, ids(9, B, 3))
