"""The built-in workloads as `torch.nn.Module`: the layers of `torch.nn`, images as NCHW.

A module returns the summed loss. Its layers are defined in the order of the workload's parameters, from which they
take their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness import Problem
from tests.accuracy import Calls

Batch = Mapping[str, Tensor]


def calls(workload: str, problem: Problem, batch: Batch) -> Calls:
    """Both as `torch.autograd.grad` of the loss, in eager mode."""
    module = NETWORKS[workload]()
    load(module, problem.parameters)
    own = list(module.parameters())
    p = {name: value.requires_grad_() for name, value in problem.parameters.items()}
    values = list(p.values())

    def through_ops() -> tuple[Any, Any]:
        loss = problem.losses(p, batch).sum()
        return loss, torch.autograd.grad(loss, values)

    def by_hand() -> tuple[Any, Any]:
        loss = module(batch)
        return loss, torch.autograd.grad(loss, own)

    return through_ops, by_hand


def load(module: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """Give the module the workload's values, in order; PyTorch has two biases in an LSTM, the second becomes zero."""
    values: Iterator[Tensor] = iter(parameters.values())
    with torch.no_grad():
        for layer in module.modules():
            for name, own in layer.named_parameters(recurse=False):
                if name == "bias_hh_l0":
                    own.zero_()
                else:
                    value = next(values)
                    own.copy_(value.T if isinstance(layer, nn.Linear) and name == "weight" else value)
    assert next(values, None) is None


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden1, self.hidden2, self.logit = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, batch: Batch) -> Tensor:
        hidden = F.elu(self.hidden1(batch["observation"]))
        hidden = F.elu(self.hidden2(hidden))
        logit = self.logit(hidden).squeeze(-1)
        y = (batch["uniform"] < torch.sigmoid(logit)).to(logit.dtype)
        return F.binary_cross_entropy_with_logits(logit, y, reduction="sum")


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden1, self.hidden2, self.logits = nn.Linear(784, 256), nn.Linear(256, 256), nn.Linear(256, 10)

    def forward(self, batch: Batch) -> Tensor:
        hidden = F.relu(self.hidden1(batch["image"]))
        hidden = F.relu(self.hidden2(hidden))
        return F.cross_entropy(self.logits(hidden), batch["label"], reduction="sum")


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 8, stride=2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, stride=2)
        self.hidden, self.logits = nn.Linear(512, 32), nn.Linear(32, 10)

    def forward(self, batch: Batch) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(batch["image"])), 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 1)
        x = F.relu(self.hidden(x.flatten(1)))
        return F.cross_entropy(self.logits(x), batch["label"], reduction="sum")


class CifarCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
            *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1), nn.ReLU()),
            *(nn.AvgPool2d(2), nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 10, 3, padding=1)),
        )

    def forward(self, batch: Batch) -> Tensor:
        logits = self.layers(batch["image"]).mean((2, 3))
        return F.cross_entropy(logits, batch["label"], reduction="sum")


class FunctorchCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.hidden, self.logits = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, batch: Batch) -> Tensor:
        x = F.relu(self.conv1(batch["image"]))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.hidden(x.flatten(1)))
        return F.cross_entropy(self.logits(x), batch["label"], reduction="sum")


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.logits = nn.Embedding(10_004, 16), nn.Linear(16, 2)

    def forward(self, batch: Batch) -> Tensor:
        mask = batch["mask"]
        vectors = self.embedding(batch["tokens"])
        text = (vectors * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return F.cross_entropy(self.logits(text), batch["label"], reduction="sum")


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(10_004, 100), nn.LSTM(100, 100, batch_first=True)
        self.logits = nn.Linear(100, 2)

    def forward(self, batch: Batch) -> Tensor:
        states, _ = self.lstm(self.embedding(batch["tokens"]))
        return F.cross_entropy(self.logits(states.mean(1)), batch["label"], reduction="sum")


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(2_000, 64), nn.Embedding(32, 64)
        self.query, self.key, self.value, self.mixed = (nn.Linear(64, 64) for _ in range(4))
        self.hidden, self.output = nn.Linear(64, 256), nn.Linear(256, 64)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(64) for _ in range(3))

    def forward(self, batch: Batch) -> Tensor:
        x = self.embedding(batch["tokens"]) + self.position.weight
        x = x + self.mixed(self.attention(self.norm1(x)))
        x = x + self.output(F.gelu(self.hidden(self.norm2(x)), approximate="tanh"))
        logits = F.linear(self.norm3(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), batch["next"].flatten(), reduction="sum") / x.shape[1]

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).view(*x.shape[:2], 4, 16).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "policy": Policy,
    "mlp": MLP,
    "cnn": CNN,
    "cifar-cnn": CifarCNN,
    "functorch-cnn": FunctorchCNN,
    "embedding": Embedding,
    "lstm": LSTM,
    "transformer": Transformer,
}
