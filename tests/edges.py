"""Tiny workloads whose gradients were derived by hand. Each stands for a kind of mistake that people have met.

`everything` runs all of them in one process of one framework, by the strategies that stand for it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import frameworks
from harness.core import strategy as strategy_
from harness.core.find_workloads import find
from harness.core.layouts import IMAGE, KERNEL, Layout
from harness.core.problem import CLIP_NORM, weights
from harness.core.workload import Arrays, Workload, cast
from tests import bound

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Edge:
    """A loss, its parameters and one batch; and the rows that are right, by hand."""

    losses: Callable[[Any, Any, Any], Any]
    parameters: Values
    batch: Values
    rows: Values = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    def workload(self, name: str) -> Workload:
        return Workload(
            name=name,
            losses=self.losses,
            parameters=lambda rng: _arrays(self.parameters),
            batch=lambda rng, size: {key: value[:size] for key, value in _arrays(self.batch).items()},
            docstring=name,
            path=Path(__file__),
            layouts=self.layouts,
        )


def _arrays(values: Values) -> Arrays:
    return {name: np.array(value) for name, value in values.items()}


def _twice_through_one_matrix(ops: Any, p: Any, batch: Any) -> Any:
    zero = p["w"][0] * 0
    return ops.sum(ops.dense(ops.dense(batch["x"], p["w"], zero), p["w"], zero), 1)


def _shifted_first_column(ops: Any, p: Any, batch: Any) -> Any:
    residual = ops.dense(batch["x"], p["w"], p["b"]) + batch["shift"]
    return ops.mean(residual * residual, 1)


def _norm_in_the_middle(ops: Any, p: Any, batch: Any) -> Any:
    below = batch["x"] * p["w"]  # (B, 1) x (2,)
    normed = ops.layer_norm(below, p["scale"], p["offset"], 3.0)
    return ops.sum(normed * p["sign"], 1)


def _chosen_by_the_largest(ops: Any, p: Any, batch: Any) -> Any:
    chosen = ops.argmax(batch["x"] * p["w"], 1)
    return ops.sum(ops.embedding(chosen, p["table"]), 1)


def _square_or_line(ops: Any, p: Any, batch: Any) -> Any:
    x = batch["x"]
    return ops.where(ops.less(0 * x, x), x * x * p["w"], 3 * p["w"])


def _root_above_one(ops: Any, p: Any, batch: Any) -> Any:
    z = batch["x"] + p["w"]
    below = ops.less(z, z * 0 + 1)
    return ops.where(below, z, ops.sqrt(ops.where(below, z * 0 + 1, z)))


def _root_of_what_is_positive(ops: Any, p: Any, batch: Any) -> Any:
    delta = batch["x"] * p["w"]
    positive = ops.less(delta * 0, delta)
    return ops.sum(ops.where(positive, ops.sqrt(ops.where(positive, delta, delta * 0 + 1)), delta * 0), 1)


def _used_by_some(ops: Any, p: Any, batch: Any) -> Any:
    return ops.where(batch["first"], p["a"] * batch["x"], p["b"] * batch["x"] * batch["x"])


def _summed_convolution(ops: Any, p: Any, batch: Any) -> Any:
    return ops.sum(ops.flatten(ops.conv2d(batch["image"], p["kernel"], p["bias"], stride=1, padding=0)), 1)


PIXELS = np.arange(9.0).reshape(1, 3, 3, 1)
GREY = np.arange(64.0)
"""Of 64 images, the first of which is black."""

EDGES = {
    "an image is seen with its batch axis": Edge(
        _summed_convolution,
        {"kernel": np.zeros((2, 2, 1, 1)), "bias": [0.0]},
        {"image": np.concatenate([PIXELS, 2 * PIXELS])},
        {"kernel": np.reshape([8, 12, 20, 24, 16, 24, 40, 48], (2, 2, 2, 1, 1)), "bias": [[4], [4]]},
        {"image": IMAGE, "kernel": KERNEL},
    ),
    "a kernel is not square": Edge(
        _summed_convolution,
        {"kernel": np.zeros((1, 2, 1, 1)), "bias": [0.0]},
        {"image": np.concatenate([PIXELS, 2 * PIXELS])},
        {"kernel": np.reshape([21, 27, 42, 54], (2, 1, 2, 1, 1)), "bias": [[6], [6]]},
        {"image": IMAGE, "kernel": KERNEL},
    ),
    "one column of the output is changed": Edge(
        _shifted_first_column,
        {"w": np.zeros((2, 5)), "b": np.zeros(5)},
        {"x": [[1.0, 2.0], [0.0, -1.0]], "shift": [[3.0, 0, 0, 0, 0]] * 2},
        {
            "w": [[[1.2, 0, 0, 0, 0], [2.4, 0, 0, 0, 0]], [[0, 0, 0, 0, 0], [-1.2, 0, 0, 0, 0]]],
            "b": [[1.2, 0, 0, 0, 0]] * 2,
        },
    ),
    "losses of shape (N, 1) are not summed": Edge(
        lambda ops, p, b: ops.squeeze(ops.relu(ops.matmul(b["x"], p["w"])), 1),
        {"w": np.ones((3, 1))},
        {"x": [[1.0, 0, 0], [0, 2.0, 0]]},
        {"w": [[[1], [0], [0]], [[0], [2], [0]]]},
    ),
    "every instance has an entry of its own": Edge(
        lambda ops, p, b: ops.sum(ops.embedding(b["index"], p["a"]) ** 2, 1),
        {"a": [[5.0], [3.0], [2.0]]},
        {"index": [0, 1, 2]},
        {"a": np.diag([10.0, 6.0, 4.0])[..., None]},
    ),
    "dropout masks are inputs": Edge(
        lambda ops, p, b: ops.sum(ops.dropout(p["w"] * b["x"], b["mask"], rate=0.5), 1),
        {"w": np.ones(4)},
        {"x": np.ones((3, 4)), "mask": [[1.0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]},
        {"w": [[2, 0, 2, 0], [0, 0, 0, 0], [2, 2, 2, 2]]},
    ),
    "a norm layer has parameters below it": Edge(
        # d = (w1 - w2) x / 2 = +-1 gives y = +-d / sqrt(d^2 + 3) = +-1/2, and dy/dd = 3 / (d^2 + 3)^1.5 = 3/8.
        _norm_in_the_middle,
        {"w": [2.0, 0.0], "scale": [1.0, 1.0], "offset": [0.0, 0.0], "sign": [1.0, -1.0]},
        {"x": [[1.0], [-1.0]]},
        {
            "w": [[0.375, -0.375], [-0.375, 0.375]],
            "scale": [[0.5, 0.5], [-0.5, -0.5]],
            "offset": [[1, -1], [1, -1]],
            "sign": [[0.5, -0.5], [-0.5, 0.5]],
        },
    ),
    "relu has derivative 0 at 0": Edge(
        lambda ops, p, b: ops.relu(p["w"] * b["x"]),
        {"w": 1.0},
        {"x": [0.0, 1.0, -1.0]},
        {"w": [0, 1, 0]},
    ),
    "where() hides a branch that has no derivative": Edge(
        _root_above_one, {"w": 0.0}, {"x": [1e-9, 0.0, 4.0]}, {"w": [1, 1, 0.25]}
    ),
    "a root is taken of what is positive": Edge(
        # sqrt(w) of the second entry alone: 1 / (2 sqrt(w)).
        _root_of_what_is_positive,
        {"w": 1.0},
        {"x": [[0.0, 1.0], [0.0, 4.0]]},
        {"w": [0.5, 1]},
    ),
    "numbers of twelve bits are multiplied exactly": Edge(
        # TF32 keeps eleven of them: 2049 becomes 2048.
        lambda ops, p, b: ops.sum(ops.sum(ops.matmul(b["x"], p["w"]), 1), 1),
        {"w": np.ones((2, 2))},
        {"x": np.full((2, 1, 2), 2049.0)},
        {"w": np.full((2, 2, 2), 2049)},
    ),
    "a slice of stacked parameters has zeros for the others": Edge(
        lambda ops, p, b: p["stack"][1] * b["x"], {"stack": [1.0, 2.0]}, {"x": [2.0, 3.0]}, {"stack": [[0, 2], [0, 3]]}
    ),
    "the branch depends on the instance": Edge(_square_or_line, {"w": 1.0}, {"x": [2.0, -1.0]}, {"w": [4, 3]}),
    "a parameter is used by some instances": Edge(
        _used_by_some,
        {"a": 1.0, "b": 1.0},
        {"x": [2.0, 3.0], "first": [1.0, 0.0]},
        {"a": [2, 0], "b": [0, 9]},
    ),
    "a parameter is used by none": Edge(
        lambda ops, p, b: p["used"] * b["x"],
        {"used": 1.0, "unused": [1.0, 2.0]},
        {"x": [2.0, 3.0]},
        {"used": [2, 3], "unused": np.zeros((2, 2))},
    ),
    "argmax has no derivative": Edge(
        _chosen_by_the_largest,
        {"w": [1.0, 1.0], "table": [[1.0], [1.0]]},
        {"x": [[1.0, 2.0], [3.0, 1.0]]},
        {"w": np.zeros((2, 2)), "table": [[[0], [1]], [[1], [0]]]},
    ),
    "one matrix is used twice": Edge(
        # x w w: the gradient has a part from each use, 2 w x for one number.
        _twice_through_one_matrix,
        {"w": [[3.0]]},
        {"x": [[1.0], [-2.0]]},
        {"w": [[[6]], [[-12]]]},
    ),
    "an id is repeated and some are padding": Edge(
        lambda ops, p, b: ops.sum(ops.masked_mean(ops.embedding(b["ids"], p["table"]), b["mask"]), 1),
        {"table": np.ones((4, 1))},
        {"ids": [[1, 1, 2], [3, 0, 0], [0, 0, 0]], "mask": [[1.0, 1, 1], [1, 0, 0], [0, 0, 0]]},
        {"table": np.array([[0, 2 / 3, 1 / 3, 0], [0, 0, 0, 1], [0, 0, 0, 0]])[..., None]},
    ),
    "an integer leaf is state": Edge(
        lambda ops, p, b: p["w"] * b["x"] + ops.sum(ops.sum(ops.embedding(p["counts"], p["table"]), 1), 0),
        {"w": 1.0, "table": [[1.0], [1.0], [1.0]], "counts": [2, 2]},
        {"x": [2.0, 3.0]},
        {"w": [2, 3], "table": np.array([[0, 0, 2]] * 2)[..., None]},
    ),
    "abs has a kink at 0": Edge(lambda ops, p, b: ops.abs(p["w"] * b["x"]), {"w": 0.0}, {"x": [1.0, 2.0]}),
    "maximum has a kink at a tie": Edge(
        lambda ops, p, b: ops.maximum(p["w"] * b["x"], 0 * b["x"]), {"w": 0.0}, {"x": [1.0, 2.0]}
    ),
    "the largest is met several times": Edge(
        lambda ops, p, b: ops.max(p["w"] * b["x"], 1), {"w": [1.0, 2.0, 2.0, 2.0]}, {"x": [[1.0], [1.0]]}
    ),
    "the largest of a window is met several times": Edge(
        lambda ops, p, b: ops.sum(ops.flatten(ops.max_pool(p["w"] * b["x"], size=2, stride=2)), 1),
        {"w": np.reshape([1.0, 2.0, 2.0, 2.0], (2, 2, 1))},
        {"x": np.ones((2, 1, 1, 1))},
        {"w": np.reshape([0, 1, 0, 0] * 2, (2, 2, 2, 1))},
        {"w": IMAGE, "x": IMAGE},
    ),
}


GREY_IMAGES = Edge(
    # The kernel sees 8 x 8 windows of one grey; the bias counts them.
    _summed_convolution,
    {"kernel": np.zeros((3, 3, 1, 1)), "bias": [0.0]},
    {"image": GREY[:, None, None, None] * np.ones((10, 10, 1))},
    {"kernel": 64 * GREY[:, None, None, None, None] * np.ones((3, 3, 1, 1)), "bias": np.full((64, 1), 64.0)},
    {"image": IMAGE, "kernel": KERNEL},
)
"""A batch of which a full Jacobian would be a square: 64 losses by 64 x 10 x 10 pixels."""

JACOBIANS = {
    "tf2": ("tf2/jacobian", "tf2/jacobian-without-pfor"),
    "jax": ("jax/jacrev",),
    "torch": ("torch/func-jacrev", "torch/grads-batched"),
}

CHUNKED = {"jax": ("jax/lax-map-chunks", "jax/vmap"), "torch": ("torch/func-vmap-chunks", "torch/func-vmap")}
"""A strategy that works chunk by chunk, and the same without chunks."""

ODD_SIZE = 33
"""One more instance than fits into two chunks of 16 or one of 32."""

DROPOUT_RATE = 0.5
DROPOUT = Workload(
    name="dropout",
    losses=lambda ops, p, b: ops.sum(ops.dropout(p["w"] * b["x"], b["mask"], rate=DROPOUT_RATE), 1),
    parameters=lambda rng: {"w": np.ones(16)},
    batch=lambda rng, size: {
        "x": np.ones((size, 16)),
        "mask": (rng.random((size, 16)) >= DROPOUT_RATE).astype(np.float64),
    },
    docstring="Masks are drawn by the batch.",
    path=Path(__file__),
)


def rows(framework: str, dtype: str) -> dict[str, dict[str, Any]]:
    """edge -> strategy -> {parameter: [dtype, values]}, or the error in words. In the framework's own process."""
    found: dict[str, dict[str, Any]] = {}
    for name, edge in EDGES.items():
        workload = edge.workload(name)
        parameters, batch = cast(_arrays(edge.parameters), dtype), cast(_arrays(edge.batch), dtype)
        for strategy in bound.STRATEGIES[framework]:
            try:
                gradients = bound.gradients(framework, strategy, workload, parameters, batch)
            except Exception as error:
                found.setdefault(name, {})[strategy] = f"{type(error).__name__}: {str(error)[:300]}"
            else:
                found.setdefault(name, {})[strategy] = {
                    key: [value.dtype.name, value.astype(np.float64).tolist()] for key, value in gradients.items()
                }
    return found


