"""Per-instance gradients of any JAX function, their norms and their clipped sums, near the price of one gradient.

The loss of one instance is differentiated and vectorised first (`vmap(grad(loss))`), and the program that comes out
(its jaxpr) is read. Where a parameter's rows (one gradient for every instance) leave it as a batched `dot_general`, a
grouped convolution or a `scatter-add` into zeros, the operation is not run: its operands are kept, the factors of the
rows. With factors a_t and b_t of T positions (of a sequence, of an image, of the steps of a `scan`, of several uses of
one weight), instance i's row is sum_t a_it b_it', and

- rows are one product each, in the layout of the parameter; for T = 1 a multiplication;
- norms are |a||b| for T = 1, and otherwise sum_ts (a_t.a_s)(b_t.b_s), wherever that is cheaper than the row
  (Goodfellow 2015, arXiv 1510.01799; Rochette et al. 2019, arXiv 1912.06015; "ghost" norms: Li et al. 2022,
  arXiv 2110.05679); the cotangents of a table's entry that is looked up repeatedly are added up first;
- a clipped sum scales one factor and multiplies once for the whole batch, without a second backward pass
  ("book-keeping": Bu et al. 2022, arXiv 2210.00038);
- a weighted sum is one plain gradient of the weighted loss (which takes a loss whose gradients are derivatives: a
  `custom_vjp` whose backward pass clips is none).

Transpositions, reshapes, scalings, sums, slices, concatenations and products with a matrix (LoRA) between such an
operation and the parameter are followed, into `jit`, `checkpoint` and `scan`: packed, stacked, shared, transposed and
multiplied weights are covered, and weights that a `scan` uses in every step (recurrent networks) or takes one of in
every step (layers with stacked parameters).
What the reader does not know, `cond` and `while_loop` among it, is run as it is: never wrong, only as slow as `vmap`.

**Digits.** Products of factors lose digits where the positions' contributions cancel. Their sum of norms,
sum_t |a_t||b_t|, bounds the loss: the squared norm is off by some epsilon times its square. An instance whose norm is
below epsilon^(1/4) of that sum (0.019 in float32) gets its row, and the norm of that, under `lax.cond`: others do not
pay for it. Squares of gradients must stay in the range of their dtype (half precision: of float32).

**Compilation.** The functions returned take part in `jit` and further transformations, and should be compiled by the
caller: uncompiled, every call reads the program again. What the loss captures is then frozen as `jax.jit` freezes it.
With `reuse` the function is compiled here, and frozen likewise: pass what changes in the parameters or the batch.

**Limits.** Results are exact derivatives as `vmap(grad)` gives them, up to rounding. What reaches a parameter through
elementwise operations (weight norm, masks) is as slow as `vmap`. Factors of a `scan` live for all its steps until the
row is made, those of a convolution are what each kernel sees (batch x positions x kernel). A transformation of these
functions by `vmap` runs both branches of the `lax.cond`. Norms of gradients that are zero have no derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex
from jax.sharding import SingleDeviceSharding

Array = Any
Tree = Any
Ops = tuple[tuple[Any, ...], ...]

QUANTITIES = ("gradients", "norms", "clipped_sum", "weighted_sum")


def per_instance(
    loss: Callable[[Tree, Tree], Array],
    quantity: str = "gradients",
    *,
    clip_norm: float = 1.0,
    reuse: bool = False,
) -> Callable[..., Tree]:
    """Return a function that computes a quantity of the per-instance gradients of `loss`; compile it with `jax.jit`.

    Args:
        loss: `loss(parameters, instance)`, the loss of one instance, a scalar. Both are trees of arrays; the instance
            comes without the batch's first axis.
        quantity: `gradients` (rows: the tree of the parameters, every leaf (B, *shape)), `norms` ((B,), the L2 norm of
            each instance's whole gradient), `clipped_sum` (sum_i min(1, clip_norm / norm_i) gradient_i, the tree of
            the parameters) or `weighted_sum` (sum_i weights_i gradient_i).
        clip_norm: of `clipped_sum`.
        reuse: of `gradients`: the function is compiled here, and a call donates the memory of the last call's result,
            which becomes invalid. Saves the price of fresh memory, which for large rows is most of the time. Such a
            function takes no part in transformations.

    Returns:
        A function of `(parameters, batch)`, for `weighted_sum` of `(parameters, batch, weights)`; the batch has the
        instance axis B first in every leaf, weights are (B,). Results keep the parameters' dtype, but
        norms have float32 at least.

    Raises:
        ValueError: for an unknown quantity, a `clip_norm` that is not positive, or `reuse` of anything but gradients;
            from the function, if the leaves of the batch differ in their first axis. What `vmap(grad(loss))` refuses,
            it refuses in JAX's own words.
    """
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(QUANTITIES)}, not {quantity!r}")
    if not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive, not {clip_norm}")
    if reuse and quantity != "gradients":
        raise ValueError("only gradients have memory to reuse")
    if quantity == "weighted_sum":
        return partial(_weighted_sum, loss)
    if quantity == "norms":
        return partial(_norms, loss)
    if quantity == "clipped_sum":
        return partial(_clipped_sum, loss, clip_norm)
    return _Reused(partial(_gradients, loss)) if reuse else partial(_gradients, loss)


# --- Quantities ------------------------------------------------------------------------------------------------------


def _gradients(loss: Callable[[Tree, Tree], Array], parameters: Tree, batch: Tree) -> Tree:
    """The rows, every leaf (B, *shape)."""
    if not _size(batch):
        return jax.tree.map(lambda x: jnp.zeros((0, *jnp.shape(x)), jnp.result_type(x)), parameters)
    outputs, structure = _read_gradients(loss, parameters, batch)
    return structure.unflatten([_value(x) for x in outputs])


def _norms(loss: Callable[[Tree, Tree], Array], parameters: Tree, batch: Tree) -> Array:
    """The L2 norm of every instance's whole gradient, (B,)."""
    if not _size(batch):
        return jnp.zeros(0, jnp.result_type(jnp.float32, *jax.tree.leaves(parameters)))
    outputs, _ = _read_gradients(loss, parameters, batch)
    return _lengths([group for x in outputs for group in _groups(x)], _dtype(outputs))


def _clipped_sum(loss: Callable[[Tree, Tree], Array], clip_norm: float, parameters: Tree, batch: Tree) -> Tree:
    """The sum of the gradients, those longer than `clip_norm` scaled down to it."""
    if not _size(batch):
        return jax.tree.map(jnp.zeros_like, parameters)
    outputs, structure = _read_gradients(loss, parameters, batch)
    leaves = [_groups(x) for x in outputs]
    norms = _lengths([group for groups in leaves for group in groups], _dtype(outputs))
    factors = clip_norm / jnp.maximum(norms, clip_norm)
    return structure.unflatten([reduce(jnp.add, [group.weighted(factors) for group in groups]) for groups in leaves])


