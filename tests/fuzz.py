"""Every operation of `ops` alone, at inputs from the whole range of float32, in all frameworks.

The gradient of an instance is that of one operation at its own inputs: no other entry hides an error. An honest
framework must agree with the reference everywhere, unless the reference refuses the inputs.
`python -m tests.fuzz` runs everything at more inputs than the tests do, and prints the counts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.layouts import IMAGE, KERNEL, TRANSPOSED, Layout
from harness.core.workload import Arrays, Workload, cast
from harness.reference import build, compare
from harness.reference.result import Reference
from tests import bound

BATCH = 32
"""Instances in a batch; all rows are checked."""

LARGEST_LOGIT = 1e8
"""Beyond it XLA is wrong: of `a * x - max(a * x)` it rounds one product and not the other, which leaves more than 0."""

STRATEGIES = {
    "jax": ("jax/vmap", "jax/vmap-without-jit"),
    "torch": ("torch/func-vmap", "torch/grad-loop"),
    "tf1": ("tf1/session-loop",),
    "tf2": ("tf2/vectorized-map", "tf2/tape-loop"),
    "numpy": ("numpy/autograd-loop",),
}

Losses = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Case:
    """One operation: its losses, the shapes of parameters `a`, `b`, ... and as many inputs `x`, `y`, ..."""

    losses: Losses
    shapes: tuple[tuple[int, ...], ...] = ((),)
    layouts: tuple[Layout | None, ...] = ()
    labels: int = 0
    largest: float = np.inf


def _elementwise(name: str, **keywords: Any) -> Case:
    return Case(lambda ops, p, b: getattr(ops, name)(p["a"] * b["x"], **keywords))


def _along(name: str) -> Case:
    """An operation along the last axis; its result is weighted, as sums of a softmax are constant."""

    def losses(ops: Any, p: Any, b: Any) -> Any:
        return ops.sum(getattr(ops, name)(p["a"] * b["x"], 1) * b["c"], 1)

    return Case(losses, ((3,),), largest=LARGEST_LOGIT)


def _reduced(name: str) -> Case:
    return Case(lambda ops, p, b: getattr(ops, name)(p["a"] * b["x"], 1), ((3,),))


def _weighted(ops: Any, value: Any, b: Any) -> Any:
    return ops.sum(value * b["c"], 1)


def _moved(ops: Any, value: Any, b: Any) -> Any:
    """The loss of a result (B, 1, 3) or (B, 3, 1): weighted and summed."""
    return ops.sum(ops.reshape(value, (-1, 3)) * b["c"], 1)


def _convolution(ops: Any, p: Any, b: Any) -> Any:
    image = ops.conv2d(b["x"], p["a"], p["b"], stride=1, padding=0)
    return ops.sum(ops.flatten(image) * b["c"], 1)


def _pool(name: str) -> Case:
    """The parameter scales an image of one channel, whose 2 x 3 pixels are pooled to 1 x 2."""

    def losses(ops: Any, p: Any, b: Any) -> Any:
        pooled = ops.flatten(getattr(ops, name)(b["x"] * p["a"], 2, 1))
        return ops.sum(pooled * ops.split(b["c"], 3, 1)[0], 1)

    return Case(losses, ((2, 3, 1),), (IMAGE,))


CASES: dict[str, Case] = {
    **{name: _elementwise(name) for name in ("relu", "elu", "tanh", "sigmoid", "exp", "log", "sqrt", "abs")},
    "gelu exact": _elementwise("gelu", form="exact"),
    "gelu tanh": _elementwise("gelu", form="tanh"),
    "stop_gradient": Case(lambda ops, p, b: p["a"] * b["x"] * ops.stop_gradient(p["a"] * b["x"])),
    "dropout": Case(lambda ops, p, b: ops.dropout(p["a"] * b["x"], b["x"] * 0 + 1, rate=0.5)),
    "maximum": Case(lambda ops, p, b: ops.maximum(p["a"] * b["x"], p["b"] * b["y"]), ((), ())),
    "less": Case(lambda ops, p, b: p["a"] * b["x"] * ops.less(p["a"] * b["x"], p["b"] * b["y"]), ((), ())),
    "where": Case(lambda ops, p, b: ops.where(ops.less(b["x"], b["y"]), p["a"] * b["x"], p["b"] * b["y"]), ((), ())),
    **{name: _along(name) for name in ("softmax", "log_softmax")},
    **{name: _reduced(name) for name in ("sum", "mean", "max")},
    "argmax": Case(
        lambda ops, p, b: ops.sum(ops.embedding(ops.argmax(p["a"] * b["x"], 1), p["a"] * p["b"]), 1), ((3,), (3, 3))
    ),
    "softmax_cross_entropy": Case(
        lambda ops, p, b: ops.softmax_cross_entropy(b["label"], p["a"] * b["x"]),
        ((3,),),
        labels=3,
        largest=LARGEST_LOGIT,
    ),
    "sigmoid_cross_entropy": Case(
        lambda ops, p, b: ops.sigmoid_cross_entropy(ops.less(b["y"] * 0, b["y"]), p["a"] * b["x"] + 0 * p["b"]),
        ((), ()),
    ),
    "dense": Case(lambda ops, p, b: _weighted(ops, ops.dense(b["x"], p["a"], p["b"]), b), ((3, 3), (3,))),
    "matmul": Case(lambda ops, p, b: _weighted(ops, ops.matmul(b["x"], p["a"]), b), ((3, 3),)),
    "embedding": Case(lambda ops, p, b: ops.sum(ops.embedding(b["label"], p["a"]) * b["x"], 1), ((3, 3),), labels=3),
    "layer_norm": Case(
        lambda ops, p, b: _weighted(ops, ops.layer_norm(p["a"] * b["x"], p["b"], p["c"], 1e-5), b), ((3,), (3,), (3,))
    ),
    "attention": Case(
        lambda ops, p, b: _moved(
            ops,
            ops.attention(
                ops.expand_dims(b["x"], 2) * p["a"],
                ops.expand_dims(b["x"], 2) * p["b"],
                ops.expand_dims(b["y"], 2) * p["c"],
                1,
                True,
            ),
            b,
        ),
        ((1,), (1,), (1,)),
        largest=LARGEST_LOGIT**0.5,
    ),
    "lstm": Case(
        lambda ops, p, b: _moved(ops, ops.lstm(ops.expand_dims(b["x"], 2), p["a"], p["b"], p["c"]), b),
        ((1, 4), (1, 4), (4,)),
        (TRANSPOSED, TRANSPOSED),
    ),
    "masked_mean": Case(
        lambda ops, p, b: ops.sum(
            ops.masked_mean(ops.expand_dims(p["a"] * b["x"], 2), ops.less(b["y"] * 0, b["y"])), 1
        ),
        ((3,), (3,)),
    ),
    "conv2d": Case(_convolution, ((1, 1, 1, 1), (1,)), (KERNEL,)),
    "max_pool": _pool("max_pool"),
    "average_pool": _pool("average_pool"),
    "shapes": Case(
        lambda ops, p, b: ops.sum(
            ops.squeeze(
                ops.concatenate(
                    [
                        ops.transpose(ops.reshape(ops.expand_dims(part, 1), (-1, 1, 1)), (0, 2, 1))
                        for part in ops.split(ops.squeeze(ops.stack([p["a"] * b["x"]], 1), 1), 3, 1)
                    ],
                    2,
                ),
                1,
            ),
            1,
        ),
        ((3,),),
    ),
}
"""What is differentiated of every operation of the table in `harness.ops`; pure moves of values are one case."""

IMAGES = {"conv2d": (1, 3, 1), "max_pool": (2, 3, 1), "average_pool": (2, 3, 1)}


def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers of float32, (B, ...), drawn for each instance in one of three ways.

    They are anywhere in the range of float32, subnormal numbers included; or where nonlinearities saturate; or near 1.
    Some are exactly 0.
    """
    kind = rng.integers(3, size=shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    anywhere = 2.0 ** rng.uniform(-149, 127, shape) * rng.choice((-1.0, 1.0), shape)
    saturated = rng.uniform(-110, 110, shape)
    near = rng.standard_normal(shape)
    found = np.where(kind == 0, anywhere, np.where(kind == 1, saturated, near))
    found = np.where(rng.random(shape) < 0.05, 0.0, found)
    with np.errstate(all="ignore"):
        result: np.ndarray[Any, Any] = found.astype(np.float32)
    return result


def workload(name: str) -> Workload:
    """The operation as a workload; batches of any seed are other inputs."""
    case = CASES[name]
    names = "abc"[: len(case.shapes)]

    def parameters(rng: np.random.Generator) -> Arrays:
        return {key: 1 + 0.25 * rng.standard_normal(shape) for key, shape in zip(names, case.shapes, strict=True)}

    def batch(rng: np.random.Generator, size: int) -> Arrays:
        shape = IMAGES.get(name, (3,) if case.shapes[0] else ())
        found = {key: np.clip(values(rng, (size, *shape)), -case.largest, case.largest) for key in "xy"}
        found["c"] = rng.standard_normal((size, 3))
        if case.labels:
            found["label"] = rng.integers(case.labels, size=size)
        return found

    ordered = dict(zip(names, case.layouts, strict=False))
    given = {key: layout for key, layout in ordered.items() if layout}
    if name in IMAGES:
        given["x"] = IMAGE
    return Workload(name, case.losses, parameters, batch, name, Path(__file__), layouts=given)


def inputs(name: str, number: int, dtype: str) -> tuple[Workload, Arrays, Arrays]:
    """The workload of an operation, its parameters and its batch of that number."""
    found = workload(name)
    return found, cast(found.initial_parameters(0), dtype), cast(found.batches(number, BATCH, 1)[0], dtype)


@functools.cache
def references(name: str, number: int, dtype: str) -> dict[int, Reference]:
    """The references of the instances that have one, each as a batch of its own."""
    operation, parameters, batch = inputs(name, number, dtype)
    found = {}
    for i in range(BATCH):
        with contextlib.suppress(build.NotFinite), np.errstate(all="ignore"):
            alone = {key: value[i : i + 1] for key, value in batch.items()}
            found[i] = build.compute(operation, parameters, alone, quantities=["gradients"])
    return found


def is_moderate(name: str, number: int, dtype: str) -> np.ndarray[Any, Any]:
    """Which instances have no input beyond 3 and none that is nearly 0, (B,)."""
    _, _, batch = inputs(name, number, dtype)
    sizes = np.abs(np.concatenate([batch[key].reshape(BATCH, -1) for key in "xy"], axis=1))
    found: np.ndarray[Any, Any] = ((sizes < 3) & (sizes > 0.01)).all(axis=1)
    return found


def rows(framework: str, dtype: str, wanted: list[list[Any]], folder: str) -> None:
    """The rows that a framework's strategies give, into files. Runs in the framework's process."""
    for name, number, chosen in wanted:
        operation, parameters, batch = inputs(name, number, dtype)
        batch = {key: value[np.array(chosen, int)] for key, value in batch.items()}
        for strategy in STRATEGIES[framework]:
            found = bound.gradients(framework, strategy, operation, parameters, batch)
            path = Path(folder) / f"{strategy.replace('/', '-')}-{name}-{number}.npz"
            np.savez(path, **{key: value.astype("float64") for key, value in found.items()})


@dataclass
class Outcome:
    """What came out for one operation.

    Attributes:
        judged: instances that have a reference.
        refused: instances without one: their gradient is not finite, or overflows in the dtype.
        convicted: strategy, instance and reason of every row that is said to be wrong.
        planted: rows that were multiplied by 1.001, where no input is larger than 3, so that nothing saturates.
        caught: how many of these are said to be wrong.
    """

    judged: int = 0
    refused: int = 0
    convicted: list[str] = field(default_factory=list)
    planted: int = 0
    caught: int = 0


def run(frameworks: list[str], names: list[str], numbers: list[int], dtype: str = "float32") -> dict[str, Outcome]:
    """Compare every framework's rows with the reference, one instance at a time."""
    outcomes = {name: Outcome() for name in names}
    true = {(name, number): references(name, number, dtype) for name in names for number in numbers}
    wanted = [[name, number, list(found)] for (name, number), found in true.items() if found]
    with tempfile.TemporaryDirectory() as folder:
        for framework in frameworks:
            bound.run(rows, framework, dtype, wanted, folder, framework=framework, dtype=dtype)
        for (name, number), found in true.items():
            outcome = outcomes[name]
            outcome.judged += len(found)
            outcome.refused += BATCH - len(found)
            for strategy in (strategy for framework in frameworks for strategy in STRATEGIES[framework]):
                path = Path(folder) / f"{strategy.replace('/', '-')}-{name}-{number}.npz"
                if not found:
                    continue
                with np.load(path) as file:
                    given = {key: file[key].astype(dtype) for key in file.files}
                for position, (instance, reference) in enumerate(found.items()):
                    row = {key: value[position : position + 1] for key, value in given.items()}
                    verdict = compare.check(row, reference, dtype)
                    if verdict.status != "ok":
                        outcome.convicted.append(f"{strategy} {number}/{instance}: {verdict.status} {verdict.reason}")
            moderate = is_moderate(name, number, dtype)
            for instance, reference in found.items():
                if moderate[instance]:
                    _plant(outcome, reference, dtype)
    return outcomes


def _plant(outcome: Outcome, reference: Reference, dtype: str) -> None:
    """Try an error of 1e-3 in the row of every parameter, one after the other."""
    for key, value in reference.rows.items():
        if np.abs(value).max(initial=0) > 1e-30:
            moved = {**reference.rows, key: value * 1.001}
            outcome.planted += 1
            outcome.caught += compare.check(cast(moved, dtype), reference, dtype).status != "ok"


def main() -> None:
    """Everything, at `numbers` batches: python -m tests.fuzz [batches] [operation ...]."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    names = sys.argv[2:] or list(CASES)
    for name in names:
        outcome = run(list(STRATEGIES), [name], list(range(count)))[name]
        kinds = Counter(text.split(" ")[0] for text in outcome.convicted)
        print(
            f"{name:<24} {outcome.judged:>5} judged, {outcome.refused:>4} refused, "
            f"planted caught {outcome.caught}/{outcome.planted}, convicted {json.dumps(kinds)}",
            flush=True,
        )
        for text in outcome.convicted[:6]:
            print("    ", text)


if __name__ == "__main__":
    main()