REDUCED = re.compile(r"/(vmap|func-vmap|vectorized-map|layer-rules|outer-products)-(norms|weighted-sum|clipped-sum)$")
"""Strategies that make rows as another one does, which all edges test, and reduce them."""

REDUCTIONS = ("a parameter is used by none", "one column of the output is changed")
"""Edges for them: parameters of every rank, and one without a gradient."""


def verdicts(framework: str, chosen: list[str]) -> dict[str, str]:
    """case -> `ok`, `unsupported`, or what is wrong, for strategies of all quantities; in the framework's process."""
    return {
        f"{name} on {key}": _verdict(framework, bound.catalogue().find(name), key, edge)
        for name in chosen
        for key, edge in EDGES.items()
        if edge.rows and (key in REDUCTIONS or not REDUCED.search(name))
    }


def _verdict(framework: str, strategy: strategy_.Strategy, key: str, edge: Edge) -> str:
    parameters, batch = cast(_arrays(edge.parameters), "float32"), cast(_arrays(edge.batch), "float32")
    try:
        found = bound.gradients(framework, strategy.name, edge.workload(key), parameters, batch)
    except strategy_.Unsupported:
        return "unsupported"
    except ModuleNotFoundError:  # a package beyond the framework
        return "unavailable"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    expected = _reduced({name: np.array(value, float) for name, value in edge.rows.items()}, strategy.quantity)
    right = set(found) == set(expected) and all(
        found[name].shape == value.shape and np.allclose(found[name], value, rtol=1e-5, atol=1e-5)
        for name, value in expected.items()
    )
    return "ok" if right else str({name: value.tolist() for name, value in found.items()})


