"""Per-instance gradients, their norms and their clipped sums for any TensorFlow 2 function, without layer rules.

The gradient of one instance's loss is traced as a graph. There, the gradient of a weight is the output of one
operation: a product (`MatMul`, `BatchMatMulV2`, `Einsum`) for what is multiplied with the weight, a convolution's
`Conv2DBackpropFilter`, `IndexedSlices` or `UnsortedSegmentSum` for lookups, `AddN` of these for several uses. Not its
output but its inputs, the factors a (T, m) and b (T, n), are what `tf.vectorized_map` computes for the whole batch; the
operation itself is then pruned. For every instance, with T positions,

    gradient       G = sum over t of a_t b_t'                       one batched product
    squared norm   |G|^2 = sum over t, s of (a_t . a_s)(b_t . b_s)  where that costs less than G (Goodfellow 2015)
    clipped sum    sum over instances of c G = one product of (B T, m) and (B T, n), scaled by c ("book-keeping")

Lookups are added up by entry without making the table; convolutions enter through their patches. A sum with known
weights is one plain gradient of the weighted losses. Anything else is computed as `tf.vectorized_map` computes it. The
weights of layers that run in a `tf.while_loop` (an LSTM that is not unrolled) have no factors here.

Norms do not lose digits: the sum of squared norms is compared with the sum of the absolute terms that were added up.
Where contributions cancel so far that a thousandth is left, the gradients themselves are made and squared
(`tf.cond`). Terms are added up in float32 at least.

What a `tf.function` freezes is frozen: Python numbers and flags and NumPy arrays that `loss` reads are read at the
first call with arguments of one shape. Variables are read at every call. Every other shape is traced again.

Memory: factors, T (m + n) per instance, and for gradients B rows. Patches of a convolution are (k k channels) per
pixel and instance.

Sources: I. Goodfellow, arXiv 1510.01799; G. Rochette et al., arXiv 1912.06015 (convolutions); X. Li et al., arXiv
2110.05679 (ghost clipping); Z. Bu et al., arXiv 2210.00038 (book-keeping); A. Agarwal and I. Ganichev, arXiv 1903.04243
(`tf.vectorized_map`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

import numpy as np
import tensorflow as tf

Tensor = Any
Shape = tuple[int, ...]
F = TypeVar("F", bound=Callable[..., Any])
Views = tuple[tuple[str, Shape], ...]
Quantity = Literal["gradients", "norms", "weighted_sum", "clipped_sum"]

LEFT = 1e-3
"""A squared norm that is a smaller share of the terms it was added up from than this has lost too many digits."""


def per_instance(
    loss: Callable[[Any, Any], Tensor], quantity: Quantity = "gradients", *, clip_norm: float = 1.0
) -> Callable[..., Any]:
    """Make a function that computes a quantity of the gradient of every instance of a batch.

    Args:
        loss: `loss(parameters, instance)`, the loss of one instance, a scalar. `parameters` is a tensor or variable,
            or a nest of them; `instance` is a batch without its first axis.
        quantity: what is computed.
            `gradients`: the nest of parameters, each (B, *parameter.shape).
            `norms`: the L2 norm of each instance's whole gradient, (B,).
            `weighted_sum`: the sum over instances of weight x gradient, shapes as the parameters'.
            `clipped_sum`: the sum over instances of min(1, clip_norm / norm) x gradient, shapes as the parameters'.
        clip_norm: what the norm of each instance's gradient is clipped to.

    Returns:
        A `tf.function` of `(parameters, batch)`, for `weighted_sum` of `(parameters, batch, weights)`, weights (B,).
        The first axis of every tensor of the batch is the instances. It may be called in another `tf.function`.

    Raises:
        ValueError: for another quantity, or for a clip norm that is not positive.
        NotImplementedError: when called, if oneDNN is on and would get a product wrong (the message says what to do).
    """

    def forms_of(parameters: Any, batch: Any) -> list[Form]:
        found: list[Form] = []

        def operands(instance: Any) -> list[tuple[Tensor, ...]]:
            with tf.GradientTape() as tape:
                _watch(tape, parameters)
                value = loss(parameters, instance)
            gradients = tape.gradient(value, tf.nest.flatten(parameters), unconnected_gradients="zero")
            read: list[tuple[Tensor, ...]] = _read_all(gradients, tf.nest.flatten(parameters), found)
            return read

        return _given(found, vectorised(operands, batch))

    def vectorised(function: Callable[[Any], Any], batch: Any) -> Any:
        batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
        before = len(tf.compat.v1.get_default_graph().get_operations())
        found = tf.vectorized_map(function, batch, warn=False)
        _refuse_broadcast_products(before)
        return found

    def norms(parameters: Any, batch: Any) -> Tensor:
        return _norms(forms_of(parameters, batch))

    def gradients(parameters: Any, batch: Any) -> Any:
        return tf.nest.pack_sequence_as(parameters, _rows(forms_of(parameters, batch)))

    def weighted_sum(parameters: Any, batch: Any, weights: Tensor) -> Any:
        flat = tf.nest.flatten(parameters)
        with tf.GradientTape() as tape:
            _watch(tape, parameters)
            losses = vectorised(lambda instance: loss(parameters, instance), batch)
            value = tf.tensordot(tf.cast(weights, losses.dtype), losses, 1)
        found = tape.gradient(value, flat, unconnected_gradients="zero")
        return tf.nest.pack_sequence_as(parameters, [tf.convert_to_tensor(x) for x in found])

    def clipped_sum(parameters: Any, batch: Any) -> Any:
        forms = forms_of(parameters, batch)
        found = _norms(forms)
        factors = clip_norm / tf.maximum(found, tf.cast(clip_norm, found.dtype))
        return tf.nest.pack_sequence_as(parameters, _weighted(forms, factors))

    steps = {"gradients": gradients, "norms": norms, "weighted_sum": weighted_sum, "clipped_sum": clipped_sum}
    if quantity not in steps:
        raise ValueError(f"there is no quantity {quantity!r}, there are {', '.join(steps)}")
    if not clip_norm > 0:
        raise ValueError(f"clip_norm is {clip_norm}, it has to be positive")
    found: Callable[..., Any] = tf.function(steps[quantity])
    return found


def _unconverted(function: F) -> F:
    """Only what the caller wrote is converted by AutoGraph."""
    return cast(F, tf.autograph.experimental.do_not_convert(function))


@_unconverted
def _watch(tape: tf.GradientTape, parameters: Any) -> None:
    for value in tf.nest.flatten(parameters):
        tape.watch(value)


@_unconverted
def _refuse_broadcast_products(before: int) -> None:
    """Raise where `tf.matmul` uses one matrix for a batch of (B, ..., 1), which crashes oneDNN in TensorFlow 2.21.

    (128, 1, 32, 64) by (64, 256) is a segmentation fault on the CPU, with or without `tf.vectorized_map`; so is what
    `tf.vectorized_map` makes of (1, 32, 64) by (64, 256). Small ones happen to pass.
    """
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0" or tf.config.list_physical_devices("GPU"):
        return
    for op in tf.compat.v1.get_default_graph().get_operations()[before:]:
        if op.type != "BatchMatMulV2" or "/pfor/" not in op.name or any(x.shape.rank is None for x in op.inputs):
            continue
        for one, many in (op.inputs, reversed(op.inputs)):
            batch = many.shape.as_list()[:-2]
            if len(batch) > 1 and batch[-1] == 1 and set(batch) != {1} and set(one.shape.as_list()[:-2]) <= {1}:
                raise NotImplementedError(
                    f"a batched product of {op.inputs[0].shape} and {op.inputs[1].shape} crashes oneDNN in TensorFlow: "
                    "set TF_ENABLE_ONEDNN_OPTS=0 before TensorFlow is imported, or write it as tf.tensordot"
                )


@_unconverted
def _read_all(gradients: Sequence[Any], parameters: Sequence[Any], found: list[Form]) -> list[tuple[Tensor, ...]]:
    """The operands of every gradient; what is to be done with them goes into `found`."""
    found[:] = [_form(g, tuple(p.shape.as_list())) for g, p in zip(gradients, parameters, strict=True)]
    return [form.operands for form in found]


@_unconverted
def _given(forms: Sequence[Form], stacked: Sequence[Sequence[Tensor]]) -> list[Form]:
    return [form.given(values) for form, values in zip(forms, stacked, strict=True)]


@_unconverted
def _rows(forms: Sequence[Form]) -> list[Tensor]:
    return [form.rows for form in forms]


@_unconverted
def _weighted(forms: Sequence[Form], weights: Tensor) -> list[Tensor]:
    return [form.weighted(tf.cast(weights, form.dtype)) for form in forms]


@_unconverted
def _norms(forms: Sequence[Form]) -> Tensor:
    """The norm of the whole gradient of each instance, (B,); rows are made where digits would be lost."""
    parts = [form.squares for form in forms]
    dtype = tf.float64 if any(square.dtype == tf.float64 for square, _ in parts) else tf.float32
    total = tf.add_n([tf.cast(square, dtype) for square, _ in parts])
    terms = [tf.cast(absolute, dtype) for _, absolute in parts if absolute is not None]
    if terms:

        def from_rows() -> Tensor:
            pairs = zip(forms, parts, strict=True)
            squares = [square if absolute is None else _squares(form.made()) for form, (square, absolute) in pairs]
            return tf.add_n([tf.cast(square, dtype) for square in squares])

        lost = tf.reduce_any(total < LEFT * tf.add_n(terms))
        total = tf.cond(lost, from_rows, lambda: total)
    kinds = {form.dtype.real_dtype for form in forms}
    return tf.cast(tf.sqrt(total), kinds.pop() if len(kinds) == 1 else dtype)


# ---- what a gradient is made of --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """The rows of one parameter, as operands from which rows, norms and weighted sums follow; here, the rows.

    Attributes:
        operands: tensors of one instance; after `given`, of the batch, (B, ...).
        shape: of a row.
    """

    operands: tuple[Tensor, ...]
    shape: Shape

    def given(self, values: Sequence[Tensor]) -> Form:
        """The same with operands for the whole batch, whose shapes `tf.vectorized_map` may have forgotten."""
        for value, one in zip(values, self.operands, strict=True):
            value.set_shape((None, *one.shape))
        return replace(self, operands=tuple(values))

    @property
    def dtype(self) -> Any:
        """Of the rows."""
        return self.operands[-1].dtype

    @cached_property
    def rows(self) -> Tensor:
        """(B, *shape)."""
        return self.made()

    def made(self) -> Tensor:
        """The rows, made anew: for a branch of `tf.cond`, whose tensors cannot be used outside."""
        return self.operands[0]

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor | None]:
        """Squared norms (B,), and what their terms add up to in absolute value, None if nothing can have cancelled."""
        return _squares(self.rows), None

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum over instances of weight x row."""
        return tf.reshape(tf.linalg.matvec(_flat(self.rows), weights, transpose_a=True), self.shape)

    def shaped(self, shape: Shape) -> Form | None:
        """Its rows in another shape, None if that is not known here."""
        return None

    def transposed(self, order: Shape) -> Form | None:
        """Its rows with axes in another order."""
        return None

    def summed(self, axes: Shape) -> Form | None:
        """Its rows added up along axes."""
        return None


