"""Per-instance gradients of any PyTorch function, their norms and their clipped sums, near the price of one gradient.

The loss of one instance is differentiated and vectorised first (`vmap(grad(loss))`), traced once by `make_fx` into a
flat graph of ATen operations, and then that graph is read. Where a parameter's rows (one gradient for every instance)
leave the graph as a batched matrix product, a grouped convolution or a scatter into zeros, the operation is taken out
and its operands are returned instead: the factors of the rows. With factors a_t and b_t of T positions (of a sequence,
of an image, of several uses of one weight), instance i's row is sum_t a_it b_it', and

- rows are one product each, written straight into the layout of the parameter;
- norms are |a||b| for T = 1, and otherwise sum_ts (a_t.a_s)(b_t.b_s), wherever that is cheaper than the row
  (Goodfellow 2015, arXiv 1510.01799; Rochette et al. 2019, arXiv 1912.06015; "ghost" norms: Li et al. 2022,
  arXiv 2110.05679); the cotangents of a table's entry that is looked up repeatedly are added up first;
- a clipped sum scales one factor and multiplies once for the whole batch, without a second backward pass
  ("book-keeping": Bu et al. 2022, arXiv 2210.00038);
- a weighted sum is one plain gradient of the weighted loss, traced (which takes a loss whose gradients are derivatives:
  an `autograd.Function` whose backward pass clips is none).

Views, scalings, sums, slices and concatenations between such an operation and the parameter are followed, so packed,
stacked, shared and transposed weights are covered. What the reader does not know is run as it was traced: never wrong,
only as slow as `vmap`. What cannot be traced but can be vectorised runs through `vmap(grad)` as it is, with a warning.

**Digits.** Products of factors lose digits where the positions' contributions cancel. Their sum of norms,
sum_t |a_t||b_t|, bounds the loss: the squared norm is off by some epsilon times its square. An instance whose norm is
below epsilon^(1/4) of that sum (0.019 in float32) gets its row, and the norm of that. Half precision always does.

**What a trace freezes.** It is kept for a signature: structure, shapes, strides, dtypes and devices of the arguments,
autocast, the default dtype. Also seen: the `training` flag and the tensors of every module that ran, plain values and
tensors in the closure of the loss and among the globals that it names; tensors are read anew by every call, changed
values mean a new trace. Not seen: attributes of other objects, entries of dictionaries and lists, numbers drawn by
Python's or NumPy's generators, `Tensor.numpy()` of a captured tensor, side effects of the loss. Pass such things in the
batch. Dropout draws a mask of its own for every instance, anew in every call.

**Limits.** The results take no part in autograd. Tracing takes seconds for a large network, and loops over time are
unrolled. Convolutions keep a copy of what each kernel sees (batch x positions x kernel) from call to call; so do
norms and clipped sums with rows that were cheaper than their factors' products. One call at a time uses that memory;
other threads wait. What reaches a parameter through elementwise operations (weight norm, masks) is as slow as `vmap`.
"""

from __future__ import annotations

import dis
import itertools
import math
import operator
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import functionalize, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.linalg import vecdot, vector_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Tensor = Any
Node = Any
Tree = Any
Pair = tuple[Tensor, Tensor]

QUANTITIES = ("gradients", "norms", "clipped_sum", "weighted_sum")
TRACES = 8
"""Traces that are kept for one signature; the oldest is dropped first."""

aten = torch.ops.aten
RESHAPES = {aten.view.default, aten._unsafe_view.default, aten.reshape.default}
SQUEEZES = {aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default}
ALIASES = {aten.alias.default, aten.detach.default}
TURNS = {aten.transpose.int, aten.t.default, aten.permute.default}
VIEWS = RESHAPES | SQUEEZES | ALIASES | TURNS | {aten.expand.default}
SCALINGS = {aten.mul.Tensor: operator.mul, aten.mul.Scalar: operator.mul, aten.div.Tensor: operator.truediv}
FILLED = {
    *(aten.ones_like.default, aten.zeros_like.default, aten.full_like.default, aten.empty_like.default),
    *(aten.new_ones.default, aten.new_zeros.default, aten.new_full.default, aten.new_empty.default),
}
"""Operations that look at nothing but the shape of their operand."""


def per_instance(
    loss: Callable[[Tree, Tree], Tensor],
    quantity: str = "gradients",
    *,
    clip_norm: float = 1.0,
    reuse: bool = False,
) -> Callable[..., Tree]:
    """Return a function that computes a quantity of the per-instance gradients of `loss`.

    Args:
        loss: `loss(parameters, instance)`, the loss of one instance, a scalar. Both are trees (dictionaries, lists,
            tuples) of tensors; the instance comes without the batch's first axis. Of a module it is, for example,
            `F.cross_entropy(functional_call(net, parameters, (instance["x"][None],)), instance["y"][None])`.
        quantity: `gradients` (rows: the tree of the parameters, every leaf (B, *shape)), `norms` ((B,), the L2 norm of
            each instance's whole gradient), `clipped_sum` (sum_i min(1, clip_norm / norm_i) gradient_i, the tree of
            the parameters) or `weighted_sum` (sum_i weights_i gradient_i).
        clip_norm: of `clipped_sum`.
        reuse: of `gradients`: a call writes into the memory of the last call's result, which must not be written
            into by others. Saves the price of fresh memory, which for large rows is most of the time.

    Returns:
        A function of `(parameters, batch)`, for `weighted_sum` of `(parameters, batch, weights)`; the batch has the
        instance axis B first in every leaf, weights are (B,). Results keep the parameters' dtype and device.

    Raises:
        ValueError: for an unknown quantity or a `clip_norm` that is not positive; from the function, if the leaves of
            the batch differ in their first axis. What `vmap(grad(loss))` refuses, it refuses in PyTorch's own words:
            branches on values of an instance, in-place changes of captured tensors, `nn.GRU` and others.
    """
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(QUANTITIES)}, not {quantity!r}")
    if not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive, not {clip_norm}")
    if quantity == "weighted_sum":
        return _WeightedSum(loss)
    return _Factored(loss, quantity, clip_norm, reuse)


# --- Calls -----------------------------------------------------------------------------------------------------------


class _Traced:
    """A function that is traced once per signature of its arguments, and again when what it captured has changed."""

    def __init__(self, loss: Callable[[Tree, Tree], Tensor]) -> None:
        self.loss = loss
        self.programs: dict[Any, list[_Program]] = {}
        self.lock = threading.RLock()  # a loss may call the function itself, with other arguments

    def run(self, flat: Sequence[Tensor], spec: Any, build: Callable[[], _Program]) -> tuple[_Program, list[Tensor]]:
        """The program for these arguments, and its outputs."""
        key = (spec, *[(x.shape, x.stride(), x.dtype, x.device) for x in flat], *_modes(flat))
        known = self.programs.setdefault(key, [])
        for program in known:
            if (captured := program.current()) is not None:
                return program, program.run(flat, captured)
        if known and (name := known[-1].changed()) is not None:
            warnings.warn(
                f"the loss is traced again, which takes long: {name} has changed. Pass it in the batch instead",
                RuntimeWarning,
                stacklevel=4,
            )
        del known[: len(known) + 1 - TRACES]
        known.append(program := build())
        if (captured := program.current()) is None:
            raise RuntimeError("the loss depends on something that changes while it is read")
        return program, program.run(flat, captured)