def _reduced(rows: Arrays, quantity: str) -> Arrays:
    """The norms, weighted sum or clipped sum of rows."""
    if quantity == "gradients":
        return rows
    size = len(next(iter(rows.values())))
    norms = np.linalg.norm(np.concatenate([value.reshape(size, -1) for value in rows.values()], axis=1), axis=1)
    if quantity == "norms":
        return {"norms": norms}
    factors = weights(size) if quantity == "weighted_sum" else CLIP_NORM / np.maximum(norms, CLIP_NORM)
    return {name: np.tensordot(factors, value, 1) for name, value in rows.items()}


def sizes(framework: str) -> dict[str, Any]:
    """strategy -> rows of the policy network for batches of 0, 1 and 3 instances, the first of which is the same."""
    policy = find("policy")
    parameters, batch = cast(policy.initial_parameters(0), "float32"), cast(policy.batches(0, 3, 1)[0], "float32")
    found: dict[str, Any] = {}
    for strategy in bound.STRATEGIES[framework]:
        for size in (0, 1, 3):
            part = {key: value[:size] for key, value in batch.items()}
            try:
                gradients = bound.gradients(framework, strategy, policy, parameters, part)
                answer: Any = {key: [value.shape, value.tolist()] for key, value in gradients.items()}
            except Exception as error:
                answer = f"{type(error).__name__}: {str(error)[:300]}"
            found.setdefault(strategy, {})[str(size)] = answer
    return found


