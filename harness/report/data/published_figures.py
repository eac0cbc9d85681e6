"""Hold what others have published, and the names of the strategies that stand for what they compared.

Data only: nothing else in `harness` names a strategy, apart from the prior of `pergrad advise`.
"""

from __future__ import annotations

from dataclasses import dataclass

WORKLOAD = "policy"
"""The network of the question about TensorFlow 1 sessions that this project began with, and what it compared:"""

LOOP = "tf1/session-loop"
CONCURRENT = "tf1/concurrent-sessions"
UNSTACK = "tf1/unstack"

PLAIN_NAME = r"(.*-)?(batch-gradient|plain-gradient)"
PLAIN = rf"\w+/{PLAIN_NAME}"
"""Names of the strategies that take one plain gradient of the weighted loss of a whole batch."""


@dataclass(frozen=True)
class Pair:
    """Two kinds of strategy whose ratio is asked for, as patterns of names."""

    slow: str
    fast: str
    slow_quantity: str = "gradients"
    fast_quantity: str = "gradients"


@dataclass(frozen=True)
class Entry:
    """One published result."""

    source: str
    address: str
    work: str
    published: str
    workload: str = ""
    """The workload here that comes closest; empty where there is none."""
    batch_size: int | None = None
    pairs: tuple[Pair, ...] = ()


_LOOP = r"torch/(.*-)?loop"
_VMAP = r"torch/func-vmap"

ENTRIES = (
    Entry(
        "the question's second answer",
        "",
        "policy network, TensorFlow 1",
        "unstack at most 2 times faster than the loop",
        "policy",
        None,
        (Pair(LOOP, UNSTACK),),
    ),
    Entry(
        "functorch notebook per_sample_grads",
        "https://docs.pytorch.org/functorch/stable/notebooks/per_sample_grads.html",
        "CNN of 1,199,882 parameters, B=64, A100",
        "vmap 26.2 times faster than the loop (3.05 against 79.88 ms)",
        "functorch-cnn",
        64,
        (Pair(_LOOP, _VMAP),),
    ),
    Entry(
        "tensorflow/privacy#133",
        "https://github.com/tensorflow/privacy/pull/133",
        "MNIST CNN, B=250, Titan RTX",
        "vectorized_map 4.1 times faster than jacobian (16 against 66 s an epoch)",
        "cnn",
        250,
        (Pair(r"tf2/jacobian", r"tf2/vectorized-map"),),
    ),
    Entry(
        "tensorflow/privacy#116",
        "https://github.com/tensorflow/privacy/issues/116",
        "MNIST CNN, Tesla M10",
        "vectorised 1.8 times slower than not vectorised (203.55 against 115 s)",
        "cnn",
        None,
        (Pair(r"tf2/((eager|function|tape)-)?loop|tf2/map-fn", r"tf2/vectorized-map"),),
    ),
    Entry(
        "Kunstner, fast-individual-gradients",
        "https://github.com/fKunstner/fast-individual-gradients-with-autodiff",
        "MLP of width 100 and depth 10, B=100",
        "outer products 12 times faster than one by one (25 against 308 ms), 6 times slower than the plain gradient",
        "mlp",
        100,
        (
            Pair(_LOOP, r"torch/(.*outer-products.*|by-hand|layer-rules)"),
            Pair(r"torch/(.*outer-products.*|by-hand|layer-rules)", f"torch/{PLAIN_NAME}", "gradients", "weighted_sum"),
        ),
    ),
    Entry(
        "Rochette et al., table 1",
        "https://arxiv.org/abs/1912.06015",
        "AlexNet, B=16, P100, 20 batches",
        "group convolution 15 times faster than one by one (2.03 against 30.17 s); plain 0.747 s, multi 3.076 s",
    ),
    Entry(
        "Rochette et al., table 1",
        "https://arxiv.org/abs/1912.06015",
        "VGG16, B=8",
        "multi 8 times faster than one by one (4.63 against 37.2 s), and ahead of group convolution (5.591 s)",
    ),
    Entry(
        "Opacus, pull request 497",
        "https://github.com/pytorch/opacus/pull/497",
        "convolution, hooks against functorch",
        "functorch 4 times slower than hooks on a T4, 2 times faster on an A100",
        "cnn",
        None,
        (Pair(r"torch/opacus(-hooks)?", r"torch/(opacus-functorch|func-vmap)"),),
    ),
    Entry(
        "Opacus on ghost clipping (2024)",
        "https://pytorch.org/blog/clipping-in-opacus/",
        "BERT, B=128, P100",
        "ghost clipping as fast as rows (0.67 against 0.68 s) with 1.32 instead of 4.55 GB",
        "transformer",
        128,
        (Pair(r"torch/opacus(-hooks)?", r"torch/.*ghost.*", "gradients", "clipped_sum"),),
    ),
    Entry(
        "TensorFlow's own benchmark of pfor",
        "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/ops/parallel_for/gradients_test.py",
        "mnist_per_eg_grad, B=128",
        "a workload without a stored figure",
        "cnn",
        128,
        (Pair(r"tf2/map-fn|tf2/.*loop", r"tf2/vectorized-map"),),
    ),
    Entry(
        "fast-dpsgd",
        "https://arxiv.org/abs/2010.09063",
        "six models, B=16 to 256, Titan V",
        "known from the abstract only, so the figure is not repeated",
    ),
    Entry(
        "Lee and Kifer",
        "https://arxiv.org/abs/2009.03106",
        "B=128",
        "known from the abstract only, so the figure is not repeated",
    ),
)
"""From the project's list of references, oldest question first."""