def _weighted_sum(loss: Callable[[Tree, Tree], Array], parameters: Tree, batch: Tree, weights: Array) -> Tree:
    """One plain gradient of the weighted loss of the whole batch."""
    size = _size(batch)
    if jnp.shape(weights) != (size,):
        raise ValueError(f"weights must have shape ({size},), not {jnp.shape(weights)}")
    if not size:
        return jax.tree.map(jnp.zeros_like, parameters)

    def weighted(parameters: Tree) -> Array:
        losses = jax.vmap(loss, in_axes=(None, 0))(parameters, batch)
        return jnp.vdot(lax.convert_element_type(weights, losses.dtype), losses)

    return jax.grad(weighted)(parameters)


class _Reused:
    """Rows written into the memory of the last ones."""

    def __init__(self, gradients: Callable[[Tree, Tree], Tree]) -> None:
        self.key: Any = None
        self.kept: Tree = None
        self.compiled = jax.jit(
            lambda kept, parameters, batch: gradients(parameters, batch), donate_argnums=0, keep_unused=True
        )

    def __call__(self, parameters: Tree, batch: Tree) -> Tree:
        size = _size(batch)
        leaves, structure = jax.tree.flatten(parameters)
        key = (size, structure, *[(np.shape(x), getattr(x, "dtype", None)) for x in leaves])
        kept = self.kept if key == self.key else None
        if kept is None:
            kept = jax.tree.map(lambda x: jnp.zeros((size, *np.shape(x)), jnp.result_type(x)), parameters)
            # Left without a device, they would make the next call, which is given results on one, compile again.
            committed = {x.sharding for x in jax.tree.leaves((parameters, batch)) if getattr(x, "committed", False)}
            if len(committed) == 1 and isinstance(place := committed.pop(), SingleDeviceSharding):
                kept = jax.device_put(kept, place)
        self.key = None  # what is donated is lost, whatever happens
        self.kept = self.compiled(kept, parameters, batch)
        self.key = key
        return self.kept


def _size(batch: Tree) -> int:
    """The batch size."""
    sizes = {shape[0] if (shape := np.shape(leaf)) else -1 for leaf in jax.tree.leaves(batch)}
    if len(sizes) != 1 or -1 in sizes:
        raise ValueError(f"the leaves of the batch must have the same first axis, not {sizes}")
    return int(sizes.pop())


def _read_gradients(loss: Callable[[Tree, Tree], Array], parameters: Tree, batch: Tree) -> tuple[list[Any], Any]:
    """Rows of every parameter, arrays or `_Rows`, and the structure of the parameters."""
    size = _size(batch)
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    closed = jax.make_jaxpr(gradients)(parameters, batch)
    flat, structure = jax.tree.leaves((parameters, batch)), jax.tree.structure(parameters)
    outputs = _read(closed.jaxpr, closed.consts, flat, [True] * structure.num_leaves, size)
    # Rows whose instance axis is not the one that was followed (another axis of the same size) are plain arrays.
    return [_value(x) if isinstance(x, _Rows) and x.axis != 0 else x for x in outputs], structure


def _dtype(outputs: Sequence[Any]) -> Any:
    """The widest dtype among the rows, float32 at least."""
    return jnp.result_type(jnp.float32, *(x.dtype for x in outputs))


def _lengths(groups: Sequence[_Group], dtype: Any) -> Array:
    """The norm of every instance's whole gradient, (B,), from norms of its parts."""
    squares, checked = [], []
    for group in groups:
        square, reach = group.squares()
        if reach is None:
            squares.append(square)
        else:
            checked.append((group, square, reach))
    if checked:
        found = jnp.stack([square for _, square, _ in checked], 1)
        reach = jnp.stack([reach for _, _, reach in checked], 1)
        doubt = ~(found > jnp.finfo(found.dtype).eps ** 0.5 * jnp.square(reach)) & (reach != 0)
        exact = partial(_exact_squares, [group for group, _, _ in checked])
        squares.append(lax.cond(doubt.any(), exact, lambda found, _: found, found, doubt.any(1)).sum(1))
    return jnp.sqrt(reduce(jnp.add, squares)).astype(dtype)


def _exact_squares(groups: Sequence[_Group], found: Array, doubt: Array) -> Array:
    """Squared norms (B, groups), those of the instances in doubt from their rows, one instance at a time."""

    def one(instance: Any) -> Array:
        found, doubt, factors = instance

        def exact() -> Array:
            rows = [group.of_one(mine).rows() for group, mine in zip(groups, factors, strict=True)]
            return jnp.stack([_squares_of_rows(x)[0] for x in rows])

        return lax.cond(doubt, exact, lambda: found)

    return lax.map(one, (found, doubt, [group.factors() for group in groups]))


def _squares_of_rows(rows: Array) -> Array:
    """Squared norms (B,), in float32 at least."""
    return jnp.square(_wide(rows).reshape(len(rows), -1)).sum(1)


def _wide(x: Array) -> Array:
    """Half precision in float32, others as they are."""
    return x.astype(jnp.float32) if jnp.finfo(x.dtype).bits < 32 else x