def state(framework: str) -> list[list[str]]:
    """What a problem lists as not differentiated, and what a strategy is given, where one leaf holds integers."""
    workload = EDGES["an integer leaf is state"].workload("state")
    adapter = frameworks.load(framework)
    parameters = cast(workload.initial_parameters(0), "float32")
    problem = adapter.bind(workload, parameters, adapter.device("cpu"), 2)
    return [problem.facts["not_differentiated"], sorted(problem.parameters)]


def dropout(framework: str) -> dict[str, Any]:
    """strategy -> rows of `DROPOUT` by batches of seed 0, of seed 0 again, and of seed 1."""
    parameters = cast(DROPOUT.initial_parameters(0), "float32")
    batches = [cast(DROPOUT.batches(seed, 4, 1)[0], "float32") for seed in (0, 0, 1)]
    return {
        strategy: [bound.gradients(framework, strategy, DROPOUT, parameters, batch)["w"].tolist() for batch in batches]
        for strategy in bound.STRATEGIES[framework]
    }


def jacobians(framework: str) -> dict[str, Any]:
    """strategy -> rows of `GREY_IMAGES`, by the strategies that differentiate a vector of losses."""
    workload = GREY_IMAGES.workload("grey images")
    parameters, batch = cast(_arrays(GREY_IMAGES.parameters), "float32"), cast(_arrays(GREY_IMAGES.batch), "float32")
    return {
        strategy: _listed(bound.gradients(framework, strategy, workload, parameters, batch))
        for strategy in JACOBIANS.get(framework, ())
    }