@dataclass(frozen=True)
class Viewed(Form):
    """Rows of which the memory is known, and how it is seen: `views` are shapes and orders of axes to go through."""

    views: Views = ()

    def shaped(self, shape: Shape) -> Form | None:
        """One more view."""
        if shape == self.shape:
            return self
        views = self.views[:-1] if self.views and self.views[-1][0] == "shape" else self.views
        return replace(self, shape=shape, views=(*views, ("shape", shape)))

    def transposed(self, order: Shape) -> Form | None:
        """One more view."""
        return replace(self, shape=tuple(self.shape[i] for i in order), views=(*self.views, ("order", order)))

    def seen(self, value: Tensor, batch: int) -> Tensor:
        """The memory seen as the parameter; `batch` axes, 0 or 1, come before."""
        for kind, what in self.views:
            if kind == "shape":
                value = tf.reshape(value, (-1, *what) if batch else what)
            else:
                value = tf.transpose(value, (*range(batch), *(i + batch for i in what)))
        return value


@dataclass(frozen=True)
class Factored(Viewed):
    """Sums over T positions of products, in G groups; a (B, G, T, m) by b (B, G, T, n) makes rows of (G, m, n)."""

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """a and b."""
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """G, T, m and n."""
        raise NotImplementedError

    def made(self) -> Tensor:
        """One product for all instances."""
        a, b = self.factors
        return self.seen(tf.matmul(a, b, transpose_a=True), 1)

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor | None]:
        """From products of factors where they cost less than the rows."""
        groups, count, m, n = self.sizes
        if not _cheap(count, m, n):
            return _squares(self.rows), None
        a, b = (_wide(x) for x in self.factors)
        if groups == count == 1:
            return _squares(a) * _squares(b), None
        if count == 1:
            return tf.reduce_sum(tf.reduce_sum(tf.square(a), 3) * tf.reduce_sum(tf.square(b), 3), (1, 2)), None
        terms = tf.matmul(a, a, transpose_b=True) * tf.matmul(b, b, transpose_b=True)
        return tf.reduce_sum(terms, (1, 2, 3)), tf.reduce_sum(tf.abs(terms), (1, 2, 3))

    def weighted(self, weights: Tensor) -> Tensor:
        """One product for the batch, or the rows if they are there."""
        groups, count, m, n = self.sizes
        if count > 1 and "rows" in self.__dict__:
            return super().weighted(weights)
        a, b = self.factors
        scale = tf.reshape(weights, (-1, 1, 1, 1))
        a, b = (a * scale, b) if m < n else (a, b * scale)
        if groups > 1:
            a, b = (tf.transpose(x, (1, 0, 2, 3)) for x in (a, b))
        product = tf.matmul(tf.reshape(a, (groups, -1, m)), tf.reshape(b, (groups, -1, n)), transpose_a=True)
        return self.seen(product, 0)


