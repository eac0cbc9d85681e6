"""My idea: a `torch.nn.Module` and its loss. Strategies of PyTorch can run it."""

import torch

frameworks = ("torch",)


def model():
    """The module, with the same weights in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def inputs(batch):
    """The arguments of the module's call; without this function, the first input of the batch."""
    return (batch["x"],)


def loss(output, batch):
    """One loss per instance, shape (B,); not averaged over B."""
    return torch.nn.functional.cross_entropy(output, batch["label"], reduction="none")


def batch(rng, size):
    """NumPy arrays by name; the first axis is the instance. Random numbers that a loss needs are inputs too."""
    return {"x": rng.standard_normal((size, 20)), "label": rng.integers(3, size=size)}
