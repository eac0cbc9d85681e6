"""How fast are gradients from factors in JAX? A table: this repository's layer rules and plain gradients beside them.

`python -m tests.accuracy.factored_jax [NAME ...]`, minutes, on a quiet machine. All sides of a row take turns, call by
call, in one process. A ratio is the median over the rounds, above 1 the factors are slower; in brackets that of the
processors' time, which says more on a busy machine. Built-in workloads are measured against layer rules and ghost
strategies, functions that no layer rule can run against one plain gradient of the batch (norms, clipped sums) and
against `vmap(grad)` (rows).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from harness import frameworks
from harness.core import find_strategies, find_workloads
from harness.core.workload import cast
from pergrad.jax import per_instance

Tree = Any
Loss = Callable[[Tree, Tree], Any]

WORKLOADS = ("policy", "mlp", "cnn", "embedding", "transformer", "lstm")
AGAINST = {
    "factored-reused": ("layer-rules", "vmap-donated"),
    "factored-norms": ("ghost-norms", "layer-rules-norms"),
    "factored-clipped-sum": ("ghost-clipping", "layer-rules-clipped-sum"),
}
B = 128
SECONDS = 3.0
"""What the rounds of one row are to fill."""
RANDOM = np.random.default_rng(0)


def R(*shape: int) -> Any:  # noqa: N802
    return jnp.asarray(RANDOM.normal(size=shape) / max(1, shape[-2] if len(shape) > 1 else 1) ** 0.5, jnp.float32)


def recurrent(p: Tree, b: Tree) -> Any:
    """A GRU over 20 steps."""

    def step(h: Any, x: Any) -> Any:
        z, r = jnp.split(jax.nn.sigmoid(x @ p["gates"]["x"] + h @ p["gates"]["h"]), 2)
        new = jnp.tanh(x @ p["new"]["x"] + (r * h) @ p["new"]["h"])
        return (1 - z) * h + z * new, None

    return jnp.square(lax.scan(step, jnp.zeros(128), b["x"])[0]).sum()


def layers(p: Tree, b: Tree) -> Any:
    """Four transformer layers, scanned with stacked parameters; the table is tied."""

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def layer(x: Any, w: Tree) -> Any:
        q, k, v = jnp.einsum("td,sdhk->shtk", norm(x), w["qkv"])
        mixed = jnp.einsum("hts,hsk->htk", jax.nn.softmax(jnp.einsum("htk,hsk->hts", q, k) / 4), v)
        x = x + jnp.einsum("htk,hkd->td", mixed, w["mixed"])
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None

    x, _ = lax.scan(layer, p["table"][b["tokens"]], p["layers"])
    return -jnp.take_along_axis(jax.nn.log_softmax(norm(x) @ p["table"].T), b["next"][:, None], 1).mean()


def experts(p: Tree, b: Tree) -> Any:
    """A mixture of eight experts."""
    gate = jax.nn.softmax(b["x"] @ p["gate"])
    return jnp.square(
        gate @ jnp.einsum("eh,eho->eo", jax.nn.relu(jnp.einsum("d,edh->eh", b["x"], p["in"])), p["out"])
    ).sum()


def weight_norm(p: Tree, b: Tree) -> Any:
    x = b["x"]
    for v, g in p:
        x = jnp.tanh(x @ (g * v / jnp.linalg.norm(v, axis=0)))
    return jnp.square(x).sum()


def lora(p: Tree, b: Tree) -> Any:
    """Products of low rank added to fixed weights, which are formed as one matrix."""
    x = b["x"]
    for a, c in p:
        x = jnp.tanh(x @ (FIXED + a @ c))
    return jnp.square(x).sum()


FIXED = R(256, 256)


def convolved(x: Any, w: Any, stride: int = 1, dilation: int = 1, groups: int = 1) -> Any:
    options = {"rhs_dilation": (dilation,) * 2, "feature_group_count": groups}
    return lax.conv_general_dilated(x[None], w, (stride,) * 2, "SAME", dimension_numbers=NHWC, **options)[0]


NHWC = ("NHWC", "HWIO", "NHWC")


def unet(p: Tree, b: Tree) -> Any:
    """Down, across (dilated and depthwise) and up again, with group norm."""

    def norm(x: Any) -> Any:
        groups = x.reshape(*x.shape[:2], 4, -1)
        groups = (groups - groups.mean((0, 1, 3), keepdims=True)) * lax.rsqrt(
            groups.var((0, 1, 3), keepdims=True) + 1e-5
        )
        return jax.nn.gelu(groups.reshape(x.shape))

    first = norm(convolved(b["x"], p["in"]))
    x = norm(convolved(first, p["down"], stride=2))
    x = norm(convolved(convolved(x, p["depth"], groups=32), p["point"]))
    x = norm(convolved(x, p["wide"], dilation=2))
    x = lax.conv_transpose(x[None], p["up"], (2, 2), "SAME", dimension_numbers=NHWC)[0]
    return jnp.square(convolved(jnp.concatenate([first, x], -1), p["out"]) - b["x"]).mean()


FUNCTIONS: dict[str, tuple[Loss, Tree, Tree]] = {
    "gru": (
        recurrent,
        {"gates": {"x": R(128, 256), "h": R(128, 256)}, "new": {"x": R(128, 128), "h": R(128, 128)}},
        {"x": R(B, 20, 128)},
    ),
    "scanned": (
        layers,
        {
            "table": R(1000, 64) / 10,
            "layers": {
                "qkv": R(4, 3, 64, 4, 16) / 2,
                "mixed": R(4, 4, 16, 64) / 2,
                "up": R(4, 64, 256),
                "down": R(4, 256, 64),
            },
        },
        {name: jnp.asarray(RANDOM.integers(0, 1000, (B, 32))) for name in ("tokens", "next")},
    ),
    "experts": (experts, {"gate": R(64, 8), "in": R(8, 64, 128), "out": R(8, 128, 64)}, {"x": R(B, 64)}),
    "weight norm": (weight_norm, [(R(256, 256), jnp.ones(256)) for _ in range(3)], {"x": R(B, 256)}),
    "lora": (lora, [(R(256, 4), R(4, 256)) for _ in range(3)], {"x": R(B, 256)}),
    "u-net": (
        unet,
        {
            "in": R(3, 3, 3, 16),
            "down": R(3, 3, 16, 32) / 3,
            "depth": R(3, 3, 1, 32) / 3,
            "point": R(1, 1, 32, 32),
            "wide": R(3, 3, 32, 32) / 3,
            "up": R(2, 2, 32, 16) / 2,
            "out": R(3, 3, 32, 3) / 3,
        },
        {"x": R(B, 16, 16, 3)},
    ),
}


def turns(sides: Sequence[tuple[str, Callable[[], Any]]]) -> str:
    """Medians of the calls of each side, and their ratios: the first one's time over another's."""
    for _, call in sides:
        seconds(call)
    slowest = max(seconds(call)[0] for _, call in sides)
    rounds = min(400, max(7, round(SECONDS / slowest / len(sides))))
    samples = np.asarray([[seconds(call) for _, call in sides] for _ in range(rounds)])  # (rounds, sides, 2)
    middle, ratios = np.median(samples, 0), np.median(samples[:, :1] / np.maximum(samples, 1e-9), 0)
    told = [f"{sides[0][0]} {middle[0, 0] * 1e3:.2f} ms"]
    for number, (name, _) in list(enumerate(sides))[1:]:
        ratio, of_processor = ratios[number]
        told.append(f"{name} {middle[number, 0] * 1e3:.2f} ms, {ratio:.2f} ({of_processor:.2f})")
    return " | ".join(told)


def seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Of the clock on the wall, and of the processors: the latter hardly depends on what else runs."""
    started, busy = time.perf_counter(), time.process_time()
    jax.block_until_ready(call())
    return time.perf_counter() - started, time.process_time() - busy