# --- Rows from factors -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """Rows sum_t a_t b_t' of every group, (B, G, m, n), then rearranged by `ops`.

    Attributes:
        a: (B, G, T, m).
        b: (B, G, T, n).
        ops: what makes one row from (G, m, n), without the instance axis: see `_apply`.
        precision: of the product, as in `dot_general`.
        whole: takes weights (B,) and returns the weighted sum of the rows, if there is a faster way than by factors.
    """

    a: Array
    b: Array
    ops: Ops
    precision: Any = None
    whole: Callable[[Array], Array] | None = None

    @property
    def core(self) -> tuple[int, ...]:
        return (self.a.shape[1], self.a.shape[3], self.b.shape[3])

    @property
    def arrays(self) -> tuple[Array, Array]:
        return self.a, self.b

    def having(self, a: Array, b: Array) -> _Product:
        return replace(self, a=a, b=b, whole=None)

    def then(self, op: tuple[Any, ...]) -> _Product:
        whole = self.whole
        return replace(self, ops=(*self.ops, op), whole=whole and (lambda x: _apply(jnp, (op,), whole(x))))

    def scaled(self, factor: Array) -> _Product:
        return self.having(self.a, self.b * factor.astype(self.b.dtype))

    def turned(self) -> _Product:
        """The same rows with a and b exchanged."""
        ops = (("transpose", (0, 2, 1)), *self.ops)
        if self.ops and self.ops[0] == ("transpose", (0, 2, 1)):
            ops = self.ops[1:]
        return replace(self, a=self.b, b=self.a, ops=ops)  # what `whole` returns is the same

    def laid(self) -> tuple[Array, Array, Ops]:
        """Both factors in the layout of the row, (B, T, *row), each of size 1 along the other's axes, as far as the
        operations keep these axes apart; and the operations that are left."""
        a, b = jnp.moveaxis(self.a, 2, 1)[..., None], jnp.moveaxis(self.b, 2, 1)[:, :, :, None]
        for number, op in enumerate(self.ops):
            if op[0] == "transpose":
                order = (0, 1, *(2 + d for d in op[1]))
                a, b = a.transpose(order), b.transpose(order)
            elif op[0] == "reshape" and (shapes := _apart(a.shape[2:], b.shape[2:], op[1])):
                a, b = [x.reshape(*x.shape[:2], *shape) for x, shape in zip((a, b), shapes, strict=True)]
            else:
                return a, b, self.ops[number:]
        return a, b, ()

    def rows(self) -> Array:
        """XLA does not write a product transposed: the operands come in the order that makes it the row as it is."""
        a, b, rest = self.laid()
        if a.shape[1] == 1:
            return _apply_all(rest, a[:, 0] * b[:, 0])
        shape, kinds = np.broadcast_shapes(a.shape[2:], b.shape[2:]), _kinds(a, b)
        straight, turned = [sorted(kinds, key=order.index) for order in ("gab", "gba")]
        if kinds not in (straight, turned):
            return _apply_all(self.ops, _batched(self.a, self.b, self.precision))
        x, y = (a, b) if kinds == straight else (b, a)
        x, y = [jnp.moveaxis(z.reshape(*z.shape[:2], self.a.shape[1], -1), 1, 2) for z in (x, y)]
        product = _batched(x, y, self.precision).reshape(len(x), *shape)
        return _apply_all(rest, product)

    def weighted(self, weights: Array) -> Array:
        if self.whole is not None:
            return self.whole(weights)
        scaled = self.weighted_by(weights)
        a, b, rest = scaled.laid()
        kinds = _kinds(a, b)
        if "g" not in kinds and kinds == sorted(kinds, reverse=True):
            return _apply(
                jnp, rest, _total(b, a, self.precision).reshape(np.broadcast_shapes(a.shape[2:], b.shape[2:]))
            )
        a, b = scaled.a, scaled.b
        if a.shape[1] == 1:
            return _apply(jnp, self.ops, _total(a[:, 0], b[:, 0], self.precision)[None])
        a, b = [x.swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[3]) for x in (a, b)]  # (G, B T, m), (G, B T, n)
        return _apply(jnp, self.ops, _batched(a[None], b[None], self.precision)[0])

    def weighted_by(self, weights: Array) -> _Product:
        """Every instance's row times its weight: the shorter factor is scaled."""
        weights = weights[:, None, None, None]
        if self.a.size < self.b.size:
            return self.having(self.a * weights.astype(self.a.dtype), self.b)
        return self.having(self.a, self.b * weights.astype(self.b.dtype))


def _total(a: Array, b: Array, precision: Any) -> Array:
    """The sum over instances and positions of products of (B, T, m) and (B, T, n), whatever the shape after T."""
    a, b = a.reshape(-1, math.prod(a.shape[2:])), b.reshape(-1, math.prod(b.shape[2:]))
    return jnp.matmul(a.T, b, precision=precision)


def _batched(a: Array, b: Array, precision: Any) -> Array:
    """(B, G, T, m), (B, G, T, n) -> (B, G, m, n)."""
    if a.shape[1] == 1:
        return lax.dot_general(a[:, 0], b[:, 0], (((1,), (1,)), ((0,), (0,))), precision)[:, None]
    return lax.dot_general(a, b, (((2,), (2,)), ((0, 1), (0, 1))), precision)


def _kinds(a: Array, b: Array) -> list[str]:
    """Of every axis of a row that is longer than 1: which factor varies along it, `a`, `b` or both: `g`."""
    pairs = zip(a.shape[2:], b.shape[2:], strict=True)
    return ["g" if x == y else "a" if y == 1 else "b" for x, y in pairs if x * y > 1]