class _Factored(_Traced):
    """Rows, norms or clipped sums from the factors of the rows."""

    def __init__(self, loss: Callable[[Tree, Tree], Tensor], quantity: str, clip_norm: float, reuse: bool) -> None:
        super().__init__(loss)
        self.clip_norm, self.keeps = clip_norm, reuse or quantity != "gradients"
        self.take = {"gradients": self._gradients, "norms": self._norms, "clipped_sum": self._clipped_sum}[quantity]
        self.empty = {
            "gradients": lambda x: x.new_empty((0, *x.shape)),
            "norms": None,
            "clipped_sum": torch.zeros_like,
        }[quantity]

    def __call__(self, parameters: Tree, batch: Tree) -> Tree:
        flat, spec = _flat(parameters, batch)
        size = _size(batch)
        with self.lock, torch.no_grad():
            if not size:
                leaves = tree_leaves(parameters)
                return tree_map(self.empty, parameters) if self.empty else leaves[0].new_empty(0)
            return self.take(*self.run(flat, spec, lambda: _rows_program(self.loss, parameters, batch)))

    def _gradients(self, program: _Program, values: list[Tensor]) -> Tree:
        return program.tree([made.rows() for made in program.made(values, self.keeps)])

    def _norms(self, program: _Program, values: list[Tensor]) -> Tensor:
        return _norms(program.made(values, self.keeps))

    def _clipped_sum(self, program: _Program, values: list[Tensor]) -> Tree:
        made = program.made(values, self.keeps)
        factors = self.clip_norm / _norms(made).clamp(min=self.clip_norm)
        return program.tree([each.weighted(factors) for each in made])


class _WeightedSum(_Traced):
    """One plain gradient of the weighted loss of the whole batch."""

    def __call__(self, parameters: Tree, batch: Tree, weights: Tensor) -> Tree:
        flat, spec = _flat(parameters, batch)
        flat = [*flat, weights]
        if weights.shape != (_size(batch),):
            raise ValueError(f"weights must have shape ({_size(batch)},), not {tuple(weights.shape)}")
        with self.lock, torch.no_grad():
            if not len(weights):
                return tree_map(torch.zeros_like, parameters)
            program, values = self.run(flat, spec, lambda: _sum_program(self.loss, parameters, batch, weights))
            if program.forms:
                values = [each.weighted(weights) for each in program.made(values, keeps=True)]
            return program.tree(values)


def _norms(made: Sequence[_Made]) -> Tensor:
    """The L2 norm of every instance's whole gradient, (B,); rows where products of factors would lose digits."""
    found = [each.norms() for each in made]
    norms, doubts = [norms for norms, _ in found], [doubt for _, doubt in found]
    doubtful = [number for number, doubt in enumerate(doubts) if doubt is not None]
    if doubtful and bool(torch.stack([doubts[number] for number in doubtful]).any()):
        for number in doubtful:
            instances = doubts[number].nonzero()[:, 0]
            if len(instances):
                norms[number] = norms[number].index_copy(0, instances, made[number].exact_norms(instances))
    if len(norms) == 1:
        return norms[0]
    if len(dtypes := {x.dtype for x in norms}) > 1:
        norms = [x.to(reduce(torch.promote_types, dtypes)) for x in norms]
    return vector_norm(torch.stack(norms), dim=0)


def _flat(parameters: Tree, batch: Tree) -> tuple[list[Tensor], Any]:
    """The leaves of both, and something hashable that tells their structure."""
    if type(parameters) is dict and type(batch) is dict:  # the usual case, ten times faster than what follows
        flat = [*parameters.values(), *batch.values()]
        if all(isinstance(x, torch.Tensor) for x in flat):
            return flat, (tuple(parameters), tuple(batch))
    flat, spec = tree_flatten((parameters, batch))
    for x in flat:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"parameters and batch must consist of tensors, not {type(x).__name__}")
    return flat, spec


def _size(batch: Tree) -> int:
    """The batch size."""
    leaves = tree_leaves(batch) if type(batch) is not dict else batch.values()
    if not all(isinstance(x, torch.Tensor) for x in leaves):
        leaves = tree_leaves(batch)
    sizes = {x.shape[0] if x.ndim else -1 for x in leaves}
    if len(sizes) != 1 or -1 in sizes:
        raise ValueError(f"the leaves of the batch must have the same first axis, not {sizes}")
    return int(sizes.pop())


def _modes(flat: Sequence[Tensor]) -> tuple[Any, ...]:
    """State of PyTorch that a trace depends on."""
    kind = flat[0].device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return autocast, torch.get_default_dtype()


# --- Programs --------------------------------------------------------------------------------------------------------


class _Program:
    """A traced function: what it captured, how it is run, and what its outputs stand for.

    Attributes:
        trace: what it depends on; None if it could not be traced and `function` runs the transformations.
        function: takes the arguments' leaves, then the captured tensors.
        forms: of every parameter, how its rows come from the outputs.
    """

    def __init__(self, spec: Any, trace: _Trace | None, function: Callable[..., list[Tensor]]) -> None:
        self.spec, self.trace, self.function, self.forms = spec, trace, function, list[_Form]()

    def current(self) -> list[Tensor] | None:
        """The captured tensors as they are now, None if the trace does not hold any more."""
        tensors: list[Tensor] = []
        if self.trace is None:
            return tensors
        for read, key, value in self.trace.watched:
            if not _same(read(key), value):
                return None
        for places, metadata in self.trace.captured:
            found = [read(key) for read, key in places]
            if any(x is not found[0] for x in found) or _metadata(found[0]) != metadata:
                return None
            tensors.append(found[0])
        return tensors

    def changed(self) -> str | None:
        """The name of a watched value that has changed; a module's mode may."""
        watched = self.trace.watched if self.trace else []
        return next((key for read, key, value in watched if key != "training" and not _same(read(key), value)), None)

    def run(self, flat: Sequence[Tensor], captured: Sequence[Tensor]) -> list[Tensor]:
        """The outputs."""
        kind = flat[0].device.type
        if self.trace and torch.is_autocast_enabled(kind):  # the trace contains the casts
            with torch.autocast(kind, enabled=False):
                return self.function(*flat, *captured)
        return self.function(*flat, *captured)

    def made(self, values: Sequence[Tensor], keeps: bool) -> list[_Made]:
        """The rows of every parameter."""
        made, start = [], 0
        for form in self.forms:
            made.append(_Made(form, values[start : (start := start + len(form.nodes))], keeps))
        return made

    def tree(self, leaves: Sequence[Tensor]) -> Tree:
        """Leaves in the structure of the parameters."""
        return tree_unflatten(leaves, self.spec)