def workload(name: str) -> None:
    """Three rows: gradients, norms, clipped sums."""
    adapter, found = frameworks.load("jax"), find_workloads.find(name)
    device, strategies = adapter.device("cpu"), find_strategies.discover()
    problem = adapter.bind(found, cast(found.initial_parameters(0), "float32"), device, B)
    batch = adapter.place(adapter.native(cast(found.batches(0, B, 1)[0], "float32"), found.layouts), device)
    for mine, others in AGAINST.items():
        steps = [(each, strategies.find(f"jax/{each}").build(problem)) for each in (mine, *others)]
        print(f"{name}: " + turns([(each, lambda step=step: step(batch)) for each, step in steps]), flush=True)


def function(name: str) -> None:
    """Three rows: gradients against `vmap(grad)`, norms and clipped sums against one plain gradient."""
    loss, parameters, batch = FUNCTIONS[name]
    plain = jax.jit(jax.grad(lambda p, b: jax.vmap(loss, (None, 0))(p, b).sum()))
    sides = [
        ("factored rows, reused", per_instance(loss, reuse=True)),
        ("vmap", jax.jit(jax.vmap(jax.grad(loss), (None, 0)))),
    ]
    for chosen in (
        sides,
        [("norms", jax.jit(per_instance(loss, "norms"))), ("plain gradient", plain)],
        [("clipped sum", jax.jit(per_instance(loss, "clipped_sum"))), ("plain gradient", plain)],
    ):
        print(
            f"{name}: " + turns([(each, lambda call=call: call(parameters, batch)) for each, call in chosen]),
            flush=True,
        )


def main(names: Sequence[str]) -> None:
    """Print the rows of these workloads and functions, of all if none is named."""
    for name in names or (*WORKLOADS, *FUNCTIONS):
        (function if name in FUNCTIONS else workload)(name)


if __name__ == "__main__":
    main(sys.argv[1:])