def _apart(a: Sequence[int], b: Sequence[int], shape: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """The shapes of two factors whose product is reshaped to `shape`, None if that merges axes of different ones."""
    whole, found, i, j = np.broadcast_shapes(tuple(a), tuple(b)), (list[int](), list[int]()), 0, 0
    if 0 in whole:
        return None
    while i < len(whole) or j < len(shape):
        first, second = i, j
        i, j = min(i + 1, len(whole)), min(j + 1, len(shape))
        while math.prod(whole[first:i]) != math.prod(shape[second:j]):
            if math.prod(whole[first:i]) < math.prod(shape[second:j]):
                i += 1
            else:
                j += 1
        for mine, theirs in zip((a, b), found, strict=True):
            part = list(mine[first:i])
            if part != list(whole[first:i]) and any(x != 1 for x in part):
                return None
            same = part == list(whole[first:i])
            theirs += shape[second:j] if same else [1] * (j - second)
    return found


@dataclass(frozen=True)
class _Lookup:
    """Rows (B, entries, n) that hold the sums of the cotangents of every entry, then rearranged by `ops`.

    Attributes:
        ids: (B, S), within the table.
        dy: (B, S, n).
        entries: number of them.
        ops: as in `_Product`.
        direct: the operation that was found, if there is nothing faster that makes these rows.
    """

    ids: Array
    dy: Array
    entries: int
    ops: Ops
    direct: Callable[[], Array] | None = None

    @property
    def core(self) -> tuple[int, ...]:
        return (1, self.entries, self.dy.shape[2])

    @property
    def arrays(self) -> tuple[Array, Array]:
        return self.ids, self.dy

    def having(self, ids: Array, dy: Array) -> _Lookup:
        return replace(self, ids=ids, dy=dy, direct=None)

    def then(self, op: tuple[Any, ...]) -> _Lookup:
        direct = self.direct
        return replace(self, ops=(*self.ops, op), direct=direct and (lambda: _apply_all((op,), direct())))

    def scaled(self, factor: Array) -> _Lookup:
        return self.having(self.ids, self.dy * factor.astype(self.dy.dtype))

    def rows(self) -> Array:
        if self.direct is not None:
            return self.direct()
        zeros = jnp.zeros((len(self.ids), *self.core[1:]), self.dy.dtype)
        rows = jax.vmap(lambda table, ids, dy: table.at[ids].add(dy))(zeros, self.ids, self.dy)
        return _apply_all(self.ops, rows[:, None])

    def weighted(self, weights: Array) -> Array:
        dy = self.dy * weights.astype(self.dy.dtype)[:, None, None]
        return _apply(jnp, self.ops, jnp.zeros(self.core, dy.dtype).at[0, self.ids].add(dy))

    def squares(self) -> Array:
        """Squared norms (B,): cotangents that go to the same entry are added up first."""
        ids, dy = self.ids, _wide(self.dy)
        size, count = ids.shape
        if count > 1:
            order = jnp.argsort(ids, axis=1)
            ids = jnp.take_along_axis(ids, order, axis=1)
            entry = jnp.cumsum(jnp.diff(ids, axis=1, prepend=ids[:, :1]) != 0, axis=1)  # of each instance: 0, 0, 1 ...
            entry += count * jnp.arange(size, dtype=entry.dtype)[:, None]
            dy = jnp.take_along_axis(dy, order[:, :, None], axis=1).reshape(-1, dy.shape[-1])
            dy = jax.ops.segment_sum(dy, entry.reshape(-1), size * count, indices_are_sorted=True)
        return _squares_of_rows(dy.reshape(size, -1))


_Term = _Product | _Lookup


@dataclass(frozen=True)
class _Rows:
    """An array that is the sum of terms; `axis` is where the instance axis lies in `shape`."""

    terms: tuple[_Term, ...]
    shape: tuple[int, ...]
    axis: int
    dtype: Any

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    def then(self, op: tuple[Any, ...], shape: Sequence[int], axis: int) -> _Rows:
        """With one more operation on every row."""
        return replace(self, terms=tuple(t.then(op) for t in self.terms), shape=tuple(shape), axis=axis)

    def value(self) -> Array:
        return jnp.moveaxis(reduce(jnp.add, [term.rows() for term in self.terms]), 0, self.axis)


@dataclass(frozen=True)
class _Folded:
    """Rows whose instance axis is one with the axis after it, as `vmap` leaves those of convolutions."""

    rows: _Rows

    @property
    def shape(self) -> tuple[int, ...]:
        shape, axis = self.rows.shape, self.rows.axis
        return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])

    def value(self) -> Array:
        return self.rows.value().reshape(self.shape)


@dataclass(frozen=True)
class _Zeros:
    """An array of zeros."""

    shape: tuple[int, ...]
    dtype: Any

    def value(self) -> Array:
        return jnp.zeros(self.shape, self.dtype)


def _value(x: Any) -> Array:
    """The array itself."""
    return x.value() if isinstance(x, _Rows | _Folded | _Zeros) else x


def _apply(xp: Any, ops: Ops, x: Array) -> Array:
    """Operations on one row: ("reshape", shape), ("transpose", axes), ("pad", widths), ("stack", length, ops)."""
    for op in ops:
        if op[0] == "reshape":
            x = x.reshape(op[1])
        elif op[0] == "transpose":
            x = x.transpose(op[1])
        elif op[0] == "pad":
            x = xp.pad(x, op[1])
        else:
            parts = x.reshape(op[1], -1, *x.shape[1:])
            x = xp.stack([_apply(xp, op[2], part) for part in parts]) if xp is np else _apply_all(op[2], parts)
    return x


def _apply_all(ops: Ops, rows: Array) -> Array:
    """Operations on every row, (B, ...)."""
    return jax.vmap(partial(_apply, jnp, ops))(rows) if ops else rows


# --- Parts of one parameter's rows -----------------------------------------------------------------------------------


class _Group:
    """A part of a parameter's rows: products and lookups that fill the same places, or, without, an array.

    Attributes:
        terms: products and lookups, if `joined` all with the same `ops`.
        made: the rows of that part, if they exist.
    """

    def __init__(self, terms: Sequence[_Term], joined: bool = True, made: Array = None) -> None:
        self.terms, self.joined, self.made = list(terms), joined, made

    def factors(self) -> list[tuple[Array, Array]]:
        return [term.arrays for term in self.terms]

    def of_one(self, factors: Sequence[tuple[Array, Array]]) -> _Group:
        """With the factors of one instance, (1, ...)."""
        pairs = zip(self.terms, factors, strict=True)
        return _Group([term.having(*(x[None] for x in mine)) for term, mine in pairs], self.joined)

    def rows(self) -> Array:
        """The rows of that part, zero elsewhere, (B, *shape)."""
        if self.made is None:
            self.made = reduce(jnp.add, [term.rows() for term in self.terms])
        return self.made

    def weighted(self, weights: Array) -> Array:
        """The sum of the rows times their weights, (*shape)."""
        if self.made is None:
            return reduce(jnp.add, [term.weighted(weights) for term in self.terms])
        return jnp.tensordot(weights.astype(self.made.dtype), self.made, 1)

    def squares(self) -> tuple[Array, Array | None]:
        """Squared norms (B,), and the sum of the contributions' norms, (B,), if contributions may cancel."""
        products = [term for term in self.terms if isinstance(term, _Product)]
        lookups = [term for term in self.terms if isinstance(term, _Lookup)]
        positions = sum(term.a.shape[2] for term in products)
        large = math.prod(self.terms[0].core[1:]) if self.terms and self.joined else 0
        if not large or (positions > 1 and 2 * positions**2 > large) or (positions and 3 * positions > large):
            return _squares_of_rows(self.rows()), None
        if not products:
            return _joined(lookups).squares(), None
        product = _joined(products)
        a, b = _wide(product.a), _wide(product.b)
        square, reach = _squares_of_products(a, b)
        if not lookups:
            return square, reach
        lookup = _joined(lookups)
        ids, dy = lookup.ids, _wide(lookup.dy)
        seen = jnp.take_along_axis(a[:, 0], ids[:, None, :], axis=2)  # (B, T, S)
        inner = (seen * _exactly("btn,bsn->bts", b[:, 0], dy)).sum((1, 2))
        others = lookup.squares()
        reach = jnp.sqrt(square) if reach is None else reach
        return square + others + 2 * inner, reach + jnp.sqrt(others)


def _squares_of_products(a: Array, b: Array) -> tuple[Array, Array | None]:
    """Squared norms of sum_t a_t b_t', added up over the groups, and the sums of the contributions' norms."""
    if a.shape[2] == 1:
        return (jnp.square(a).sum((2, 3)) * jnp.square(b).sum((2, 3))).sum(1), None
    if a.shape[1] == 1:
        a, b = _exactly("btm,bsm->bts", a[:, 0], a[:, 0])[:, None], _exactly("btn,bsn->bts", b[:, 0], b[:, 0])[:, None]
    else:
        a, b = _exactly("bgtm,bgsm->bgts", a, a), _exactly("bgtn,bgsn->bgts", b, b)
    norms = jnp.sqrt(jnp.diagonal(a, 0, 2, 3) * jnp.diagonal(b, 0, 2, 3))
    return (a * b).sum((1, 2, 3)), jnp.sqrt(jnp.square(norms.sum(2)).sum(1))


