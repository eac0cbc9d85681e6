"""What `pergrad.jax` promises; run by `test_jax.py` in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from pergrad.jax import per_instance

B = 5
RANDOM = np.random.default_rng(0)
Tree = Any
Loss = Callable[[Tree, Tree], Any]
QUANTITIES = ("gradients", "norms", "clipped_sum", "weighted_sum")


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    """Float64, and programs that are compiled in half the time."""
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.enable_x64(True):
        yield
    jax.config.update("jax_disable_most_optimizations", False)


def R(*shape: int) -> Any:  # noqa: N802
    return RANDOM.normal(size=shape)


def ids(low: int, high: int, *shape: int) -> Any:
    return RANDOM.integers(low, high, shape)


def rows_of(loss: Loss, parameters: Tree, batch: Tree) -> Tree:
    """The rows, one plain gradient after the other."""
    size, gradient = len(jax.tree.leaves(batch)[0]), jax.jit(jax.grad(loss))
    found = [gradient(parameters, jax.tree.map(lambda x, i=i: x[i], batch)) for i in range(size)]
    return jax.tree.map(lambda *rows: jnp.stack(rows), *found)


def norms_of(rows: Tree) -> Any:
    return jnp.sqrt(sum(jnp.square(row.reshape(len(row), -1)).sum(1) for row in jax.tree.leaves(rows)))


def total(rows: Tree, weights: Any) -> Tree:
    return jax.tree.map(lambda row: jnp.tensordot(weights, row, 1), rows)


def error(found: Tree, wanted: Tree) -> float:
    """The largest difference on the scale of all that is wanted."""
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, wanted)
    scale = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(wanted)) or 1.0
    differences = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), found, wanted)
    return max(jax.tree.leaves(differences)) / scale


def worst(loss: Loss, parameters: Tree, batch: Tree) -> float:
    """The largest error of any quantity, compiled."""
    parameters, batch = jax.tree.map(jnp.asarray, (parameters, batch))
    rows = rows_of(loss, parameters, batch)
    norms = norms_of(rows)
    # Gradients that are nothing but rounding beside the largest one have no digits to agree in: they stay unclipped.
    clip = max(float(jnp.median(norms)), 1e-3 * float(norms.max())) or 1.0
    weights = jnp.linspace(-1, 2, len(norms))

    @jax.jit
    def found(parameters: Tree, batch: Tree) -> Tree:
        return [
            per_instance(loss)(parameters, batch),
            per_instance(loss, "norms")(parameters, batch),
            per_instance(loss, "clipped_sum", clip_norm=clip)(parameters, batch),
            per_instance(loss, "weighted_sum")(parameters, batch, weights),
        ]

    wanted = [rows, norms, total(rows, clip / jnp.maximum(norms, clip)), total(rows, weights)]
    return max(error(mine, theirs) for mine, theirs in zip(found(parameters, batch), wanted, strict=True))


# --- Whatever vmap(grad) can run -------------------------------------------------------------------------------------


def recurrent(p: Tree, b: Tree) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(p["w"] @ h + p["u"] @ x + p["b"] + p["w"] @ x)
        return h, h

    last, every = lax.scan(step, jnp.zeros(9), b["x"])
    return (last**2).sum() + (every**2).sum()


def stacked(p: Tree, b: Tree) -> Any:
    def layer(h: Any, w: Tree) -> Any:
        return jnp.tanh(w["a"] @ h + w["b"]) + h @ p["c"], None

    return lax.scan(layer, b["x"], p["w"])[0].sum()


def nested(p: Tree, b: Tree) -> Any:
    def layer(h: Any, w: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = jnp.tanh(w @ c + x + p["u"] @ x)
            return c, c

        return lax.scan(step, jnp.zeros(4), h)[1], None

    return (lax.scan(layer, b["x"], p["w"])[0] ** 2).sum()


def started(p: Tree, b: Tree) -> Any:
    """A weight that a scan uses and that is used outside too."""
    h, _ = lax.scan(lambda h, x: (jnp.tanh(p["w"] @ h + x), None), p["w"] @ b["x"][0], b["x"])
    return (h**2).sum()


def squared(x: Any) -> Any:
    return (jnp.tanh(x) ** 2).sum()


def convolved(groups: int) -> Loss:
    def loss(p: Tree, b: Tree) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(
            b["x"][None], p["k"], (2, 1), [(1, 1), (0, 1)], None, (1, 2), numbers, feature_group_count=groups
        )
        return squared(y)

    return loss


@jax.custom_vjp
def doubled(w: Any, x: Any) -> Any:
    return w @ x


doubled.defvjp(lambda w, x: (w @ x, (w, x)), lambda kept, dy: (2 * jnp.outer(dy, kept[1]), kept[0].T @ dy))


@jax.custom_jvp
def halved(x: Any) -> Any:
    return x


halved.defjvp(lambda x, dx: (x[0], 0.5 * dx[0]))

CASES: dict[str, tuple[Loss, Tree, Tree]] = {
    "dense": (lambda p, b: squared(jnp.tanh(b["x"] @ p[0]) @ p[1]), [R(6, 4), R(4, 3)], {"x": R(B, 6)}),
    "positions": (lambda p, b: squared(jnp.tanh(b["x"] @ p[0]) @ p[1]), [R(6, 9), R(9, 8)], {"x": R(B, 2, 6)}),
    "many positions": (lambda p, b: squared(b["x"] @ p["w"]), {"w": R(3, 2)}, {"x": R(B, 12, 3)}),
    "heads": (lambda p, b: squared(jnp.einsum("td,dhk->htk", b["x"], p)), R(6, 3, 9), {"x": R(B, 2, 6)}),
    "as many experts as instances": (
        lambda p, b: squared(jnp.einsum("td,edk->etk", b["x"], p)),
        R(B, 6, 9),
        {"x": R(B, 2, 6)},
    ),
    "axes as long as the batch": (
        lambda p, b: squared(jnp.einsum("td,edk->kte", b["x"], p)),
        R(B, B, B),
        {"x": R(B, B, B)},
    ),
    "lookup": (lambda p, b: squared(p["e"][b["i"]]), {"e": R(9, 4)}, {"i": ids(-9, 9, B, 6)}),
    "lookup of one": (lambda p, b: squared(p["e"][b["i"]]), {"e": R(9, 4)}, {"i": ids(-9, 9, B)}),
    "lookup of columns": (lambda p, b: squared(p["e"][:, b["i"]]), {"e": R(4, 9)}, {"i": ids(0, 9, B, 6)}),
    "lookup, 2-d ids": (lambda p, b: squared(p["e"][b["i"]]), {"e": R(9, 2, 3)}, {"i": ids(0, 9, B, 2, 6)}),
    "lookup outside, dropped": (
        lambda p, b: squared(p["e"].at[b["i"]].get(mode="fill", fill_value=0)),
        {"e": R(9, 4)},
        {"i": ids(-19, 19, B, 8)},
    ),
    "lookup outside, clipped": (
        lambda p, b: squared(p["e"].at[b["i"]].get(mode="clip")),
        {"e": R(9, 4)},
        {"i": ids(-19, 19, B, 8)},
    ),
    "two lookups": (
        lambda p, b: squared(p["e"][b["i"]]) + squared(2 * p["e"][b["j"]]),
        {"e": R(9, 4)},
        {"i": ids(0, 9, B, 6), "j": ids(0, 9, B, 3)},
    ),
    "tied table": (
        lambda p, b: squared(jnp.tanh(p["e"][b["i"]]) @ p["e"].T),
        {"e": R(40, 12)},
        {"i": ids(0, 9, B, 3)},
    ),
    "tied, turned": (lambda p, b: squared(jnp.tanh(b["x"] @ p["w"]) @ p["w"].T), {"w": R(9, 9)}, {"x": R(B, 9)}),
    "used five times": (
        lambda p, b: squared(p["w"] @ jnp.tanh(p["w"] @ jnp.tanh(p["w"] @ jnp.tanh(p["w"].T @ (p["w"] @ b["x"]))))),
        {"w": R(20, 20)},
        {"x": R(B, 20)},
    ),
    "indexed": (
        lambda p, b: squared(p["w"][1] @ b["x"]) + 2 * squared(p["w"][-1] @ b["x"]),
        {"w": R(3, 6, 6)},
        {"x": R(B, 6)},
    ),
    "split": (
        lambda p, b: sum((k + 1) * squared(w @ b["x"]) for k, w in enumerate(jnp.split(p["w"], 3))),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "overlapping slices": (
        lambda p, b: squared(p["w"][:4] @ b["x"]) + squared(p["w"][2:] @ b["x"]),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "scaled, negated": (lambda p, b: squared(-(3.0 * p["w"] / 2.0) @ b["x"]), {"w": R(6, 6)}, {"x": R(B, 6)}),
    "low rank": (
        lambda p, b: squared((p["w"] + 2.0 * p["a"] @ p["b"]) @ b["x"]),
        {"w": R(9, 8), "a": R(9, 2), "b": R(2, 8)},
        {"x": R(B, 8)},
    ),
    "weight norm": (
        lambda p, b: squared((p["w"] / jnp.linalg.norm(p["w"]) * p["g"]) @ b["x"]),
        {"w": R(9, 8), "g": R()},
        {"x": R(B, 8)},
    ),
    "masked": (lambda p, b: squared((p["w"] * (p["w"] > 0)) @ b["x"]), {"w": R(6, 6)}, {"x": R(B, 6)}),
    "unused": (lambda p, b: squared(p["w"] @ b["x"]), {"w": R(6, 6), "v": R(3)}, {"x": R(B, 6)}),
    "checkpoint": (
        lambda p, b: jax.checkpoint(lambda w, x: squared(w @ jnp.tanh(w @ x)))(p["w"], b["x"]),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "jit in jit": (
        lambda p, b: jax.jit(lambda w, x: jax.jit(squared)(w @ x))(p["w"], b["x"]),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "custom_vjp": (lambda p, b: squared(doubled(p["w"], b["x"])), {"w": R(6, 6)}, {"x": R(B, 6)}),
    "custom_jvp": (lambda p, b: squared(halved(p["w"] @ b["x"])), {"w": R(6, 6)}, {"x": R(B, 6)}),
    "relu, gelu, softmax": (
        lambda p, b: jax.nn.softmax(jax.nn.gelu(p["v"] @ jax.nn.relu(p["w"] @ b["x"])))[0],
        {"w": R(6, 6), "v": R(4, 6)},
        {"x": R(B, 6)},
    ),
    "cond": (
        lambda p, b: lax.cond(b["x"].sum() > 0, lambda: squared(p["w"] @ b["x"]), lambda: (p["w"] @ b["x"]).sum()),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "fori_loop": (
        lambda p, b: squared(lax.fori_loop(0, 3, lambda _, h: jnp.tanh(p["w"] @ h), b["x"])),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "while_loop beside": (
        lambda p, b: squared(p["w"] @ b["x"]) * lax.while_loop(lambda n: n < 3.0, lambda n: n + 1.0, 0.0),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "gradient inside": (
        lambda p, b: squared(jax.grad(lambda x: squared(p["w"] @ x))(b["x"])),
        {"w": R(6, 6)},
        {"x": R(B, 6)},
    ),
    "vmap inside": (
        lambda p, b: jax.vmap(lambda w, x: squared(w @ x))(p["w"], b["x"]).sum(),
        {"w": R(3, 6, 6)},
        {"x": R(B, 3, 6)},
    ),
    "recurrent": (recurrent, {"w": R(9, 9), "u": R(9, 9), "b": R(9)}, {"x": R(B, 3, 9)}),
    "recurrent, long": (recurrent, {"w": R(9, 9), "u": R(9, 9), "b": R(9)}, {"x": R(B, 11, 9)}),
    "recurrent, used outside": (started, {"w": R(9, 9)}, {"x": R(B, 3, 9)}),
    "stacked layers": (stacked, {"w": {"a": R(3, 4, 4), "b": R(3, 4)}, "c": R(4, 4)}, {"x": R(B, 4)}),
    "as many layers as instances": (
        stacked,
        {"w": {"a": R(B, B, B), "b": R(B, B)}, "c": R(B, B)},
        {"x": R(B, B)},
    ),
    "scan in a scan": (nested, {"w": R(3, 4, 4), "u": R(4, 4)}, {"x": R(B, 6, 4)}),
    "lookup in a scan": (
        lambda p, b: squared(lax.scan(lambda h, i: (jnp.tanh(h + p["e"][i]), None), jnp.zeros(3), b["i"])[0]),
        {"e": R(9, 3)},
        {"i": ids(0, 9, B, 8)},
    ),
    "several lookups in a scan": (
        lambda p, b: squared(lax.scan(lambda h, i: (jnp.tanh(h + p["e"][i]), None), jnp.zeros((2, 3)), b["i"])[0]),
        {"e": R(9, 3)},
        {"i": ids(0, 9, B, 4, 2)},
    ),
    "stacked tables": (
        lambda p, b: squared(lax.scan(lambda h, e: (jnp.tanh(h + e[b["i"]]), None), jnp.zeros((8, 3)), p["e"])[0]),
        {"e": R(4, 9, 3)},
        {"i": ids(0, 9, B, 8)},
    ),
    "convolution": (convolved(1), {"k": R(3, 2, 4, 8)}, {"x": R(B, 9, 8, 4)}),
    "grouped convolution": (convolved(2), {"k": R(3, 2, 2, 8)}, {"x": R(B, 9, 8, 4)}),
    "depthwise convolution": (convolved(4), {"k": R(3, 2, 1, 8)}, {"x": R(B, 9, 8, 4)}),
    "transposed convolution": (
        lambda p, b: squared(
            lax.conv_transpose(b["x"][None], p["k"], (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))
        ),
        {"k": R(3, 4, 8)},
        {"x": R(B, 9, 4)},
    ),
    "3-d convolution": (
        lambda p, b: squared(lax.conv(b["x"][None], p["k"], (2, 2, 2), "VALID")),
        {"k": R(8, 4, 2, 2, 2)},
        {"x": R(B, 4, 3, 2, 2)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_agree_with_the_loop(name: str) -> None:
    assert worst(*CASES[name]) < 1e-10


@pytest.mark.parametrize("name", ["dense", "tied table", "recurrent", "as many layers as instances"])
def test_a_batch_of_one(name: str) -> None:
    loss, parameters, batch = CASES[name]

    assert worst(loss, parameters, jax.tree.map(lambda x: x[:1], batch)) < 1e-10


LARGE: dict[str, tuple[Loss, Tree, Tree]] = {
    "dense": (lambda p, b: squared(p["w"] @ b["x"]), {"w": R(60, 50)}, {"x": R(B, 50)}),
    "lookup": (lambda p, b: squared(p["e"][b["i"]]), {"e": R(1000, 4)}, {"i": ids(0, 9, B, 6)}),
    "tied table": (lambda p, b: squared(p["e"][b["i"]] @ p["e"].T), {"e": R(400, 30)}, {"i": ids(0, 9, B, 3)}),
    "recurrent": (
        lambda p, b: squared(lax.scan(lambda h, x: (jnp.tanh(p["w"] @ h + x), None), jnp.zeros(60), b["x"])[0]),
        {"w": R(60, 60)},
        {"x": R(B, 4, 60)},
    ),
    "stacked layers": (
        lambda p, b: squared(lax.scan(lambda h, w: (jnp.tanh(w @ h), None), b["x"], p["w"])[0]),
        {"w": R(4, 60, 60)},
        {"x": R(B, 60)},
    ),
    "low rank": (
        lambda p, b: squared((p["a"] @ p["b"]) @ b["x"]),
        {"a": R(60, 50), "b": R(50, 60)},
        {"x": R(B, 60)},
    ),
    "convolution": (
        lambda p, b: squared(lax.conv(b["x"][None], p["k"], (1, 1), "VALID")),
        {"k": R(30, 30, 3, 3)},
        {"x": R(B, 30, 4, 4)},
    ),
    "gated experts": (
        lambda p, b: squared(b["g"] @ jnp.einsum("eh,eho->eo", b["x"], p["w"])),
        {"w": R(8, 30, 20)},
        {"x": R(B, 8, 30), "g": R(B, 8)},
    ),
    "grouped convolution": (
        lambda p, b: squared(lax.conv_general_dilated(b["x"][None], p["k"], (1, 1), "VALID", feature_group_count=2)),
        {"k": R(60, 30, 3, 3)},
        {"x": R(B, 60, 4, 4)},
    ),
    "transposed convolution": (
        lambda p, b: squared(lax.conv_transpose(b["x"][None], p["k"], (2, 2), "SAME")),
        {"k": R(2, 2, 60, 50)},
        {"x": R(B, 2, 1, 60)},
    ),
}


@pytest.mark.parametrize("quantity", ["norms", "clipped_sum"])
@pytest.mark.parametrize("name", LARGE)
def test_norms_and_clipped_sums_make_nothing_as_large_as_the_rows(name: str, quantity: str) -> None:
    loss, parameters, batch = LARGE[name]
    rows = B * sum(x.size for x in jax.tree.leaves(parameters))

    memory = jax.jit(per_instance(loss, quantity)).lower(parameters, batch).compile().memory_analysis()

    assert worst(loss, parameters, batch) < 1e-10
    assert memory.temp_size_in_bytes < 8 * rows


# --- Digits ----------------------------------------------------------------------------------------------------------


def cancelling_table(p: Tree, b: Tree) -> Any:
    """Both uses of the table contribute the same, with opposite signs, but for a share of `eps`."""
    e = p["e"]
    out = (e @ b["x"])[b["i"][0]]
    return out - (e[b["i"]][0] * b["x"]).sum() * (1 - b["eps"])


def cancelling_positions(p: Tree, b: Tree) -> Any:
    x = jnp.stack([b["x"], b["x"] * (1 - b["eps"])])
    return ((x @ p["e"].T) * jnp.asarray([1, -1], x.dtype)[:, None]).sum()


def cancelling_steps(p: Tree, b: Tree) -> Any:
    x = jnp.stack([b["x"], b["x"] * (1 - b["eps"])])
    signs = jnp.asarray([1, -1], x.dtype)
    return lax.scan(lambda h, y: (h + (p["e"] @ y[0]).sum() * y[1], None), jnp.zeros((), x.dtype), (x, signs))[0]


@pytest.mark.parametrize("share", [1e-1, 1e-2, 1e-4, 0.0])
@pytest.mark.parametrize("loss", [cancelling_table, cancelling_positions, cancelling_steps])
def test_norms_keep_their_digits_where_contributions_cancel(loss: Loss, share: float) -> None:
    shares = np.full(B, share, np.float32)
    shares[0] = 1  # an instance that does not cancel
    parameters = {"e": R(40, 16).astype(np.float32)}
    batch = {"x": R(B, 16).astype(np.float32), "i": ids(0, 40, B, 1), "eps": shares}
    rows = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(parameters, batch)
    wanted = np.sqrt(np.square(np.asarray(rows["e"], np.float64)).sum((1, 2)))
    found = np.asarray(jax.jit(per_instance(loss, "norms"))(parameters, batch))

    assert found.dtype == np.float32
    assert np.all(np.abs(found - wanted) <= 2e-3 * wanted)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_zero_gradients_have_zero_norms_and_finite_sums(quantity: str) -> None:
    weights = (np.ones(B),) if quantity == "weighted_sum" else ()
    found = per_instance(lambda p, b: squared(b["x"] @ p["w"]), quantity)(
        {"w": R(9, 9)}, {"x": np.zeros((B, 3, 9))}, *weights
    )

    assert all(not np.any(x) for x in jax.tree.leaves(found))  # not a number would be "any"


def test_what_is_not_a_number_stays_with_its_instance() -> None:
    batch = {"x": R(B, 2, 9)}
    batch["x"][1] = np.nan
    norms = per_instance(lambda p, b: squared(b["x"] @ p["w"]), "norms")({"w": R(9, 9)}, batch)

    assert np.isnan(norms).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_other_dtypes_agree_with_vmap(dtype: Any) -> None:
    def loss(p: Tree, b: Tree) -> Any:
        return squared(jnp.tanh(b["x"] @ p["w"]) @ p["w"].T)

    parameters, batch = jax.tree.map(lambda x: jnp.asarray(x / 3, dtype), ({"w": R(9, 9)}, {"x": R(B, 2, 9)}))
    wanted = jax.vmap(jax.grad(loss), (None, 0))(parameters, batch)
    found, norms = per_instance(loss)(parameters, batch), per_instance(loss, "norms")(parameters, batch)
    tolerance = 20 * float(jnp.finfo(dtype).eps)

    assert found["w"].dtype == dtype
    assert error(found, wanted) < tolerance
    assert error(norms, norms_of(jax.tree.map(lambda x: x.astype(jnp.float32), wanted))) < tolerance


# --- Transformations, memory, arguments ------------------------------------------------------------------------------


def test_uncompiled_calls_read_what_the_loss_captured_anew() -> None:
    scale = [1.0]
    norms = per_instance(lambda p, b: scale[0] * squared(p["w"] @ b["x"]), "norms")
    parameters, batch = {"w": R(6, 6)}, {"x": R(B, 6)}
    before = norms(parameters, batch)
    scale[0] = 2.0

    assert error(norms(parameters, batch), 2 * before) < 1e-12


def test_traced_values_that_the_loss_captured_are_followed_by_jit_and_grad() -> None:
    parameters, batch = {"w": R(6, 6)}, {"x": R(B, 6)}

    def summed(scale: Any) -> Any:
        return per_instance(lambda p, b: scale * squared(p["w"] @ b["x"]), "norms")(parameters, batch).sum()

    assert float(jax.jit(jax.grad(summed))(3.0)) == pytest.approx(float(summed(1.0)))


def test_functions_may_be_vectorised() -> None:
    loss, parameters, batch = CASES["tied table"]
    several = jnp.stack([parameters["e"], 2 * parameters["e"]])
    norms = jax.jit(per_instance(loss, "norms"))
    found = jax.vmap(lambda e: norms({"e": e}, batch))(several)

    assert error(found[1], norms({"e": several[1]}, batch)) < 1e-12


def test_reused_memory_takes_several_batch_sizes_in_turn() -> None:
    loss, parameters, batch = CASES["dense"]
    reused = per_instance(loss, reuse=True)
    for size in (5, 3, 3, 5):
        part = jax.tree.map(lambda x, size=size: x[:size], batch)
        assert error(reused(parameters, part), rows_of(loss, parameters, part)) < 1e-12


def test_fresh_results_stay_and_reused_ones_become_invalid() -> None:
    loss, parameters, batch = CASES["dense"]
    fresh, reused = jax.jit(per_instance(loss)), per_instance(loss, reuse=True)
    first, other = fresh(parameters, batch), reused(parameters, batch)
    fresh(parameters, batch), reused(parameters, batch)

    assert not first[0].is_deleted()
    assert other[0].is_deleted()


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_an_empty_batch_has_empty_rows_and_zero_sums(quantity: str) -> None:
    weights = (np.ones(0),) if quantity == "weighted_sum" else ()
    found = per_instance(lambda p, b: squared(p["w"] @ b["x"]), quantity)({"w": R(6, 6)}, {"x": R(0, 6)}, *weights)
    shape = {"gradients": (0, 6, 6), "norms": (0,)}.get(quantity, (6, 6))

    assert [x.shape for x in jax.tree.leaves(found)] == [shape]
    assert not np.any(jax.tree.leaves(found)[0])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="quantity"):
        per_instance(squared, "rows")
    with pytest.raises(ValueError, match="clip_norm"):
        per_instance(squared, "clipped_sum", clip_norm=0.0)
    with pytest.raises(ValueError, match="reuse"):
        per_instance(squared, "norms", reuse=True)
    with pytest.raises(ValueError, match="first axis"):
        per_instance(lambda p, b: squared(p), "norms")({"w": R(2)}, {"x": R(3, 2), "y": R(4)})
    with pytest.raises(ValueError, match="weights"):
        per_instance(lambda p, b: squared(p["w"]), "weighted_sum")({"w": R(2)}, {"x": R(3, 2)}, R(4))


def test_branches_on_values_are_refused_in_the_words_of_jax() -> None:
    with pytest.raises(jax.errors.TracerBoolConversionError):
        per_instance(lambda p, b: squared(p["w"] @ b["x"]) if b["x"][0] > 0 else 0.0)({"w": R(6, 6)}, {"x": R(B, 6)})


# --- Random compositions ---------------------------------------------------------------------------------------------

WIDTH = 4
KINDS: dict[str, tuple[Callable[[Any, Any, Any], Any], Callable[[], Any]]] = {
    "dense": (lambda w, h, i: jnp.tanh(h @ w), lambda: R(WIDTH, WIDTH)),
    "turned": (lambda w, h, i: jnp.tanh(h @ w.T), lambda: R(WIDTH, WIDTH)),
    "twice": (lambda w, h, i: jnp.tanh(jnp.tanh(h @ w) @ w.T), lambda: R(WIDTH, WIDTH)),
    "heads": (lambda w, h, i: jnp.einsum("td,dhk->thk", h, w).reshape(h.shape), lambda: R(WIDTH, 2, WIDTH // 2)),
    "lookup": (lambda w, h, i: h + w[i], lambda: R(7, WIDTH)),
    "tied": (lambda w, h, i: jax.nn.softmax((h + w[i]) @ w.T) @ w, lambda: R(7, WIDTH)),
    "scale": (lambda w, h, i: h * w, lambda: R(WIDTH)),
    "layer norm": (lambda w, h, i: (h - h.mean(-1, keepdims=True)) / (1 + h.std()) * w, lambda: R(WIDTH)),
    "packed": (lambda w, h, i: h @ w[:WIDTH] + jnp.tanh(h) @ w[WIDTH:], lambda: R(2 * WIDTH, WIDTH)),
    "layers": (lambda w, h, i: lax.scan(lambda h, v: (jnp.tanh(h @ v), None), h, w)[0], lambda: R(3, WIDTH, WIDTH)),
    "recurrent": (
        lambda w, h, i: lax.scan(lambda c, x: (jnp.tanh(w @ c + x),) * 2, jnp.zeros(WIDTH), h)[1],
        lambda: R(WIDTH, WIDTH),
    ),
    "convolution": (
        lambda w, h, i: lax.conv_general_dilated(h[None], w, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"))[0],
        lambda: R(3, WIDTH, WIDTH),
    ),
    "checkpoint": (lambda w, h, i: jax.checkpoint(lambda w, h: jnp.tanh(h @ w))(w, h), lambda: R(WIDTH, WIDTH)),
}


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 5))
def test_random_compositions_agree_with_the_loop(kinds: list[str], size: int, length: int) -> None:
    def loss(p: Tree, b: Tree) -> Any:
        h = b["x"]
        for kind, w in zip(kinds, p, strict=True):
            h = KINDS[kind][0](w, h, b["i"])
        return squared(h)

    parameters = [KINDS[kind][1]() / 2 for kind in kinds]

    assert worst(loss, parameters, {"x": R(size, length, WIDTH), "i": ids(0, 7, size, length)}) < 1e-9


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    """Arguments of a convolution, and the shapes of input and kernel."""
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, B]))
    each = [st.integers(1, 2)] * rank
    options = {
        "window_strides": draw(st.tuples(*each)),
        "padding": draw(st.tuples(*[st.tuples(st.integers(-1, 2), st.integers(0, 2))] * rank)),
        "lhs_dilation": draw(st.tuples(*each)),
        "rhs_dilation": draw(st.tuples(*each)),
        "feature_group_count": groups,
    }
    space, kernel = draw(st.tuples(*[st.integers(5, 6)] * rank)), draw(st.tuples(*each))
    names = draw(st.permutations("NCDHW"[: 2 + rank]))
    others = draw(st.permutations("OIDHW"[: 2 + rank]))
    options["dimension_numbers"] = tuple(map("".join, (names, others, names)))
    sizes = {"N": 1, "C": 2 * groups, "I": 2, "O": 3 * groups}
    along = dict(zip("DHW", space, strict=False)), dict(zip("DHW", kernel, strict=False))
    return (
        options,
        tuple((sizes | along[0])[name] for name in names),
        tuple((sizes | along[1])[name] for name in others),
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(convolutions())
def test_random_convolutions_agree_with_the_loop(
    drawn: tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]],
) -> None:
    options, x, kernel = drawn

    def loss(p: Tree, b: Tree) -> Any:
        return squared(lax.conv_general_dilated(b["x"], p, **options))

    assert worst(loss, R(*kernel), {"x": R(B, *x)}) < 1e-10


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.permutations("tde"), st.permutations("dek"), st.sampled_from(["tk", "kt", "k", "t", "dk", "etk", "ke"]))
def test_random_einsums_agree_with_the_loop(inputs: list[str], weights: list[str], keep: str) -> None:
    sizes = {"t": 3, "d": 4, "e": B, "k": 2}
    formula = f"{''.join(inputs)},{''.join(weights)}->{keep}"
    batch = {"x": R(B, *(sizes[c] for c in inputs))}

    assert worst(lambda p, b: squared(jnp.einsum(formula, b["x"], p)), R(*(sizes[c] for c in weights)), batch) < 1e-10
