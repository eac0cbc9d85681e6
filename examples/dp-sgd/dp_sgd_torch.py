"""DP-SGD in PyTorch with `pergrad.torch`, on a module as it is, beside Opacus where that is installed.

`python dp_sgd_torch.py` trains a small network, and checks the clipped sum against a loop over the instances first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
from blobs import CLASSES, WIDTH, Array, batches, blobs
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from pergrad.torch import per_instance

CLIP_NORM, NOISE, RATE, BATCH, HIDDEN, EPOCHS = 1.0, 1.0, 0.5, 256, 256, 5
Update = Callable[[Tensor, Tensor], None]


def network() -> nn.Module:
    """The same initial weights at every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def with_pergrad(net: nn.Module) -> Update:
    """A step of DP-SGD that asks `pergrad.torch` for the clipped sum."""
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    clipped_sum = clipped_sum_of(net)

    def update(x: Tensor, y: Tensor) -> None:
        total = clipped_sum(dict(net.named_parameters()), {"x": x, "y": y})
        for name, parameter in net.named_parameters():
            parameter.grad = (total[name] + NOISE * CLIP_NORM * torch.randn_like(parameter)) / BATCH
        optimizer.step()

    return update


def clipped_sum_of(net: nn.Module) -> Callable[[dict[str, Tensor], dict[str, Tensor]], dict[str, Tensor]]:
    """The function of (parameters, batch)."""

    def loss(parameters: dict[str, Tensor], instance: dict[str, Tensor]) -> Tensor:
        return functional.cross_entropy(functional_call(net, parameters, instance["x"][None]), instance["y"][None])

    return per_instance(loss, "clipped_sum", clip_norm=CLIP_NORM)


def with_opacus(net: nn.Module) -> Update:
    """The same step as Opacus' users write it, with its hooks."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    hooked = GradSampleModule(net)
    plain = torch.optim.SGD(hooked.parameters(), RATE)
    optimizer = DPOptimizer(plain, noise_multiplier=NOISE, max_grad_norm=CLIP_NORM, expected_batch_size=BATCH)

    def update(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(hooked(x), y).backward()
        optimizer.step()

    return update


def difference_from_a_loop(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """How far the clipped sum is from one that is added up instance by instance, of its largest entry."""
    found = clipped_sum_of(net)(dict(net.named_parameters()), {"x": x, "y": y})
    expected = {name: torch.zeros_like(parameter) for name, parameter in net.named_parameters()}
    for i in range(len(y)):
        net.zero_grad()
        functional.cross_entropy(net(x[i : i + 1]), y[i : i + 1]).backward()
        gradients = {name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None}
        norm = torch.sqrt(torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum())
        for name, gradient in gradients.items():
            expected[name] += gradient * min(1.0, CLIP_NORM / float(norm))
    net.zero_grad()
    return max(float((found[n] - expected[n]).abs().max() / expected[n].abs().max()) for n in expected)


def train(what: str, make: Callable[[nn.Module], Update], points: Array, labels: Array) -> None:
    """Train a new network and tell the seconds of every epoch."""
    net, rng = network(), np.random.default_rng(1)
    update = make(net)
    test_points, test_labels = (torch.from_numpy(values) for values in blobs(2, 2048))
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        for x, y in batches(rng, points, labels, BATCH):
            update(torch.from_numpy(x), torch.from_numpy(y))
        seconds = time.perf_counter() - started
        with torch.no_grad():
            right = float((net(test_points).argmax(1) == test_labels).float().mean())
        print(f"{what}, epoch {epoch + 1}: {seconds:.3f} s, {right:.1%} right")


def main() -> None:
    """Check, train, and tell."""
    points, labels = blobs(1, 8192)
    error = difference_from_a_loop(network(), torch.from_numpy(points[:64]), torch.from_numpy(labels[:64]))
    print(f"clipped sum against a loop: largest difference {error:.1e} of the largest entry")
    assert error < 1e-4
    train("pergrad.torch", with_pergrad, points, labels)
    if find_spec("opacus"):
        train("opacus", with_opacus, points, labels)


if __name__ == "__main__":
    main()