def _exactly(formula: str, x: Array, y: Array) -> Array:
    """A product in the full precision of its operands, which accelerators do not take by default."""
    return jnp.einsum(formula, x, y, precision=lax.Precision.HIGHEST)


def _joined(terms: Sequence[Any]) -> Any:
    """Products joined along T, lookups along S."""
    if len(terms) == 1:
        return terms[0]
    axis = 2 if isinstance(terms[0], _Product) else 1
    return terms[0].having(*(jnp.concatenate(x, axis) for x in zip(*(t.arrays for t in terms), strict=True)))


def _groups(output: Any) -> list[_Group]:
    """The parts of a parameter's rows; no two of them fill the same place."""
    if not isinstance(output, _Rows):
        return [_Group((), made=_value(output))]
    if len(output.terms) == 1:
        return [_Group(output.terms)]
    found: dict[Any, list[_Term]] = {}
    places: dict[Any, Any] = {}
    for term in sorted(output.terms, key=lambda term: isinstance(term, _Product)):  # lookups cannot be turned
        candidates: list[_Term] = [term, term.turned()] if isinstance(term, _Product) else [term]
        seen = [_places(candidate) for candidate in candidates]
        keys = [(candidate.core, x.tobytes()) for candidate, x in zip(candidates, seen, strict=True)]
        number = next((number for number, key in enumerate(keys) if key in found), 0)
        found.setdefault(keys[number], []).append(candidates[number])
        places[keys[number]] = seen[number] > 0
    if (np.sum(list(places.values()), axis=0) > 1).any():
        return [_Group(output.terms, joined=False)]
    return [_Group(terms) for terms in found.values()]


def _places(term: _Term) -> Any:
    """For every place of a row the number, from 1, of the term's entry that goes there; 0 if none."""
    return _apply(np, term.ops, np.arange(1, math.prod(term.core) + 1).reshape(term.core))


# --- Reading a program -----------------------------------------------------------------------------------------------

VIEWS = {"reshape", "transpose", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "copy_p", "pad"}
SCALINGS = {"mul", "div", "neg", "convert_element_type"}
SOURCES = {"dot_general", "scatter-add", "conv_general_dilated"}
CHECKPOINTS = {"remat", "remat2", "checkpoint"}
CALLS = {"jit", "pjit", "closed_call", "core_call"} | CHECKPOINTS
FOLLOWED = VIEWS | SCALINGS | SOURCES | CALLS | {"add_any", "concatenate", "scan"}


def _read(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], wanted: Sequence[bool], size: int) -> list[Any]:
    """Run a program; outputs that are `wanted` may come as `_Rows`, others are arrays."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= zip(jaxpr.invars, args, strict=True)
    followed = _followed(jaxpr, wanted)

    def get(v: Any) -> Any:
        return v.val if isinstance(v, jex.Literal) else values[v]

    for eqn in jaxpr.eqns:
        inputs = [get(v) for v in eqn.invars]
        asked = [v in followed for v in eqn.outvars]
        outputs = _step(eqn, inputs, asked, size) if any(asked) and eqn.primitive.name in FOLLOWED else None
        if outputs is None:
            outputs = _execute(eqn, [_value(x) for x in inputs])
        values.update(zip(eqn.outvars, outputs, strict=True))
    outputs = [get(v) for v in jaxpr.outvars]
    return [x if w and not isinstance(x, _Folded) else _value(x) for x, w in zip(outputs, wanted, strict=True)]


def _followed(jaxpr: Any, wanted: Sequence[bool]) -> set[Any]:
    """The variables from which a wanted output is reached by operations that are followed."""
    found = {v for v, want in zip(jaxpr.outvars, wanted, strict=True) if want and not isinstance(v, jex.Literal)}
    for eqn in reversed(jaxpr.eqns):
        if eqn.primitive.name in FOLLOWED and any(v in found for v in eqn.outvars):
            found.update(v for v in eqn.invars if not isinstance(v, jex.Literal))
    return found


def _execute(eqn: Any, values: Sequence[Array]) -> list[Array]:
    """Run one operation as it is."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX before and after 0.10
    with eqn.ctx.manager:
        outputs = eqn.primitive.bind(*functions, *values, **params)
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


def _step(eqn: Any, inputs: list[Any], asked: list[bool], size: int) -> list[Any] | None:
    """The outputs of one operation, if there is more to know of them than their values; None: run it."""
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS:
        return _call(eqn, inputs, asked, size)
    if name == "scan":
        return _scan(eqn, inputs, asked, size)
    if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
        return None
    found: _Rows | _Folded | _Zeros | None = None
    if name == "dot_general":
        found = _contracted(eqn, inputs) or _product(eqn, inputs, size)
    elif name == "conv_general_dilated":
        found = _convolution(eqn, inputs, size)
    elif isinstance(inputs[0], _Folded):
        found = inputs[0].rows if name == "reshape" and eqn.outvars[0].aval.shape == inputs[0].rows.shape else None
    elif name == "scatter-add":
        found = _lookup(eqn, inputs, size)
    elif name == "add_any":
        found = _sum(*inputs)
    elif name == "concatenate":
        found = _concatenated(eqn, inputs, params["dimension"])
    elif name == "broadcast_in_dim" and isinstance(eqn.invars[0], jex.Literal):
        shape, dtype = eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype
        found = _Zeros(shape, dtype) if eqn.invars[0].val == 0 else None
    elif isinstance(inputs[0], _Zeros) and name in VIEWS | {"convert_element_type"}:
        if name != "pad" or (isinstance(eqn.invars[1], jex.Literal) and eqn.invars[1].val == 0):
            found = _Zeros(eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype)
    elif name in SCALINGS:
        found = _scaling(eqn, inputs)
    elif isinstance(inputs[0], _Rows):
        found = _view(eqn, inputs[0])
    return None if found is None else [found]