def _rows_program(loss: Callable[[Tree, Tree], Tensor], parameters: Tree, batch: Tree) -> _Program:
    """Trace `vmap(grad(loss))` and cut it where rows would be made."""
    flat, spec = tree_flatten((parameters, batch))
    size, structure = len(flat[-1]), tree_flatten(parameters)[1]
    gradients = vmap(grad(loss), (None, 0), randomness="different")

    def function(*flat: Tensor) -> Any:
        return tree_leaves(gradients(*tree_unflatten(flat, spec)))

    trace = _trace(loss, function, flat)
    if trace is None:
        return _untraced(function, structure, flat)
    output = _output(trace.graph)
    reader = _Reader(size)
    with trace.graph.inserting_before(output):
        forms = [_Form(node, size, reader) for node in output.args[0]]
        owned = _owned([form.output for form in forms if not form.terms])
        for form in forms:
            form.nodes = [node for term in form.terms for use in term.uses for node in use.nodes] or [next(owned)]
    output.args = ([node for form in forms for node in form.nodes],)
    program = _Program(structure, trace, _finished(trace.graph))
    program.forms = forms
    return program


def _sum_program(loss: Callable[[Tree, Tree], Tensor], parameters: Tree, batch: Tree, weights: Tensor) -> _Program:
    """Trace the gradient of the weighted loss; or of every loss, where that is not the same or cannot be traced."""
    flat, spec = tree_flatten((parameters, batch))
    losses = vmap(loss, (None, 0), randomness="different")

    def weighted(parameters: Tree, batch: Tree, weights: Tensor) -> Tensor:
        return (losses(parameters, batch) * weights).sum()

    def function(*flat: Tensor) -> Any:
        return tree_leaves(grad(weighted)(*tree_unflatten(flat[:-1], spec), flat[-1]))

    structure = tree_flatten(parameters)[1]
    trace = _trace(loss, function, [*flat, weights])
    if trace is None or any(_counts_the_batch(node) for node in trace.graph.nodes):
        count = len(flat)
        program = _rows_program(loss, parameters, batch)
        rows = program.function
        program.function = lambda *values: rows(*values[:count], *values[count + 1 :])
        return program
    output = _output(trace.graph)
    with trace.graph.inserting_before(output):
        output.args = (list(_owned(output.args[0])),)
    return _Program(structure, trace, _finished(trace.graph))


def _counts_the_batch(node: Node) -> bool:
    """Whether what it computes is no derivative: cotangents divided by how often the batch names an entry."""
    return node.target is aten.embedding_dense_backward.default and node.args[4]


def _untraced(function: Callable[..., list[Tensor]], structure: Any, flat: Sequence[Tensor]) -> _Program:
    """A program that runs the transformations themselves; raises what they raise."""
    function(*flat)
    warnings.warn(
        "the loss cannot be traced, every call runs the transformations: right, but as slow as vmap(grad)",
        RuntimeWarning,
        stacklevel=6,
    )
    program = _Program(structure, None, function)
    program.forms = [_Form(None, len(flat[-1]), None) for _ in range(structure.num_leaves)]
    return program


# --- Traces ----------------------------------------------------------------------------------------------------------


class _Trace:
    """A graph of ATen operations, none of which writes into memory, and what it depends on besides its arguments.

    Attributes:
        graph: its placeholders are the arguments, then the captured tensors.
        captured: for each captured tensor, where it is found (read, key), and its metadata.
        watched: (read, key, value) of the other things.
    """

    def __init__(self, graph: Any, tensors: Sequence[Tensor], variables: Sequence[tuple[Callable[..., Any], str]]):
        self.graph = graph
        found = [(read, key, read(key)) for read, key in variables]
        places: dict[Any, list[tuple[Callable[..., Any], str]]] = {}
        for read, key, value in found:
            if isinstance(value, torch.Tensor):
                places.setdefault(_identity(value), []).append((read, key))
        self.captured = [(places.get(_identity(x), [(partial(_constant, x), "")]), _metadata(x)) for x in tensors]
        self.watched = [(read, key, value) for read, key, value in found if not isinstance(value, torch.Tensor)]


def _trace(loss: Callable[..., Tensor], function: Callable[..., list[Tensor]], flat: Sequence[Tensor]) -> _Trace | None:
    """The graph of `function`, None if it has none that can be relied on."""
    flat = [x.detach() for x in flat]
    modules: dict[torch.nn.Module, None] = {}
    hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda module, _: modules.update({module: None}))
    try:
        with _Scalars() as scalars:
            module = make_fx(function)(*flat)
        captured = _lift(module)
        if _writes(module.graph):
            module = make_fx(functionalize(module))(*flat, *captured)
    except Exception:  # the transformations, run without being traced, say better what they cannot do
        return None
    finally:
        hook.remove()
    if scalars.seen or _writes(module.graph):
        return None
    _simplify(module.graph)
    return _Trace(module.graph, captured, [*_variables(loss), *_attributes(modules)])


