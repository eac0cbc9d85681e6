"""Figures that others published, beside what the same kind of work takes here.

An entry is data. Published figures come from other machines and versions and often from another model, so only
ratios are set side by side, each with the workload and batch size it was measured on here. A figure that is known
from an abstract only is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis import formats
from harness.report.data.evidence import PLAIN_NAME, Evidence, compare

NOT_MEASURED = "not measured"


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


@dataclass(frozen=True)
class SideBySide:
    """An entry and what was measured here, one sentence per pair."""

    entry: Entry
    here: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether anything here can be set beside it."""
        return self.here != (NOT_MEASURED,)


def side_by_side(evidence: Evidence, entries: Sequence[Entry] | None = None) -> list[SideBySide]:
    """Every entry with what this run says, those with a number first; `ENTRIES` unless others are given."""
    found = [SideBySide(entry, _here(evidence, entry)) for entry in (ENTRIES if entries is None else entries)]
    return sorted(found, key=lambda one: not one.measured)


def _here(evidence: Evidence, entry: Entry) -> tuple[str, ...]:
    found = [sentence for pair in entry.pairs if (sentence := _sentence(evidence, entry, pair))]
    return tuple(found) or (NOT_MEASURED,)


def _sentence(evidence: Evidence, entry: Entry, pair: Pair) -> str:
    slow = evidence.one(entry.workload, pair.slow, pair.slow_quantity)
    fast = evidence.one(entry.workload, pair.fast, pair.fast_quantity)
    found = compare(slow, fast, entry.batch_size) if slow and fast else None
    if found is None:
        return ""
    return (
        f"{formats.speedup(found.ratio)}: {found.fast.strategy} against {found.slow.strategy} on {entry.workload} "
        f"at batch size {found.batch_size:,}"
    )


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
        (Pair("tf1/session-loop", "tf1/unstack"),),
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