def _call(eqn: Any, inputs: list[Any], asked: list[bool], size: int) -> list[Any] | None:
    """Read a program within the program."""
    params = eqn.params
    inner = params.get("jaxpr") or params.get("call_jaxpr")
    consts: Sequence[Any] = ()
    if hasattr(inner, "consts"):
        inner, consts = inner.jaxpr, inner.consts
    shardings = [*params.get("in_shardings", ()), *params.get("out_shardings", ())]
    if any(type(x).__name__ != "UnspecifiedValue" for x in shardings):
        return None
    if eqn.primitive.name in CHECKPOINTS and params.get("prevent_cse"):
        # Or the compiler would keep the activations that are there to be computed again.
        arrays = [_value(x) for x in inputs]
        inputs = list(lax.optimization_barrier(arrays)) if arrays else []
    return _read(inner, consts, inputs, asked, size)


def _sum(x: Any, y: Any) -> Any:
    """The sum of two arrays, if one is known to be zero, or both are sums of terms."""
    if isinstance(x, _Zeros) or isinstance(y, _Zeros):
        return y if isinstance(x, _Zeros) else x
    if isinstance(x, _Rows) and isinstance(y, _Rows) and x.axis == y.axis and x.dtype == y.dtype:
        return replace(x, terms=(*x.terms, *y.terms))
    return None


def _scaling(eqn: Any, inputs: list[Any]) -> _Rows | None:
    """Rows times a number, or in another dtype."""
    x = inputs[0]
    name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    if name == "mul" and isinstance(inputs[1], _Rows):
        inputs = [x, _] = inputs[::-1]
    if not isinstance(x, _Rows):
        return None
    if name == "neg":
        return replace(x, terms=tuple(term.scaled(jnp.asarray(-1)) for term in x.terms))
    if name == "convert_element_type":
        if jnp.finfo(dtype).bits < jnp.finfo(x.dtype).bits or jnp.promote_types(dtype, x.dtype) != dtype:
            return None
        widened = [
            term.having(*(y.astype(dtype) if jnp.issubdtype(y.dtype, jnp.floating) else y for y in term.arrays))
            for term in x.terms
        ]
        return replace(x, terms=tuple(widened), dtype=dtype)
    if np.shape(_value(inputs[1])) != ():
        return None
    factor = jnp.asarray(_value(inputs[1]))
    factor = 1 / factor if name == "div" else factor
    return replace(x, terms=tuple(term.scaled(factor) for term in x.terms))


def _view(eqn: Any, x: _Rows) -> _Rows | None:
    """The same entries in another arrangement, if instances stay apart."""
    name, params, shape = eqn.primitive.name, eqn.params, eqn.outvars[0].aval.shape
    if name in ("copy", "copy_p"):
        return x
    if name == "transpose":
        order = params["permutation"]
        axis = order.index(x.axis)
        rest = tuple(d - (d > x.axis) for d in order if d != x.axis)
        return x.then(("transpose", rest), shape, axis)
    if name == "pad":
        widths = list(params["padding_config"])
        if not isinstance(eqn.invars[1], jex.Literal) or eqn.invars[1].val != 0 or any(widths.pop(x.axis)):
            return None
        if any(low < 0 or high < 0 or interior for low, high, interior in widths):
            return None
        return x.then(("pad", tuple((int(low), int(high)) for low, high, _ in widths)), shape, x.axis)
    if params.get("dimensions") is not None and name == "reshape":
        return None
    if math.prod(shape) != math.prod(x.shape):
        return None  # a broadcast
    before = math.prod(x.shape[: x.axis])
    for axis, count in enumerate(shape):
        if count == x.shape[x.axis] and math.prod(shape[:axis]) == before:
            return x.then(("reshape", (*shape[:axis], *shape[axis + 1 :])), shape, axis)
    return None


def _concatenated(eqn: Any, inputs: list[Any], dimension: int) -> _Rows | None:
    """The sum of the parts, each at its place among zeros."""
    aval = eqn.outvars[0].aval
    parts, start = list[_Rows](), 0
    for x in inputs:
        if not isinstance(x, _Rows | _Zeros):
            return None
        if isinstance(x, _Rows):
            if dimension == x.axis:
                return None
            widths = [(0, 0)] * len(x.row_shape)
            after = aval.shape[dimension] - start - x.shape[dimension]
            widths[dimension - (dimension > x.axis)] = (start, after)
            parts.append(x.then(("pad", tuple(widths)), aval.shape, x.axis))
        start += x.shape[dimension]
    if not parts or any(x.axis != parts[0].axis for x in parts):
        return None
    return replace(parts[0], terms=tuple(term for x in parts for term in x.terms))


# --- Operations that make rows ---------------------------------------------------------------------------------------


def _product(eqn: Any, inputs: list[Any], size: int) -> _Rows | None:
    """Rows of a batched product that has the instances among its batch axes."""
    params, aval = eqn.params, eqn.outvars[0].aval
    (lc, rc), (lb, rb) = params["dimension_numbers"]
    x, y = _value(inputs[0]), _value(inputs[1])
    axis = next((number for number, d in enumerate(lb) if x.shape[d] == size), None)
    if axis is None:
        return None
    lb, rb = [[d[axis], *d[:axis], *d[axis + 1 :]] for d in (lb, rb)]
    lf, rf = [[d for d in range(z.ndim) if d not in (*c, *b)] for z, c, b in ((x, lc, lb), (y, rc, rb))]
    groups, dims = [x.shape[d] for d in lb[1:]], [*(x.shape[d] for d in lf), *(y.shape[d] for d in rf)]
    count, positions = math.prod(groups), math.prod(x.shape[d] for d in lc)
    a = x.transpose(*lb, *lc, *lf).reshape(size, count, positions, -1).astype(aval.dtype)
    b = y.transpose(*rb, *rc, *rf).reshape(size, count, positions, -1).astype(aval.dtype)

    term = _Product(a, b, (("reshape", (*groups, *dims)),), params["precision"])
    return _Rows((term,), aval.shape, axis, aval.dtype)


def _contracted(eqn: Any, inputs: list[Any]) -> _Rows | None:
    """Rows times a matrix that all instances share, along axes of one factor: as the factor times the matrix."""
    (contracted, batched), aval = eqn.params["dimension_numbers"], eqn.outvars[0].aval
    first = isinstance(inputs[0], _Rows)
    if not first and not isinstance(inputs[1], _Rows):
        return None
    rows, matrix = inputs if first else inputs[::-1]
    mine, theirs = contracted if first else contracted[::-1]
    if any(batched) or isinstance(matrix, _Rows) or rows.axis in mine or aval.dtype != rows.dtype:
        return None
    matrix, axes = _value(matrix), [2 + d - (d > rows.axis) for d in mine]
    free = [d for d in range(2, len(rows.row_shape) + 2) if d not in axes]
    more = matrix.ndim - len(theirs)
    terms = []
    for term in rows.terms:
        if not isinstance(term, _Product) or (laid := term.laid())[2]:
            return None
        a, b = laid[:2]
        one, other = (a, b) if all(b.shape[d] == 1 for d in axes) else (b, a)
        if any(other.shape[d] != 1 for d in axes):
            return None
        one = jnp.tensordot(one, matrix, (axes, theirs), precision=eqn.params["precision"])
        other = other.reshape(*[other.shape[d] for d in (0, 1, *free)], *[1] * more)
        if not first:
            one, other = [jnp.moveaxis(x, range(-more, 0), range(2, 2 + more)) for x in (one, other)]
        a, b = (one, other) if laid[0].shape[axes[0]] != 1 else (other, one)
        terms.append(_unlaid(a, b, term.precision))
    axis = (0 if first else more) + sum(d not in mine for d in range(rows.axis))
    return _Rows(tuple(terms), aval.shape, axis, aval.dtype)