class _Scalars(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether Python reads the value of a tensor, which the trace would freeze."""

    seen = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= function is aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def _variables(loss: Callable[..., Any]) -> Iterator[tuple[Callable[..., Any], str]]:
    """Closure cells and globals that a function, and the Python functions among them, refer to: (read, key)."""
    pending: list[Any] = [loss]
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if isinstance(function, partial):
            pending += [function.func, *function.args, *function.keywords.values()]
        elif isinstance(function, types.MethodType):
            pending.append(function.__func__)
        elif isinstance(function, types.FunctionType) and not function.__module__.startswith("torch."):
            cells = zip(function.__closure__ or (), function.__code__.co_freevars, strict=True)
            found: list[tuple[Callable[..., Any], str]] = [
                *((partial(getattr, cell, "cell_contents"), name) for cell, name in cells),
                *((function.__globals__.get, name) for name in _globals(function.__code__)),
            ]
            pending += [read(key) for read, key in found]
            yield from found


def _globals(code: types.CodeType) -> set[str]:
    """The names of the globals that a function's code reads."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


def _attributes(modules: Iterable[torch.nn.Module]) -> Iterator[tuple[Callable[..., Any], str]]:
    """Plain attributes and tensors of modules: (read, key)."""
    for module in modules:
        for key, value in vars(module).items():
            if value is None or isinstance(value, bool | int | float | str):
                yield vars(module).get, key
        for tensors in (module._parameters, module._buffers):
            for key in tensors:
                yield tensors.get, key


def _constant(value: Any, _: str) -> Any:
    return value


def _same(value: Any, known: Any) -> bool:
    """Whether a watched value is what it was."""
    plain = type(value) is type(known) and isinstance(value, bool | int | float | complex | str)
    return value is known or (plain and value == known)


def _metadata(x: Any) -> Any:
    """What a graph takes for granted of a captured tensor."""
    return (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, torch.Tensor) else None


def _identity(x: Any) -> Any:
    """The same for two tensors that are the same memory, seen in the same way."""
    return (x.data_ptr(), *_metadata(x))


# --- Forms -----------------------------------------------------------------------------------------------------------


class _Form:
    """How one parameter's rows, (B, *shape), come from outputs of the graph: a sum of terms, or, without, an output.

    Attributes:
        output: what the graph computes if there are no terms.
        terms: products and lookups. Their places, in a row's memory, may be the same, or may overlap.
        groups: numbers of the terms whose norms are found together; none if only rows tell the norm.
        strides: of the rows in memory of shape (B, length).
        full: whether the products alone write all of the memory, each of it once.
    """

    def __init__(self, output: Node, size: int, reader: _Reader | None) -> None:
        self.output, self.size, self.nodes, self.groups = output, size, [output], list[list[int]]()
        self.terms: list[_Product | _Lookup] = []
        self.memory: Tensor = None
        self.touched: list[tuple[_Lookup, Tensor]] = []
        if reader is None or not output.meta["val"].is_floating_point():
            return
        self.shape = _shape(output)[1:]
        self.length = math.prod(self.shape)
        for order in itertools.permutations(range(len(self.shape))) if len(self.shape) < 6 else ():
            memory = _laid_out(size, self.shape, order)
            try:
                self.terms = _terms(_parts(output, memory), size, reader)
            except RuntimeError:  # what a view says that cannot be made without a copy
                continue
            self.strides = memory.stride()
            break
        self._group()

    def _group(self) -> None:
        products = [term for term in self.terms if isinstance(term, _Product)]
        lookups = [term for term in self.terms if isinstance(term, _Lookup)]
        times = torch.zeros((1, self.length if products else 0), dtype=torch.uint8)
        for term in products:
            term.among(times).add_(1)
        apart, covered = bool((times <= 1).all()), bool((times >= 1).all())
        self.apart, self.full = apart, apart and covered and bool(products)
        if apart and not lookups:
            self.groups = [[number] for number in range(len(products))]
        elif len(products) <= 1 and len(lookups) == 1 and (not products or products[0].is_table(lookups[0])):
            self.groups = [list(range(len(self.terms)))]

    def new_memory(self, like: Tensor, count: int) -> Tensor:
        """Memory for the rows of `count` instances, (count, length)."""
        return (like.new_empty if self.full else like.new_zeros)((count, self.length))

    def write(self, factors: Sequence[Any], memory: Tensor, dirty: bool = False) -> None:
        """Write rows into memory, which holds zeros, or, if dirty, the rows of the last call."""
        if dirty and not self.apart:
            memory.zero_()
        elif dirty and not self.full:
            for lookup, places in self.touched:  # only what the last call wrote is not zero
                memory.view(-1, lookup.width).index_fill_(0, places, 0)
        for term, factor in zip(self.terms, factors, strict=True):  # the lookups come last
            term.write(memory, factor, add=not self.apart)


class _Made:
    """The rows of one parameter in one call: the factors, and what has been made of them."""

    def __init__(self, form: _Form, values: Sequence[Tensor], keeps: bool) -> None:
        self.form, self.values, self.keeps = form, values, keeps
        self.found: list[Any] | None = None
        self.flat: Tensor = None

    def factors(self) -> list[Any]:
        """The factors of every term."""
        if self.found is None:
            self.found, start = [], 0
            for term in self.form.terms:
                count = 2 * len(term.uses)
                self.found.append(term.factors(self.values[start : start + count]))
                start += count
        return self.found

    def vectors(self) -> Tensor:
        """The rows as they lie in memory, (B, length)."""
        form = self.form
        if self.flat is None and not form.terms:
            self.flat = self.values[0].reshape(form.size, -1)
        elif self.flat is None:
            dirty = self.keeps and form.memory is not None
            self.flat = form.memory if dirty else form.new_memory(self.values[-1], form.size)
            form.write(self.factors(), self.flat, dirty)
            if self.keeps:
                form.memory = self.flat
                lookups = zip(form.terms, self.factors(), strict=True)
                form.touched = [(term, factors[2]) for term, factors in lookups if isinstance(term, _Lookup)]
        return self.flat

    def rows(self) -> Tensor:
        """The rows, (B, *shape)."""
        form = self.form
        return self.vectors().as_strided((form.size, *form.shape), form.strides) if form.terms else self.values[0]

    def norms(self) -> tuple[Tensor, Tensor]:
        """The norm of every row, (B,), and whether digits are in doubt, (B,), None if none are."""
        found = list[tuple[Tensor, Tensor]]()
        for group in self.form.groups:
            terms, factors = [self.form.terms[number] for number in group], [self.factors()[number] for number in group]
            if (norms := _group_norms(terms, factors, self.form.size)) is None:
                found.clear()
                break
            found.append(norms)
        if not found:
            return vector_norm(self.vectors(), dim=1), None
        norms = vector_norm(torch.stack([norms for norms, _ in found]), dim=0) if len(found) > 1 else found[0][0]
        doubts = [doubt for _, doubt in found if doubt is not None]
        return norms, torch.stack(doubts).any(0) if len(doubts) > 1 else doubts[0] if doubts else None

    def exact_norms(self, instances: Tensor) -> Tensor:
        """The norms of the rows of some instances, from the rows."""
        form = self.form
        factors = [t.some(f, instances, form.size) for t, f in zip(form.terms, self.factors(), strict=True)]
        memory = form.new_memory(self.values[-1], len(instances))
        form.write(factors, memory)
        return vector_norm(memory, dim=1)

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the rows times their weights, (*shape)."""
        form = self.form
        if self.flat is not None or not form.terms:
            rows = self.vectors()
            total = torch.mv(rows.t(), weights if weights.dtype == rows.dtype else weights.to(rows.dtype))
            if not form.terms:
                return total.view(self.values[0].shape[1:])
        else:
            total = form.new_memory(self.values[-1], 1)
            for term, factors in zip(form.terms, self.factors(), strict=True):
                term.weighted(total, factors, weights, add=not form.apart)
        return total.as_strided(form.shape, form.strides[1:])


def _group_norms(group: Sequence[Any], factors: Sequence[Any], size: int) -> tuple[Tensor, Tensor] | None:
    """Norms and doubts of terms at the same place; None if the rows are cheaper."""
    if len(group) == 1 and isinstance(group[0], _Lookup):
        return group[0].norms(factors[0]), None
    if (found := group[0].norms(factors[0], size)) is None:
        return None
    product, reach = found
    if len(group) == 1:
        return _judged(product, reach, size)
    lookup = group[1].norms(factors[1])
    squares = product.square() + lookup.square() + 2 * group[1].inner(factors[1], *factors[0])
    return _judged(squares.clamp(min=0).sqrt(), (product if reach is None else reach) + lookup, size)


def _judged(norms: Tensor, reach: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Norms per instance, and whether they are so small beside the contributions' norms that digits are lost."""
    doubt = None if reach is None else ~(norms > torch.finfo(norms.dtype).eps ** 0.25 * reach) & (reach != 0)
    if len(norms) != size:  # several products make up a row
        norms = vector_norm(norms.view(size, -1), dim=1)
        doubt = None if doubt is None else doubt.view(size, -1).any(1)
    return norms, doubt


# --- Terms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Operation:
    """An operation that makes rows from two operands: a product, or a lookup's scatter.

    Attributes:
        nodes: the operands.
        shape: of the product, (N, m, n); of the lookup, (B, entries, width).
        prepare: from the operands' values, a (N, m, T) and b (N, T, n); or ids (B, S) and cotangents (B, S, width).
        unfold: sees a tensor of the operation's shape as `shape`; fails if that takes a copy.
        positions: T, or S.
        lookup: whether it is one.
    """

    nodes: tuple[Node, Node]
    shape: tuple[int, ...]
    prepare: Callable[[Tensor, Tensor], Pair]
    unfold: Callable[[Tensor], Tensor]
    positions: int
    lookup: bool = False


@dataclass(frozen=True)
class _Use:
    """One operation that adds to a term."""

    nodes: tuple[Node, Node]
    prepare: Callable[[Tensor, Tensor], Pair]
    factor: float

    def __call__(self, a: Tensor, b: Tensor) -> Pair:
        a, b = self.prepare(a, b)
        return a, b if self.factor == 1 else b * self.factor


class _Product:
    """A batch of products a (N, m, T) times b (N, T, n) at one place of the rows; N is B, or B times groups."""

    def __init__(self, operation: _Operation, place: Tensor, factor: float, size: int, length: int) -> None:
        place = operation.unfold(place)
        count, m, n = place.shape
        self.groups = count // size
        if size > 1 and place.stride(0) * self.groups != length:
            raise RuntimeError("the instances do not follow one another")
        strides = [0 if length == 1 else stride for length, stride in zip(place.shape, place.stride(), strict=True)]
        prepare, self.steps, self.shape = operation.prepare, (place.stride(0), *place.stride()[1:]), (m, n)
        if strides[1] < strides[2]:  # so that all uses of a weight agree, and rows are written along the last axis
            prepare, self.steps, self.shape = (
                partial(_turned, prepare),
                (self.steps[0], self.steps[2], self.steps[1]),
                (n, m),
            )
            strides = [strides[0], strides[2], strides[1]]
        self.offset, self.positions, self.uses = (
            place.storage_offset(),
            operation.positions,
            [_Use(operation.nodes, prepare, factor)],
        )
        self.key = (count, *self.shape, *strides[1:], self.offset)

    def join(self, other: _Product) -> None:
        """Take over the uses of another term at the same place."""
        self.uses += other.uses
        self.positions += other.positions

    def is_table(self, lookup: _Lookup) -> bool:
        """Whether the place is all of a table, entry after entry."""
        return self.groups == 1 and self.shape == (lookup.entries, lookup.width) and self.steps[1:] == (lookup.width, 1)

    def among(self, memory: Tensor) -> Tensor:
        """The place in memory of shape (count, length): (count times groups, m, n)."""
        return memory.as_strided((len(memory) * self.groups, *self.shape), self.steps, self.offset)

    def factors(self, values: Sequence[Tensor]) -> Pair:
        """All uses, joined along T."""
        pairs = [use(a, b) for use, a, b in zip(self.uses, values[::2], values[1::2], strict=True)]
        if len(pairs) == 1:
            return pairs[0]
        return torch.cat([a.mT for a, _ in pairs], 1).mT, torch.cat([b for _, b in pairs], 1)

    def some(self, factors: Pair, instances: Tensor, size: int) -> Pair:
        """The factors of some instances."""
        a, b = (x.unflatten(0, (size, -1))[instances].flatten(0, 1) for x in factors)
        return a, b

    def write(self, memory: Tensor, factors: Pair, add: bool) -> None:
        """Write the products into (count, length), or add them."""
        a, b = factors
        if a.shape[2] == 1 and not add:
            torch.mul(a, b, out=self.among(memory))
        else:
            self.among(memory).baddbmm_(a, b, beta=int(add))

    def norms(self, factors: Pair, size: int) -> tuple[Tensor, Tensor] | None:
        """The norms (N,) and, unless T = 1, the sums of the contributions' norms; None if the rows are cheaper."""
        (m, n), (a, b) = self.shape, factors
        if self.positions * (m + n) * (2 if self.positions == 1 else 1) >= m * n:
            return None
        if self.positions == 1:
            return vector_norm(a, dim=(1, 2)) * vector_norm(b, dim=(1, 2)), None
        if torch.finfo(a.dtype).bits < 32:
            return None
        a, b = a.mT @ a, b @ b.mT
        reach = (a.diagonal(0, 1, 2) * b.diagonal(0, 1, 2)).sqrt().sum(1)
        return vecdot(a.flatten(1), b.flatten(1)).clamp(min=0).sqrt(), reach

    def weighted(self, total: Tensor, factors: Pair, weights: Tensor, add: bool) -> None:
        """Write the weighted sum of the products into (1, length), or add it."""
        weights = weights if weights.dtype == total.dtype else weights.to(total.dtype)
        weights = (weights if self.groups == 1 else weights.repeat_interleave(self.groups)).view(-1, 1, 1)
        a, b = factors
        a, b = (a * weights, b) if a.numel() < b.numel() else (a, b * weights)
        if self.groups > 1:
            a, b = (x.unflatten(0, (-1, self.groups)).transpose(0, 1) for x in (a.mT, b))
            self.among(total).baddbmm_(a.flatten(1, 2).mT, b.flatten(1, 2), beta=int(add))
            return
        a, b = (a.squeeze(2), b.squeeze(1)) if self.positions == 1 else (a.mT.flatten(0, 1), b.flatten(0, 1))
        total.as_strided(self.shape, self.steps[1:], self.offset).addmm_(a.t(), b, beta=int(add))


class _Lookup:
    """Cotangents (B, S, width), added up at the entries (B, S) of a table; the rows are (B x entries, width)."""

    def __init__(self, operation: _Operation, place: Tensor, factor: float, size: int, length: int) -> None:
        place = operation.unfold(place)
        _, self.entries, self.width = operation.shape
        if not place.is_contiguous() or place.numel() != size * length:
            raise RuntimeError("the table does not lie entry after entry")
        self.uses, self.key = [_Use(operation.nodes, operation.prepare, factor)], "lookup"
        self.slots: Tensor = None

    def join(self, other: _Lookup) -> None:
        """Take over the uses of another term."""
        self.uses += other.uses

    def factors(self, values: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """All uses: ids (B, S), cotangents (B, S, width), and the places of the ids in the rows, (B x S,)."""
        pairs = [use(ids, dy) for use, ids, dy in zip(self.uses, values[::2], values[1::2], strict=True)]
        ids, dy = (torch.cat(parts, 1) if len(parts) > 1 else parts[0] for parts in zip(*pairs, strict=True))
        return ids, dy, self.places(ids)

    def places(self, ids: Tensor) -> Tensor:
        """Where entries lie in the rows, taken as (count x entries, width)."""
        starts = torch.arange(0, len(ids) * self.entries, self.entries, device=ids.device)
        return (ids + starts[:, None]).view(-1)

    def some(self, factors: Sequence[Tensor], instances: Tensor, _: int) -> tuple[Tensor, Tensor, Tensor]:
        """The factors of some instances."""
        ids, dy = factors[0][instances], factors[1][instances]
        return ids, dy, self.places(ids)

    def write(self, memory: Tensor, factors: Sequence[Tensor], add: bool) -> None:
        """Add the cotangents to rows (count, length)."""
        _, dy, places = factors
        memory.view(-1, self.width).index_add_(0, places, dy.flatten(0, 1))

    def norms(self, factors: Sequence[Tensor]) -> Tensor:
        """The norms, (B,): cotangents of the same entry are added up in the place of one of them, without a table."""
        _, dy, places = factors
        if self.slots is None:
            self.slots, self.order = (
                places.new_empty(len(dy) * self.entries),
                torch.arange(len(places), device=dy.device),
            )
        self.slots[places] = self.order
        sums = torch.zeros_like(dy.flatten(0, 1)).index_add_(0, self.slots[places], dy.flatten(0, 1))
        return vector_norm(sums.view(len(dy), -1), dim=1)

    def inner(self, factors: Sequence[Tensor], a: Tensor, b: Tensor) -> Tensor:
        """The inner product of every row with a product a (B, entries, T) by b (B, T, width), (B,)."""
        ids, dy, _ = factors
        seen = a.mT.gather(2, ids[:, None].expand(-1, a.shape[2], -1))  # (B, T, S)
        return vecdot(seen.flatten(1), (b @ dy.mT).flatten(1))

    def weighted(self, total: Tensor, factors: Sequence[Tensor], weights: Tensor, add: bool) -> None:
        """Add the weighted sum of the cotangents to (1, length)."""
        ids, dy, _ = factors
        scaled = (dy * weights.to(dy.dtype).view(-1, 1, 1)).flatten(0, 1)
        total.view(-1, self.width).index_add_(0, ids.reshape(-1), scaled)


def _turned(prepare: Callable[[Tensor, Tensor], Pair], a: Tensor, b: Tensor) -> Pair:
    """The factors of the transposed product."""
    a, b = prepare(a, b)
    return b.mT, a.mT


class _Windows:
    """A convolution's kernel, as cotangents (N, m, positions) by what it sees (N, positions, kernel x channels).

    N is the batch size times groups. An instance may be a set of images, whose positions are joined.
    """

    def __init__(self, node: Node, size: int) -> None:
        dy, x, _, _, *self.how, transposed, _, groups, _ = node.args[0].args
        dy, x = (x, dy) if transposed else (dy, x)
        outputs, channels, *self.kernel = _shape(node)
        self.shape, self.channels, self.groups = (
            (groups, outputs // groups, channels * math.prod(self.kernel)),
            channels,
            groups,
        )
        self.images, _, *self.places = _shape(dy)
        self.image = _shape(x)[2:]
        self.positions = self.images * math.prod(self.places)
        self.memory: Tensor = None
        self.nodes = (_upstream(dy, size), _upstream(x, size)) if self.images == 1 else (dy, x)

    def unfold(self, place: Tensor) -> Tensor:
        """A kernel (N x m, channels, *kernel) as (N, m, kernel x channels)."""
        return place.view(*self.shape[:2], self.channels, *self.kernel).movedim(2, -1).view(self.shape)

    def prepare(self, dy: Tensor, x: Tensor) -> Pair:
        """The factors."""
        if self.images == 1:
            dy, x = dy.reshape(self.groups, -1, *self.places), x.reshape(self.groups, -1, *self.image)
        else:
            dy, x = (y.unflatten(1, (self.groups, -1)).transpose(0, 1) for y in (dy, x))
            dy, x = dy.transpose(1, 2).flatten(2, 3), x.flatten(0, 1)
        stride, padding, dilation = self.how
        x = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
        x = F.pad(x, [p for p in reversed(padding) for _ in range(2)]) if any(padding) else x
        for axis, (length, step, apart, count) in enumerate(
            zip(self.kernel, stride, dilation, self.places, strict=True), 2
        ):
            x = x.unfold(axis, apart * (length - 1) + 1, step)[..., ::apart].narrow(axis, 0, count)
        x = x.permute(0, *range(2, x.ndim), 1)  # (N x images, positions..., kernel..., channels)
        if self.memory is None:
            self.memory = x.new_empty(x.shape)
        return dy.flatten(2), self.memory.copy_(x).view(self.groups, self.positions, -1)


# --- Reading a graph -------------------------------------------------------------------------------------------------


def _parts(output: Node, place: Tensor) -> list[tuple[Node, Tensor, float]]:
    """What a node is the sum of: operations, where in its memory each adds to it, and times what.

    `place` is a tensor without memory, of the node's shape; every step back to its operands undoes a view of it, and
    fails with RuntimeError where that is none.
    """
    found, pending = [], [(output, place, 1.0)]
    while pending:
        node, place, factor = pending.pop()
        operands = _operands(node, place, factor)
        found += [(node, place, factor)] if operands is None else []
        pending += operands or []
    return found


def _operands(node: Node, place: Tensor, factor: float) -> list[tuple[Node, Tensor, float]] | None:
    """The operands that a node is put together from, each with its place and factor; None if it is computed."""
    target, args = node.target, node.args
    if node.op != "call_function" or not args or node.kwargs:
        return None
    x, *rest = args
    if target in RESHAPES | SQUEEZES or (target is aten.expand.default and math.prod(_shape(x)) == place.numel()):
        return [(x, place.view(_shape(x)), factor)]
    if target is aten.transpose.int or target is aten.t.default:
        return [(x, target(place, *rest), factor)]
    if target is aten.permute.default:
        return [(x, place.permute([rest[0].index(axis) for axis in range(place.ndim)]), factor)]
    if target in ALIASES or target is aten.clone.default:
        return [(x, place, factor)]
    if target is aten.neg.default:
        return [(x, place, -factor)]
    if target in SCALINGS and isinstance(rest[0], int | float):
        return [(x, place, SCALINGS[target](factor, rest[0]))]
    if target is aten.add.Tensor and all(_shape(y) == _shape(node) for y in args):
        return [(y, place, factor) for y in args]
    if target is aten.cat.default:
        axis = rest[0] if rest else 0
        return [(y, part, factor) for y, part in zip(x, place.split([_shape(y)[axis] for y in x], axis), strict=True)]
    if target is aten.stack.default:
        return [(y, part, factor) for y, part in zip(x, place.unbind(*rest), strict=True)]
    if target is aten.select_backward.default:
        return [(x, place.select(*rest[1:]), factor)]
    if target is aten.slice_backward.default:
        return [(x, aten.slice.Tensor(place, *rest[1:]), factor)]
    return None


def _terms(parts: Sequence[tuple[Node, Tensor, float]], size: int, reader: _Reader) -> list[_Product | _Lookup]:
    """The terms of a parameter's rows, products first; none if one of the parts is of no known kind."""
    terms: dict[Any, Any] = {}
    for node, place, factor in parts:
        operation = reader.operation(node)
        if operation is None:
            return []
        length = place.untyped_storage().nbytes() // place.element_size() // size
        term = (_Lookup if operation.lookup else _Product)(operation, place, factor, size, length)
        if (known := terms.setdefault(term.key, term)) is not term:
            known.join(term)
    return sorted(terms.values(), key=lambda term: isinstance(term, _Lookup))


def _laid_out(size: int, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Rows without memory, (B, *shape), whose axes lie in this order, the last one closest."""
    memory = torch.empty((size, *(shape[axis] for axis in order)), device="meta")
    return memory.permute(0, *(1 + order.index(axis) for axis in range(len(shape))))


class _Reader:
    """Knows the operations that make rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: dict[Node, _Operation | None] = {}

    def operation(self, node: Node) -> _Operation | None:
        """The operation of a node, None if it is of no known kind."""
        if node not in self.known:
            if node.op != "call_function":
                return None
            self.known[node] = self._product(node) or self._convolution(node) or self._lookup(node)
        return self.known[node]

    def _product(self, node: Node) -> _Operation | None:
        shape, target = _shape(node), node.target
        pair: Any = None
        if target is aten.bmm.default and shape[0] % self.size == 0:
            pair = self._through(node) or node.args
        elif target is aten.mm.default:
            pair = self._through(node)
            shape = (self.size, shape[0] // self.size, shape[1])
        elif target is aten.mul.Tensor and len(shape) == 3 and shape[0] % self.size == 0:
            columns, lines = (*shape[:2], 1), (shape[0], 1, shape[2])
            pair = next(
                ((a, b) for a, b in (node.args, node.args[::-1]) if (_shape(a), _shape(b)) == (columns, lines)), None
            )
        if pair is None:
            return None
        return _Operation(tuple(pair), shape, lambda a, b: (a, b), lambda place: place.view(shape), _shape(pair[0])[2])

    def _through(self, node: Node) -> Pair | None:
        """The factors of rows multiplied by one matrix for all instances, as of a weight that is itself a product."""
        left, right = node.args
        matrix = aten.matmul.default
        if node.target is aten.mm.default:
            inner = self._inner(left)
            return inner and (inner[0], _computed(node.graph, matrix, inner[1], right))
        if left.target is aten.expand.default and len(_shape(left.args[0])) == 2 and (inner := self._inner(right)):
            return _computed(node.graph, matrix, left.args[0], inner[0]), inner[1]
        if right.target is aten.expand.default and len(_shape(right.args[0])) == 2 and (inner := self._inner(left)):
            return inner[0], _computed(node.graph, matrix, inner[1], right.args[0])
        return None

    def _inner(self, node: Node) -> Pair | None:
        """The factors of a product, if they are smaller than it; a turned product has turned factors."""
        while node.target in RESHAPES and _shape(node)[-1:] == _shape(node.args[0])[-1:]:
            node = node.args[0]
        if node.target is aten.transpose.int and set(node.args[1:]) in ({1, 2}, {-1, -2}):
            inner = self._inner(node.args[0])
            return inner and tuple(_computed(node.graph, aten.transpose.int, x, 1, 2) for x in inner[::-1])
        if node.op != "call_function" or len(_shape(node) or ()) != 3 or _shape(node)[0] != self.size:
            return None
        product = self._product(node)
        return product.nodes if product and product.positions <= min(product.shape[1:]) else None

    def _convolution(self, node: Node) -> _Operation | None:
        if node.target is not operator.getitem or node.args[1] != 1:
            return None
        if node.args[0].target is not aten.convolution_backward.default:
            return None
        *_, groups, mask = node.args[0].args
        if groups % self.size or list(mask) != [False, True, False]:
            return None
        seen = _Windows(node, self.size)
        return _Operation(seen.nodes, seen.shape, seen.prepare, seen.unfold, seen.positions)

    def _lookup(self, node: Node) -> _Operation | None:
        size, target, args, shape = self.size, node.target, node.args, _shape(node)
        if target is aten.select_scatter.default and args[1].target is aten.fill.Scalar and args[1].args[1] == 0:
            return self._masked(args[0], *args[2:])
        if (
            target is aten.embedding_dense_backward.default
            and args[3:] == (-1, False)
            and args[1].target is aten.add.Tensor
        ):
            ids, offset = args[1].args[:2]
            entries = args[2] // size
            if _counts(offset, size, (0, args[2], entries)):
                return self._scatter(ids, args[0], (size, entries, shape[1]))
        if target is aten.index_put.default and args[0].target in (aten.new_zeros.default, aten.zeros.default):
            values, places = args[2], [*args[1], None]
            if args[3:] != (True,) or len(places) != 3 or None in places[:2]:
                return None
            first, ids, _ = places
            dense = math.prod(_shape(values)) == math.prod(_shape(ids)) * math.prod(shape[2:])
            if dense and _counts(first, size, (size,)) and _shape(ids)[:1] == (size,):
                positive = _computed(node.graph, aten.remainder.Scalar, ids, shape[1])
                return self._scatter(positive, values, (size, shape[1], math.prod(shape[2:])))
        return None

    def _scatter(self, ids: Node, dy: Node, shape: tuple[int, ...]) -> _Operation:
        size, _, width = shape

        def prepare(ids: Tensor, dy: Tensor) -> Pair:
            return ids.reshape(size, -1), dy.reshape(size, -1, width)

        positions = math.prod(_shape(dy)[1:]) // width
        return _Operation((ids, dy), shape, prepare, lambda place: place.view(shape), positions, lookup=True)

    def _masked(self, node: Node, axis: int, entry: int) -> _Operation | None:
        """A lookup of which one entry takes no part, as `padding_idx`."""
        while node.target in RESHAPES:
            node = node.args[0]
        inner = self._lookup(node)
        if inner is None or axis != 1:
            return None

        def prepare(ids: Tensor, dy: Tensor) -> Pair:
            ids, dy = inner.prepare(ids, dy)
            return ids, dy.masked_fill((ids == entry)[..., None], 0)

        return replace(inner, prepare=prepare)


def _counts(node: Node, size: int, arguments: tuple[int, ...]) -> bool:
    """Whether a node numbers the instances: arange(*arguments), seen as (B, 1, ...)."""
    shape = _shape(node)
    while node.target in VIEWS:
        node = node.args[0]
    numbers = shape[:1] == (size,) == (math.prod(shape),)
    return numbers and "arange" in str(node.target) and tuple(node.args) == arguments


def _shape(node: Any) -> Any:
    """The shape of what a node computes; None if it is no tensor."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _replay(chain: Sequence[Node], x: Tensor) -> Tensor:
    """The views, applied to a tensor without memory; None if one of them would have to copy it."""
    for node in chain:
        try:
            x = (aten.view.default if node.target in RESHAPES else node.target)(x, *node.args[1:])
        except RuntimeError:
            return None
    return x


def _upstream(node: Node, size: int) -> Node:
    """The earliest node that holds the same numbers in the same order, instances first."""
    found, chain = node, list[Node]()
    while node.target in VIEWS:
        node, chain = node.args[0], [node, *chain]
        same = _replay(chain, torch.empty(_shape(node), device="meta"))
        found = node if _shape(node)[:1] == (size,) and same is not None and same.is_contiguous() else found
    return found


# --- Changing a graph ------------------------------------------------------------------------------------------------


def _output(graph: Any) -> Node:
    """The node that returns."""
    return next(node for node in graph.nodes if node.op == "output")


def _computed(graph: Any, target: Any, *args: Any) -> Node:
    """A new node."""
    node = graph.call_function(target, args)
    blanks = torch.fx.node.map_arg(args, lambda x: torch.empty(_shape(x), dtype=x.meta["val"].dtype, device="meta"))
    node.meta["val"] = target(*blanks)
    return node


def _owned(nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes, copied if they may share memory with an input or with one another, or with themselves."""
    roots: set[Node] = set()
    for node in nodes:
        root = node
        while root.target in VIEWS:
            root = root.args[0]
        value = node.meta["val"]
        spread = any(stride == 0 and count > 1 for count, stride in zip(value.shape, value.stride(), strict=True))
        shared = root.op != "call_function" or root.target is operator.getitem or root in roots
        roots.add(root)
        yield node.graph.call_function(aten.clone.default, (node,)) if shared or spread else node


def _lift(module: Any) -> list[Tensor]:
    """Make inputs of the tensors that the loss captured, so that they are read anew by every call; returns them."""
    captured: dict[Any, tuple[Node, Tensor]] = {}
    graph = module.graph
    start = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        value = operator.attrgetter(node.target)(module)
        if id(value) not in captured:
            with graph.inserting_before(start):
                placeholder = graph.placeholder(f"captured_{len(captured)}")
            placeholder.meta["val"] = value
            captured[id(value)] = placeholder, value
        node.replace_all_uses_with(captured[id(value)][0])
        graph.erase_node(node)
    module.recompile()
    return [value for _, value in captured.values()]


def _writes(graph: Any) -> bool:
    """Whether an operation writes into one of its operands; what is done with a graph relies on it that none does."""
    schemas = [getattr(node.target, "_schema", None) for node in graph.nodes if node.op == "call_function"]
    return any(schema is not None and schema.is_mutable for schema in schemas)


def _seeded(node: Node) -> bool:
    """Whether it draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _simplify(graph: Any) -> None:
    """Take out what changes nothing and what was computed before."""
    seen: dict[Any, Node] = {}
    for node in [node for node in graph.nodes if node.op == "call_function"]:
        if node.target in RESHAPES and node.args[0].target in RESHAPES:
            node.args = (node.args[0].args[0], node.args[1])
        key = (node.target, str(node.args), str(node.kwargs))
        if _changes_nothing(node):
            node.replace_all_uses_with(node.args[0])
        elif not _seeded(node) and seen.setdefault(key, node) is not node:
            node.replace_all_uses_with(seen[key])
    graph.eliminate_dead_code()
    for node in [node for node in graph.nodes if node.target is aten.add.Tensor and not node.kwargs]:
        _fuse(node)
    graph.eliminate_dead_code()


def _fuse(node: Node) -> None:
    """Make one operation of a product to which a vector is added."""
    for bias, y in (node.args, node.args[::-1]):
        product = y.args[0] if isinstance(y, torch.fx.Node) and y.target in RESHAPES else y
        shape = _shape(bias)
        if shape is None or len(shape) != 1 or getattr(product, "target", None) is not aten.mm.default:
            continue
        dtypes = {x.meta["val"].dtype for x in (bias, product, node)}
        if shape != _shape(product)[1:] or shape != _shape(y)[-1:] or len(dtypes) > 1:
            continue
        if len(product.users) > 1 or len(y.users) > 1:
            continue
        with node.graph.inserting_before(node):
            fused = _computed(node.graph, aten.addmm.default, bias, *product.args)
            node.replace_all_uses_with(_computed(node.graph, aten.view.default, fused, list(_shape(node))))
        return


def _changes_nothing(node: Node) -> bool:
    """Whether a node's value is its operand's, in the same layout."""
    shape = _shape(node)
    if shape is None or not node.args or shape != _shape(node.args[0]):
        return False
    if node.target in VIEWS:
        before = torch.empty(shape, device="meta")
        after = _replay([node], before)
        strides = zip(shape, before.stride(), after.stride(), strict=True)
        return all(stride == other for count, stride, other in strides if count > 1)
    if node.target is aten.clone.default:  # nothing is written into
        return bool(node.meta["val"].stride() == node.args[0].meta["val"].stride())
    one = node.target is aten.mul.Scalar and node.args[1] == 1
    single = node.target is aten.sum.dim_IntList and not node.kwargs
    return (one or single) and node.meta["val"].dtype == node.args[0].meta["val"].dtype


def _channels_last(graph: Any) -> None:
    """Images with their channels last, which pooling and windows want on a CPU; views may then have to copy."""
    nodes = list(graph.nodes)
    images = [node for node in nodes if node.target is aten.convolution.default and len(_shape(node)) == 4]
    if not images or images[0].meta["val"].device.type != "cpu":
        return
    if any(node.target is aten.as_strided.default for node in nodes):
        return
    places = [(x, uses) for node in images for x, uses in ((node.args[0], [node]), (node, list(node.users)))]
    # The cotangent of an image is laid out as the image, of which the trace keeps but the shape.
    for node in nodes:
        if node.target is aten.convolution_backward.default and len(_shape(node.args[1])) == 4 and not node.args[-1][1]:
            places.append((node.args[1], [node]))
        node.target = aten.reshape.default if node.target in RESHAPES else node.target
    for x, uses in places:
        with graph.inserting_after(x):
            last = graph.call_function(aten.contiguous.default, (x,), {"memory_format": torch.channels_last})
        last.meta["val"] = x.meta["val"]
        for use in uses:
            use.replace_input_with(x, last)


def _blank(node: Node) -> Tensor:
    """A tensor of the node's shape, for operations that look at nothing else."""
    value = node.meta["val"]
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _finished(graph: Any) -> Callable[..., list[Tensor]]:
    """The graph as a Python function, without what nobody needs; what does not depend on inputs is computed once."""
    graph.eliminate_dead_code()
    _channels_last(graph)
    constants: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.op != "call_function" or _seeded(node):
            continue
        if node.target in FILLED or all(x in constants for x in node.all_input_nodes):
            args, kwargs = torch.fx.node.map_arg(
                (node.args, node.kwargs), lambda x: constants[x] if x in constants else _blank(x)
            )
            constants[node] = node.target(*args, **kwargs)
    output, scope = _output(graph), dict[str, Any]()
    needed, last = {output}, dict[Node, Node]()
    for node in reversed(graph.nodes):
        if node in needed and node not in constants:
            needed.update(node.all_input_nodes)
            last |= {x: node for x in node.all_input_nodes if x not in last}

    def said(x: Any) -> str:
        if isinstance(x, list | tuple):
            return "[" + ", ".join(map(said, x)) + "]"
        if isinstance(x, torch.fx.Node) or x is None or isinstance(x, bool | int):
            return str(x)
        scope[key := f"constant_{len(scope)}"] = x
        return key

    lines = []
    for node in graph.nodes:
        if node.op == "call_function" and node in needed and node not in constants:
            scope["do_" + node.name] = getattr(node.target, "_op", node.target)
            words = [*map(said, node.args), *(f"{key}={said(value)}" for key, value in node.kwargs.items())]
            lines.append(f"{node.name} = do_{node.name}({', '.join(words)})")
            ended = [x.name for x in node.all_input_nodes if last[x] is node and x not in constants]
            lines += [f"del {', '.join(ended)}"] if ended else []
    heads = [node.name for node in graph.nodes if node.op == "placeholder"]
    scope |= {node.name: value for node, value in constants.items() if node in needed}
    returned = ", ".join(x.name + (".clone()" if x in constants else "") for x in output.args[0])
    exec("\n    ".join([f"def run({', '.join(heads)}):", *lines, f"return [{returned}]"]), scope)
    function: Callable[..., list[Tensor]] = scope["run"]
    return function