@dataclass(frozen=True)
class Product(Factored):
    """A product by labels of axes, as in `tf.einsum`: of what `operands` are, and of what comes out."""

    labels: tuple[str, str, str] = ("", "", "")

    @property
    def length(self) -> dict[str, int]:
        """Of the axis with each label."""
        pairs = zip(self.operands, self.labels, strict=False)
        return {k: n for x, labels in pairs for k, n in zip(labels[::-1], x.shape.as_list()[::-1], strict=False)}

    @property
    def kinds(self) -> tuple[str, str, str, str]:
        """The labels of groups, positions, a's own and b's own axes."""
        a, b, out = self.labels
        return (
            "".join(label for label in out if label in a and label in b),
            "".join(label for label in a if label not in out),
            "".join(label for label in out if label not in b),
            "".join(label for label in out if label not in a),
        )

    @cached_property
    def sizes(self) -> tuple[int, int, int, int]:
        """G, T, m and n."""
        length = self.length
        groups, count, m, n = (math.prod(length[label] for label in labels) for labels in self.kinds)
        return groups, count, m, n

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """The operands with their axes in order."""
        (groups, positions, mine, others), (size, count, m, n) = self.kinds, self.sizes
        a = _ordered(self.operands[0], self.labels[0], groups + positions + mine, (size, count, m))
        return a, _ordered(self.operands[1], self.labels[1], groups + positions + others, (size, count, n))

    def shaped(self, shape: Shape) -> Form | None:
        """One more view."""
        return self if shape == self.shape else self.finished().shaped(shape)

    def transposed(self, order: Shape) -> Form | None:
        """Other labels: nothing has been reshaped yet."""
        a, b, out = self.labels
        shape = tuple(self.shape[i] for i in order)
        return replace(self, shape=shape, labels=(a, b, "".join(out[i] for i in order)))

    def summed(self, axes: Shape) -> Form | None:
        """Fewer labels: groups become positions."""
        a, b, out = self.labels
        if any(out[i] not in a or out[i] not in b for i in axes):
            return None
        left = [i for i in range(len(out)) if i not in axes]
        shape = tuple(self.shape[i] for i in left)
        return replace(self, shape=shape, labels=(a, b, "".join(out[i] for i in left)))

    def finished(self) -> Joined:
        """Ready to be joined with others: the last axis is b's."""
        a, b, out = self.labels
        if out and out[-1] not in b:
            return replace(self, operands=self.operands[::-1], labels=(b, a, out)).finished()
        groups, _, m, n = self.kinds
        order, length = groups + m + n, self.length
        views: Views = (("shape", tuple(length[label] for label in order)),)
        if order != out:
            views = (*views, ("order", tuple(order.index(label) for label in out)))
        return Joined(self.operands, self.shape, views, (self,))