def _unlaid(a: Array, b: Array, precision: Any) -> _Product:
    """Factors in the layout of the row, (B, T, *row), as a product."""
    pairs = list(zip(a.shape[2:], b.shape[2:], strict=True))
    kinds = ["g" if x == y else "a" if y == 1 else "b" for x, y in pairs]
    order = sorted(range(len(kinds)), key=lambda d: "gab".index(kinds[d]))
    shape = [max(pairs[d]) for d in order]
    a, b = [x.transpose(0, 1, *(2 + d for d in order)) for x in (a, b)]
    count = math.prod(max(pairs[d]) for d in order if kinds[d] == "g")
    a, b = [jnp.moveaxis(x.reshape(*x.shape[:2], count, -1), 1, 2) for x in (a, b)]
    back = tuple(order.index(d) for d in range(len(order)))
    return _Product(a, b, (("reshape", tuple(shape)), ("transpose", back)), precision)


def _convolution(eqn: Any, inputs: list[Any], size: int) -> _Folded | None:
    """Rows of a kernel: what each of its entries meets at every position, times the cotangents of the positions.

    The gradient by a kernel is a convolution of the inputs with the cotangents; `vmap` makes one group of it for
    every instance.
    """
    params, aval = eqn.params, eqn.outvars[0].aval
    by_features, by_batch = params["feature_group_count"], params["batch_group_count"]
    groups, rest = divmod(max(by_features, by_batch), size)
    if rest:
        return None
    numbers, dtype = params["dimension_numbers"], aval.dtype
    x, dy = [_value(z).transpose(spec) for z, spec in zip(inputs, (numbers.lhs_spec, numbers.rhs_spec), strict=True)]
    if x.ndim < 3:
        return None
    split = (-1, size, groups, x.shape[1] // (size * groups)) if by_batch == 1 else (size, groups, -1, x.shape[1])
    x = x.reshape(*split, *x.shape[2:])
    whole = partial(_convolved, params, by_batch == 1, x, dy)
    x = jnp.moveaxis(x, 0 if by_batch == 1 else 2, -1)  # (B, G, I, *space, N)
    x = lax.pad(x, jnp.zeros((), x.dtype), _around(params, x.ndim))
    outer, inner = [aval.shape[d] for d in numbers.out_spec[2:]], dy.shape[2:]
    rank = len(inner)
    for d, (count, length) in enumerate(zip(outer, inner, strict=True)):
        stride, step = params["window_strides"][d], params["rhs_dilation"][d]
        last = step * (length - 1) + 1
        pieces = [lax.slice_in_dim(x, stride * i, stride * i + last, step, axis=3 + d) for i in range(count)]
        x = jnp.stack(pieces, axis=3 + rank + d)
    a = x.reshape(size, groups, math.prod(x.shape[2 : 3 + rank]), -1).astype(dtype)  # T: (I, *inner), m: (*outer, N)
    b = dy.reshape(size, groups, -1, dy.shape[1] * math.prod(inner)).swapaxes(2, 3).astype(dtype)
    out = (groups, *outer, x.shape[-1], b.shape[-1])
    # (G, *space, N, O) -> (N, G, O, *space) -> (N, G O, *space) -> the layout of the output, without the instances
    to = (1 + rank, 0, 2 + rank, *range(1, 1 + rank))
    row = (out[1 + rank], groups * out[2 + rank], *outer)
    back = tuple(numbers.out_spec.index(d) for d in range(2 + rank))
    ops = (("reshape", out), ("transpose", to), ("reshape", row), ("transpose", back))
    shape, axis = [row[d] for d in back], numbers.out_spec[1]
    shape.insert(axis, size)
    term = _Product(a, b, ops, params["precision"], lambda weights: whole(weights).astype(dtype).transpose(back))
    return _Folded(_Rows((term,), tuple(shape), axis, dtype))


def _convolved(params: Any, by_features: bool, x: Array, dy: Array, weights: Array) -> Array:
    """The weighted sum of the rows (N, G O, *space) as one convolution that goes over the instances, too.

    `x` is (N, B, G, I, ...) if the groups are groups of features, else (B, G, N, I, ...); `dy` is (B G O, I, ...).
    """
    first = 1 if by_features else 0
    size, groups = x.shape[first : first + 2]
    dy = dy.reshape(size, -1, *dy.shape[1:])
    dy = dy * weights.astype(dy.dtype).reshape(-1, *[1] * (dy.ndim - 1))
    dy = jnp.moveaxis(dy, 0, 1).reshape(dy.shape[1], -1, *dy.shape[3:])
    x = jnp.moveaxis(x, first, 2)  # (N, G, B, I, ...) or (G, N, B, I, ...)
    x = x.reshape(x.shape[0], -1, *x.shape[4:]) if by_features else x.reshape(-1, size * x.shape[3], *x.shape[4:])
    given = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "precision", "preferred_element_type")
    options = {name: params[name] for name in given}
    counts = {"feature_group_count" if by_features else "batch_group_count": groups}
    return lax.conv_general_dilated(x, dy, **options, **counts)


def _around(params: Any, rank: int) -> list[tuple[int, int, int]]:
    """How a convolution pads its input (B, G, I, *space, N)."""
    space = [(low, high, step - 1) for (low, high), step in zip(params["padding"], params["lhs_dilation"], strict=True)]
    return [(0, 0, 0)] * 3 + space + [(0, 0, 0)] * (rank - 3 - len(space))