def parallel(framework: str) -> dict[str, Any]:
    """strategy -> rows of `GREY_IMAGES`, thrice: TensorFlow may run 2, 3 or 64 iterations of its Jacobian at a time.

    That takes a persistent tape, because the Jacobian is then computed in pieces, each of which asks the tape.
    """
    if framework != "tf2":
        return {}
    import tensorflow as tf

    tape, jacobian = tf.GradientTape, tf.GradientTape.jacobian
    found: dict[str, list[Any]] = {}
    try:
        tf.GradientTape = functools.partial(tape, persistent=True)
        for iterations in (2, 3, 64):
            tape.jacobian = functools.partialmethod(jacobian, parallel_iterations=iterations)
            for strategy, gradients in jacobians(framework).items():
                found.setdefault(strategy, []).append(gradients)
    finally:
        tf.GradientTape, tape.jacobian = tape, jacobian
    return found


def chunked(framework: str) -> dict[str, Any]:
    """strategy -> rows of the policy network for a batch that does not divide into chunks."""
    policy = find("policy")
    parameters, batch = (
        cast(policy.initial_parameters(0), "float32"),
        cast(policy.batches(0, ODD_SIZE, 1)[0], "float32"),
    )
    return {
        strategy: _listed(bound.gradients(framework, strategy, policy, parameters, batch))
        for strategy in CHUNKED.get(framework, ())
    }


def precision(framework: str) -> dict[str, Any]:
    """What the process that measures a framework has set about the precision of float32 products."""
    frameworks.load(framework)
    found: dict[str, Any] = {"TF32 by the driver": os.environ["NVIDIA_TF32_OVERRIDE"]}
    if framework == "jax":
        import jax

        found["products"] = jax.config.jax_default_matmul_precision
    elif framework == "torch":
        import torch

        found["products"] = torch.get_float32_matmul_precision()
        found["TF32"] = [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]
    elif framework in ("tf1", "tf2"):
        import tensorflow as tf

        found["TF32"] = [tf.config.experimental.tensor_float_32_execution_enabled()]
    return found


def everything(framework: str, dtype: str) -> dict[str, Any]:
    """All of the above; starting a framework takes longer than that."""
    found: dict[str, Any] = {"rows": rows(framework, dtype)}
    parts = (sizes, state, dropout, jacobians, parallel, chunked, precision) if dtype == "float32" else ()
    return found | {part.__name__: part(framework) for part in parts}


def _listed(gradients: Arrays) -> dict[str, Any]:
    return {name: value.tolist() for name, value in gradients.items()}
