"""My idea: a `torch.nn.Module` as it is, called through `functional_call`. Strategies of PyTorch can run it."""

import torch
from torch.func import functional_call

frameworks = ("torch",)

torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def losses(parameters, batch):
    """One loss per instance, shape (B,); not averaged over B."""
    logits = functional_call(MODEL, parameters, (batch["x"],))
    return torch.nn.functional.cross_entropy(logits, batch["label"], reduction="none")


def parameters(rng):
    """NumPy arrays by name; gradients are taken at these values."""
    return {name: value.detach().numpy() for name, value in MODEL.named_parameters()}


def batch(rng, size):
    """NumPy arrays by name; the first axis is the instance. Random numbers that a loss needs are inputs too."""
    return {"x": rng.standard_normal((size, 20)), "label": rng.integers(3, size=size)}