def _lookup(eqn: Any, inputs: list[Any], size: int) -> _Rows | None:
    """Rows of a table: cotangents added to zeros along one axis."""
    params, shape, dtype = eqn.params, eqn.outvars[0].aval.shape, eqn.outvars[0].aval.dtype
    numbers = params["dimension_numbers"]
    taken = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    if not isinstance(inputs[0], _Zeros) or len(taken) != 1 or tuple(numbers.inserted_window_dims) != taken:
        return None
    if tuple(numbers.operand_batching_dims) != (0,) or tuple(numbers.scatter_indices_batching_dims) != (0,):
        return None
    zeros, ids, cotangents = [_value(x) for x in inputs]
    window = tuple(map(int, numbers.update_window_dims))
    rest = [d for d in range(1, len(shape)) if d != taken[0]]
    if shape[0] != size or [cotangents.shape[d] for d in window] != [shape[d] for d in rest] or 0 in window:
        return None
    entries = shape[taken[0]]
    order = [d for d in range(cotangents.ndim) if d not in window] + list(window)
    width = math.prod(shape[d] for d in rest)
    found, dy = ids.reshape(size, -1), cotangents.transpose(order).reshape(size, -1, width)
    if params["mode"] != lax.GatherScatterMode.CLIP:
        dy = jnp.where(((found >= 0) & (found < entries))[:, :, None], dy, 0)
    found = jnp.clip(found, 0, entries - 1)
    split, place = (entries, *(shape[d] for d in rest)), taken[0] - 1
    back = (*range(1, place + 1), 0, *range(place + 1, len(split)))

    def direct() -> Array:
        return _execute(eqn, [zeros, ids, cotangents])[0]

    term = _Lookup(found, dy, entries, (("reshape", split), ("transpose", back)), direct)
    return _Rows((term,), shape, 0, dtype)


# --- Scans -----------------------------------------------------------------------------------------------------------


def _scan(eqn: Any, inputs: list[Any], asked: list[bool], size: int) -> list[Any] | None:
    """Factors of every step are stacked; those of a carry that adds up rows are joined along T."""
    params = eqn.params
    body, length = params["jaxpr"], params["length"]
    constants, carried = params["num_consts"], params["num_carry"]
    consts = [_value(x) for x in inputs[:constants]]
    init, xs = inputs[constants : constants + carried], [_value(x) for x in inputs[constants + carried :]]
    sums = [i for i in range(carried) if asked[i] and _only_adds(body.jaxpr, constants + i, i)]
    if eqn.effects or not length or not (sums or any(asked[carried:])):
        return None
    kept = [i for i in range(carried) if i not in sums]
    wanted = [i in sums for i in range(carried)] + asked[carried:]

    def one(carry: Sequence[Array], x: Sequence[Array]) -> list[Any]:
        """Outputs of the body, with zeros for what the carry has added up so far."""
        full: list[Any] = [_Zeros(v.aval.shape, v.aval.dtype) for v in body.jaxpr.invars[constants:][:carried]]
        for i, value in zip(kept, carry, strict=True):
            full[i] = value
        return _read(body.jaxpr, body.consts, [*consts, *full, *x], wanted, size)

    forms: list[_Rows | None] = []

    def probe(carry: Sequence[Array], x: Sequence[Array]) -> None:
        forms[:] = [out if isinstance(out, _Rows) else None for out in one(carry, x)]

    arrays = [_value(init[i]) for i in kept]
    jax.eval_shape(probe, arrays, [x[0] for x in xs])
    lazy = [form is not None for form in forms]
    if not any(lazy):
        return None
    explicit = [i for i in sums if not lazy[i]]

    def step(carry: Any, x: Sequence[Array]) -> Any:
        mine, totals = carry
        outs = one(mine, x)
        totals = [total + _value(outs[i]) for i, total in zip(explicit, totals, strict=True)]
        stacked = [
            [term.arrays for term in outs[i].terms] if lazy[i] else (outs[i] if i >= carried else None)
            for i in range(len(outs))
        ]
        return ([outs[i] for i in kept], totals), stacked

    options = {"length": length, "reverse": params["reverse"], "unroll": params["unroll"]}
    start = (arrays, [_value(init[i]) for i in explicit])
    (last, totals), stacked = lax.scan(step, start, xs, **options)
    outputs = list(stacked)
    for i, value in [*zip(kept, last, strict=True), *zip(explicit, totals, strict=True)]:
        outputs[i] = value
    for i, form in enumerate(forms):
        if form is None:
            continue
        if i >= carried:
            outputs[i] = _stacked(form, stacked[i], length)
        else:
            found = _added(form, stacked[i])
            outputs[i] = _sum(init[i], found)
            if outputs[i] is None:
                outputs[i] = _value(init[i]) + _value(found)
    return outputs


def _only_adds(jaxpr: Any, number: int, output: int) -> bool:
    """Whether all that becomes of an input is that others are added to it, and that this is the output."""
    v, last = jaxpr.invars[number], jaxpr.outvars[output]
    while v is not last:
        users = [eqn for eqn in jaxpr.eqns if any(v is x for x in eqn.invars)]
        if len(users) != 1 or users[0].primitive.name != "add_any" or any(v is x for x in jaxpr.outvars):
            return False
        if users[0].invars[0] is users[0].invars[1]:
            return False
        v = users[0].outvars[0]
    used = [eqn for eqn in jaxpr.eqns if any(v is x for x in eqn.invars)]
    return not used and sum(v is x for x in jaxpr.outvars) == 1


def _added(form: _Rows, factors: Sequence[tuple[Array, Array]]) -> _Rows:
    """The sum over the steps: factors (L, B, ...) joined along T, or S."""
    terms = []
    for term, pair in zip(form.terms, factors, strict=True):
        before = 2 if isinstance(term, _Product) else 1  # axes before T, or S
        moved = [jnp.moveaxis(x, 0, before) for x in pair]
        terms.append(term.having(*(x.reshape(*x.shape[:before], -1, *x.shape[before + 2 :]) for x in moved)))
    return replace(form, terms=tuple(terms))


def _stacked(form: _Rows, factors: Sequence[tuple[Array, Array]], length: int) -> Any:
    """The rows of every step, one after the other: as many groups more."""
    shape, terms = (length, *form.shape), list[_Term]()
    for term, pair in zip(form.terms, factors, strict=True):
        if isinstance(term, _Lookup):  # entries of all steps in one table
            ids, dy = pair
            ids += term.entries * jnp.arange(length, dtype=ids.dtype)[:, None, None]
            ids, dy = [jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:]) for x in (ids, dy)]
            split = ("reshape", (length, term.entries, dy.shape[2]))
            ops = (split, ("stack", length, term.ops))
            terms.append(replace(term.having(ids, dy), entries=length * term.entries, ops=ops))
            continue
        moved = [jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:]) for x in pair]
        terms.append(replace(term.having(*moved), ops=(("stack", length, term.ops),)))
    return _Rows(tuple(terms), shape, form.axis + 1, form.dtype)