@dataclass(frozen=True)
class Convolution(Factored):
    """A convolution's kernel: what it saw, by cotangents; operands are images (N, *image, C) and cotangents."""

    kernel: Shape = ()
    depthwise: bool = False
    strides: Shape = ()
    dilations: Shape = ()
    padding: tuple[tuple[int, int], ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, int, int, int]:
        """G, T, m and n."""
        *places, inputs, _ = self.kernel
        (x, dy), axes = self.operands, len(places)
        groups = int(x.shape[-1]) // (1 if self.depthwise else inputs)
        count = math.prod(dy.shape.as_list()[-2 - axes : -1])
        return groups, count, math.prod(places) * (1 if self.depthwise else inputs), int(dy.shape[-1]) // groups

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """Patches of the images, and cotangents."""
        groups, count, m, n = self.sizes
        x, dy = self.together(*self.operands)
        x = tf.pad(x, ((0, 0), *self.padding, (0, 0))) if any(map(any, self.padding)) else x
        outputs = dy.shape.as_list()[1:-1]
        if len(outputs) == 2:
            how = ((1, *what, 1) for what in (self.kernel[:2], self.strides, self.dilations))
            windows = tf.image.extract_patches(x, *how, "VALID")
        else:
            windows = tf.concat(list(self._slices(x, outputs)), -1)
        places = math.prod(self.kernel[:-2])
        a, b = tf.reshape(windows, (-1, count, places, groups, m // places)), tf.reshape(dy, (-1, count, groups, n))
        if groups > 1:
            a, b = tf.transpose(a, (0, 3, 1, 2, 4)), tf.transpose(b, (0, 2, 1, 3))
        return tf.reshape(a, (-1, groups, count, m)), tf.reshape(b, (-1, groups, count, n))

    def _slices(self, x: Tensor, outputs: Sequence[int]) -> Iterator[Tensor]:
        """What each place of the kernel sees: for other than two dimensions."""
        for number in range(math.prod(self.kernel[:-2])):
            cut: list[slice] = []
            for axis in reversed(range(len(outputs))):
                number, place = divmod(number, self.kernel[axis])
                start, step = place * self.dilations[axis], self.strides[axis]
                cut.insert(0, slice(start, start + (outputs[axis] - 1) * step + 1, step))
            yield x[(slice(None), *cut, slice(None))]

    def together(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """Images and cotangents of all instances along one axis."""
        keep = 1 - len(self.kernel)
        return tf.reshape(x, (-1, *x.shape[keep:])), tf.reshape(dy, (-1, *dy.shape[keep:]))

    def shaped(self, shape: Shape) -> Form | None:
        """One more view."""
        return self.finished().shaped(shape)

    def transposed(self, order: Shape) -> Form | None:
        """One more view."""
        return self.finished().transposed(order)

    def finished(self) -> Joined:
        """Ready to be joined with others."""
        groups, _, m, n = self.sizes
        *places, _, _ = self.kernel
        memory = (groups, *places, m // math.prod(places), n)
        order = (*range(1, len(memory) - 1), 0, len(memory) - 1)
        views: Views = (("shape", memory), ("order", order)) if groups > 1 else ()
        return Joined(self.operands, self.shape, (*views, ("shape", self.kernel)), (self,))

    @property
    def plain(self) -> bool:
        """Whether TensorFlow has its backward pass on every device."""
        return not self.depthwise and len(self.kernel) == 4 and self.sizes[0] == 1 and set(self.dilations) == {1}

    def at_once(self, weights: Tensor) -> Tensor:
        """The weighted sum by one backward pass for the batch."""
        x, dy = self.operands
        x, dy = self.together(x, dy * tf.reshape(weights, (-1, *(1,) * (dy.shape.rank - 1))))
        pads = [0, 0, *(n for pair in self.padding for n in pair), 0, 0]
        how = {"padding": "EXPLICIT", "explicit_paddings": pads} if any(pads) else {"padding": "VALID"}
        return tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=self.kernel, out_backprop=dy, strides=[1, *self.strides, 1], **how
        )


@dataclass(frozen=True)
class Joined(Factored):
    """One or several uses of one parameter: positions of all of them."""

    uses: tuple[Product | Convolution, ...] = ()

    def given(self, values: Sequence[Tensor]) -> Form:
        """Every use takes its operands."""
        return replace(self, operands=tuple(values), uses=_dealt(self.uses, values))

    @cached_property
    def sizes(self) -> tuple[int, int, int, int]:
        """G, T, m and n."""
        groups, _, m, n = self.uses[0].sizes
        return groups, sum(use.sizes[1] for use in self.uses), m, n

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """All positions."""
        if len(self.uses) == 1:
            return self.uses[0].factors
        a, b = zip(*(use.factors for use in self.uses), strict=True)
        return tf.concat(a, 2), tf.concat(b, 2)

    def weighted(self, weights: Tensor) -> Tensor:
        """A convolution used once has a backward pass of its own."""
        use = self.uses[0]
        if len(self.uses) == 1 and isinstance(use, Convolution) and use.plain and "rows" not in self.__dict__:
            return self.seen(use.at_once(weights), 0)
        return super().weighted(weights)

    def joined(self, other: Joined) -> Joined | None:
        """Both, if their rows lie in memory alike."""
        alike = (self.sizes[0], *self.sizes[2:], self.views) == (other.sizes[0], *other.sizes[2:], other.views)
        operands, uses = (*self.operands, *other.operands), (*self.uses, *other.uses)
        return replace(self, operands=operands, uses=uses) if alike else None


@dataclass(frozen=True)
class Lookup(Viewed):
    """Cotangents dy (B, T, *width) added up at entries ids (B, T) of a table; operands are ids and dy."""

    entries: int = 0

    @property
    def width(self) -> int:
        """Numbers per entry."""
        return math.prod(self.shape) // self.entries

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """The ids (B, T), -1 for those that the table does not have, and dy (B, T, width)."""
        ids, dy = self.operands
        count, ids = math.prod(ids.shape[1:]), tf.cast(ids, tf.int64)
        ids = tf.where((ids >= 0) & (ids < self.entries), ids, tf.constant(-1, tf.int64))
        return tf.reshape(ids, (-1, count)), tf.reshape(dy, (-1, count, self.width))

    def made(self) -> Tensor:
        """The tables, (B, *shape)."""
        ids, dy = self.factors
        size = tf.shape(ids, tf.int64)[0]
        table = _added_up(dy, _apart(ids, ids, self.entries), size * self.entries)
        return self.seen(tf.reshape(table, (-1, self.entries * self.width)), 1)

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor | None]:
        """Cotangents of the same entry are added up first; the table is not made."""
        ids, dy = self.factors
        size, count = tf.shape(ids, tf.int64)[0], int(ids.shape[1])
        order = tf.argsort(ids, axis=1)
        ids, dy = tf.gather(ids, order, batch_dims=1), tf.gather(_wide(dy), order, batch_dims=1)
        differs = tf.cast(tf.not_equal(ids[:, 1:], ids[:, :-1]), tf.int64)
        slots = tf.pad(tf.cumsum(differs, 1), ((0, 0), (1, 0)))
        sums = _added_up(dy, _apart(slots, ids, count), size * count)
        return tf.reduce_sum(tf.square(tf.reshape(sums, (-1, count * self.width))), 1), None

    def weighted(self, weights: Tensor) -> Tensor:
        """One table for all instances."""
        ids, dy = self.factors
        return self.seen(_added_up(dy * tf.reshape(weights, (-1, 1, 1)), ids, self.entries), 0)


@dataclass(frozen=True)
class Total(Form):
    """Several forms of one parameter, added up."""

    terms: tuple[Form, ...] = ()

    def given(self, values: Sequence[Tensor]) -> Form:
        """Every term takes its operands."""
        return replace(self, operands=tuple(values), terms=_dealt(self.terms, values))

    def made(self) -> Tensor:
        """The sum of all rows."""
        return tf.add_n([term.made() for term in self.terms])

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor | None]:
        """|P + L|^2 = |P|^2 + |L|^2 + 2 P . L for a product and a lookup (a table that logits use, too), else rows."""
        product, lookup = self.terms[0], self.terms[-1]
        if not (len(self.terms) == 2 and isinstance(product, Joined) and isinstance(lookup, Lookup)):
            return _squares(self.rows), None
        groups, count, m, n = product.sizes
        plain = product.views == lookup.views == (("shape", (m, n)),) and lookup.entries == m
        if groups > 1 or not plain or not _cheap(count, m, n):
            return _squares(self.rows), None
        (first, absolute), (second, _) = product.squares, lookup.squares
        (a, b), (ids, dy) = product.factors, lookup.factors
        met = tf.gather(_wide(a[:, 0]), tf.maximum(ids, 0), axis=2, batch_dims=1)  # (B, T of P, T of L)
        met = tf.where(ids[:, None] >= 0, met, tf.zeros((), met.dtype))
        terms = met * tf.matmul(_wide(b[:, 0]), _wide(dy), transpose_b=True)
        inner, size = tf.reduce_sum(terms, (1, 2)), tf.reduce_sum(tf.abs(terms), (1, 2))
        return first + second + 2 * inner, (first if absolute is None else absolute) + second + 2 * size

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of all weighted sums."""
        if "rows" in self.__dict__:
            return super().weighted(weights)
        return tf.add_n([term.weighted(weights) for term in self.terms])


@dataclass(frozen=True)
class Pieces(Form):
    """Forms of parts of one parameter, [start, stop) along an axis; zeros elsewhere. Parts do not overlap."""

    axis: int = 0
    places: tuple[tuple[int, int], ...] = ()
    parts: tuple[Form, ...] = ()

    def given(self, values: Sequence[Tensor]) -> Form:
        """Every part takes its operands."""
        return replace(self, operands=tuple(values), parts=_dealt(self.parts, values))

    def _whole(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """The parts with zeros between them."""
        pieces, at = [], 0
        for (start, stop), part in zip(self.places, parts, strict=True):
            pieces += [_zeros(part, axis, start - at), part]
            at = stop
        pieces.append(_zeros(parts[-1], axis, self.shape[self.axis] - at))
        return tf.concat([piece for piece in pieces if piece is not None], axis)

    def made(self) -> Tensor:
        """The rows of the parts."""
        return self._whole([part.made() for part in self.parts], self.axis + 1)

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor | None]:
        """Squared norms of the parts."""
        squares, absolute = zip(*(part.squares for part in self.parts), strict=True)
        terms = [x for x in absolute if x is not None]
        return tf.add_n(squares), tf.add_n(terms) if terms else None

    def weighted(self, weights: Tensor) -> Tensor:
        """The sums of the parts."""
        return self._whole([part.weighted(weights) for part in self.parts], self.axis)


# ---- reading the graph of one instance's gradient --------------------------------------------------------------------


def _form(gradient: Any, shape: Shape) -> Form:
    """How a gradient of one instance came about, read backwards from its last operation."""
    if isinstance(gradient, tf.IndexedSlices):
        ids, dy = gradient.indices, gradient.values
        if _known(ids, dy) and dy.dtype.is_floating and math.prod(shape) and ids.shape.num_elements():
            return Lookup((ids, dy), shape, (("shape", shape),), entries=shape[0])
        gradient = tf.convert_to_tensor(gradient)
    found = _lazy(gradient) if gradient.dtype.is_floating and math.prod(shape) else None
    if isinstance(found, Product | Convolution):
        found = found.finished()
    return Form((gradient,), shape) if found is None else found


def _lazy(tensor: Tensor) -> Form | None:
    """The form of an operation's output, None if it has to be computed."""
    reader = _READERS.get(tensor.op.type)
    inputs = tensor.op.inputs
    if (
        reader is None
        or not _known(tensor, *(x for x in inputs if x.dtype == tensor.dtype))
        or any(x.shape.num_elements() == 0 for x in inputs[:1])
    ):
        return None
    return reader(tensor.op, tuple(tensor.shape.as_list()))


def _same(op: Any, shape: Shape) -> Form | None:
    return _lazy(op.inputs[0])


def _reshape(op: Any, shape: Shape) -> Form | None:
    inner = _lazy(op.inputs[0])
    return inner and inner.shaped(shape)


def _transpose(op: Any, shape: Shape) -> Form | None:
    order, inner = _constant(op.inputs[1]), _lazy(op.inputs[0])
    return None if inner is None or order is None else inner.transposed(tuple(int(i) for i in order))


def _sum(op: Any, shape: Shape) -> Form | None:
    axes, inner = _constant(op.inputs[1]), _lazy(op.inputs[0])
    if inner is None or axes is None:
        return None
    rank = op.inputs[0].shape.rank
    found = inner.summed(tuple(int(i) % rank for i in axes.reshape(-1)))
    return found and found.shaped(shape)


def _matmul(op: Any, shape: Shape) -> Form | None:
    a, b = op.inputs
    turn = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    groups = "abcdefgh"[: len(shape) - 2]
    if a.shape.rank != b.shape.rank or a.shape[:-2] != b.shape[:-2] or len(shape) > 10:
        return None
    first, second = "tm" if op.get_attr(turn[0]) else "mt", "nt" if op.get_attr(turn[1]) else "tn"
    return Product((a, b), shape, labels=(groups + first, groups + second, groups + "mn"))


def _einsum(op: Any, shape: Shape) -> Form | None:
    inputs, _, out = op.get_attr("equation").decode().partition("->")
    labels = inputs.split(",")
    if len(labels) != 2 or any("." in x or len(set(x)) != len(x) for x in (*labels, out)):
        return None
    a, b = labels
    lengths = [dict(zip(x, y.shape.as_list(), strict=True)) for x, y in zip(labels, op.inputs, strict=True)]
    if set(a) ^ set(b) != set(out) - (set(a) & set(b)) or any(lengths[0][k] != lengths[1][k] for k in set(a) & set(b)):
        return None
    return Product(tuple(op.inputs), shape, labels=(a, b, out))


def _convolution(op: Any, shape: Shape) -> Form | None:
    x, _, dy = op.inputs
    if op.get_attr("data_format").decode() not in ("NHWC", "NDHWC"):
        return None
    strides, dilations = (tuple(op.get_attr(name))[1:-1] for name in ("strides", "dilations"))
    kind = op.get_attr("padding").decode()
    pads = list(op.get_attr("explicit_paddings"))[2:-2] if kind == "EXPLICIT" else [0] * (2 * len(strides))
    padding = tuple(zip(pads[::2], pads[1::2], strict=True))
    if kind == "SAME":
        sides = zip(x.shape.as_list()[1:-1], dy.shape.as_list()[1:-1], shape[:-2], strides, dilations, strict=True)
        needed = [max((o - 1) * s + (k - 1) * d + 1 - i, 0) for i, o, k, s, d in sides]
        padding = tuple((n // 2, n - n // 2) for n in needed)
    depthwise = op.type.startswith("Depthwise")
    return Convolution((x, dy), shape, (), shape, depthwise, strides, dilations, padding)


def _segments(op: Any, shape: Shape) -> Form | None:
    dy, ids, _ = op.inputs
    known = _known(ids) and ids.shape.num_elements()
    return Lookup((ids, dy), shape, (("shape", shape),), entries=shape[0]) if known else None


def _added(op: Any, shape: Shape) -> Form | None:
    inputs = [x for x in op.inputs if not _is_zero(x)]
    if any(tuple(x.shape) != shape for x in inputs):
        return None
    terms = [_form(x, shape) for x in inputs]
    if all(type(term) is Form for term in terms):
        return None
    flat = [t for term in terms for t in (term.terms if isinstance(term, Total) else (term,))]
    if len(flat) > 1 and all(isinstance(term, Pieces) for term in flat):
        return _merged(flat, shape)
    kept: list[Form] = []
    for term in flat:
        for i, other in enumerate(kept):
            if isinstance(term, Joined) and isinstance(other, Joined) and (both := other.joined(term)):
                kept[i] = both
                break
        else:
            kept.append(term)
    kept.sort(key=lambda term: isinstance(term, Lookup))
    operands = tuple(x for term in kept for x in term.operands)
    return kept[0] if len(kept) == 1 else Total(operands, shape, tuple(kept))


def _merged(forms: Sequence[Any], shape: Shape) -> Form | None:
    """Parts of one parameter from several sums; None if some overlap."""
    pairs = [pair for form in forms for pair in zip(form.places, form.parts, strict=True)]
    pairs.sort(key=lambda pair: pair[0])
    overlap = any(x[0][1] > y[0][0] for x, y in pairwise(pairs))
    return None if overlap or len({form.axis for form in forms}) > 1 else _pieces(forms[0].axis, pairs, shape)


def _pieces(axis: int, pairs: Sequence[tuple[tuple[int, int], Form]], shape: Shape) -> Form | None:
    places, parts = tuple(place for place, _ in pairs), tuple(part for _, part in pairs)
    if all(type(part) is Form for part in parts):
        return None
    return Pieces(tuple(x for part in parts for x in part.operands), shape, axis, places, parts)


def _concatenated(op: Any, shape: Shape) -> Form | None:
    pack = op.type == "Pack"
    axis = op.get_attr("axis") if pack else _constant(op.inputs[-1])
    if axis is None:
        return None
    axis, pairs, at = int(axis) % len(shape), [], 0
    for x in op.inputs if pack else op.inputs[:-1]:
        length = 1 if pack else int(x.shape[axis])
        if length and not _is_zero(x):
            pairs.append(((at, at + length), _part(x, (*shape[:axis], length, *shape[axis + 1 :]))))
        at += length
    return _pieces(axis, pairs, shape)


def _part(x: Tensor, shape: Shape) -> Form:
    """The form of a part, or its rows, in the shape that the part has within the whole."""
    return _form(x, tuple(x.shape.as_list())).shaped(shape) or Form((tf.reshape(x, shape),), shape)


def _sliced(op: Any, shape: Shape) -> Form | None:
    """The gradient of `w[i]` or `w[i:j]`, along one axis."""
    begin, end, steps = (tf.get_static_value(x) for x in op.inputs[1:4])
    first, last, ellipsis, added, dropped = (
        op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    )
    if begin is None or end is None or steps is None or ellipsis or added or any(steps != 1):
        return None
    places = []
    for i, (start, stop) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        if dropped >> i & 1:
            places.append((start % shape[i], start % shape[i] + 1))
        else:
            cut = slice(None if first >> i & 1 else start, None if last >> i & 1 else stop)
            places.append(cut.indices(shape[i])[:2])
    axes = [i for i, place in enumerate(places) if place != (0, shape[i])]
    if len(axes) > 1 or math.prod(op.inputs[4].shape) == 0:
        return None
    axis = axes[0] if axes else 0
    start, stop = places[axis]
    part = _part(op.inputs[4], (*shape[:axis], stop - start, *shape[axis + 1 :]))
    return _pieces(axis, [((start, stop), part)], shape)


_READERS: dict[str, Callable[[Any, Shape], Form | None]] = {
    **dict.fromkeys(("Identity", "Snapshot", "PreventGradient", "StopGradient", "CheckNumerics"), _same),
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze"), _reshape),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2"), _matmul),
    **dict.fromkeys(
        ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"), _convolution
    ),
    **dict.fromkeys(("AddN", "AddV2", "Add"), _added),
    **dict.fromkeys(("ConcatV2", "Pack"), _concatenated),
    "Transpose": _transpose,
    "Sum": _sum,
    "Einsum": _einsum,
    "UnsortedSegmentSum": _segments,
    "StridedSliceGrad": _sliced,
}
"""Which operations are read; every other one is computed."""


# ---- small helpers ---------------------------------------------------------------------------------------------------


def _cheap(count: int, m: int, n: int) -> bool:
    """Whether T x T products cost less than a row, in arithmetic and in memory; one position always does."""
    return count == 1 or (count * (m + n) < m * n and 2 * count**2 < m * n)


def _dealt(forms: Sequence[Any], values: Sequence[Tensor]) -> tuple[Any, ...]:
    """The forms, each with its share of the values."""
    found, start = [], 0
    for form in forms:
        stop = start + len(form.operands)
        found.append(form.given(values[start:stop]))
        start = stop
    return tuple(found)


def _ordered(x: Tensor, labels: str, wanted: str, shape: Shape) -> Tensor:
    """(B, *labels) -> (B, *shape), axes in the order of `wanted`."""
    if labels != wanted:
        x = tf.transpose(x, (0, *(1 + labels.index(label) for label in wanted)))
    return tf.reshape(x, (-1, *shape))


def _apart(slots: Tensor, ids: Tensor, count: int) -> Tensor:
    """Slots (B, T) of `count` per instance, counted through all instances; -1 where the id is none."""
    first = count * tf.range(tf.shape(slots, tf.int64)[0])[:, None]
    return tf.where(ids >= 0, slots + first, tf.constant(-1, tf.int64))


def _added_up(dy: Tensor, slots: Tensor, count: Any) -> Tensor:
    """(B, T, width) added up at slots (B, T): (count, width)."""
    return tf.math.unsorted_segment_sum(tf.reshape(dy, (-1, dy.shape[-1])), tf.reshape(slots, (-1,)), count)


def _zeros(like: Tensor, axis: int, length: int) -> Tensor | None:
    """Zeros of that length along an axis, None for no length."""
    if not length:
        return None
    shape = tf.shape(like)
    return tf.zeros(tf.concat([shape[:axis], [length], shape[axis + 1 :]], 0), like.dtype)


def _flat(rows: Tensor) -> Tensor:
    """Rows as vectors, (B, n)."""
    return tf.reshape(rows, (-1, math.prod(rows.shape[1:])))


def _squares(rows: Tensor) -> Tensor:
    """The squared norm of every row, (B,), in float32 at least."""
    flat = tf.abs(_flat(rows)) if rows.dtype.is_complex else _wide(_flat(rows))
    return tf.reduce_sum(tf.square(flat), 1)


def _wide(x: Tensor) -> Tensor:
    """Half precision made float32."""
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x


def _known(*tensors: Tensor) -> bool:
    """Whether shapes are known."""
    return all(tensor.shape.is_fully_defined() for tensor in tensors)


def _constant(tensor: Tensor) -> Any:
    """The value of what depends on constants and shapes alone, as an array; else None."""
    value, op = tf.get_static_value(tensor), tensor.op
    if value is not None or op.type not in ("InvertPermutation", "BroadcastGradientArgs", "StridedSlice"):
        return value
    inputs = [_constant(x) for x in op.inputs]
    if any(x is None for x in inputs):
        return None
    if op.type == "InvertPermutation":
        return inputs[0].argsort()
    if op.type == "BroadcastGradientArgs":
        return _broadcast_axes(inputs[tensor.value_index], inputs[1 - tensor.value_index])
    whole, begin, end, steps = inputs
    if len(begin) != 1 or any(op.get_attr(f"{name}_mask") for name in ("ellipsis", "new_axis", "shrink_axis")):
        return None
    start = None if op.get_attr("begin_mask") else int(begin[0])
    return whole[start : None if op.get_attr("end_mask") else int(end[0]) : int(steps[0])]


def _broadcast_axes(mine: Any, other: Any) -> Any:
    """Along which axes of the result the first of two shapes has been repeated."""
    rank = max(len(mine), len(other))
    mine, other = ([0] * (rank - len(x)) + list(x) for x in (mine, other))
    return np.array([i for i in range(rank) if mine[i] == 0 or (mine[i] == 1 and other[i] != 1)], np.int64)


def _is_zero(tensor: Tensor) -> bool:
    """Whether it is a constant of zeros."""
    if tensor.op.type not in ("Const", "Fill", "ZerosLike"):
        return False
    value = tf.get_static_value(tensor)
    return tensor.op.type == "ZerosLike" or (value is not None and not value.any())
