"""Bring your model, PyTorch: a `torch.nn.Module` as it is, called through `functional_call`.

Run it with

    pergrad run --workload examples/torch_module.py

Only strategies of PyTorch can run it. The truth is computed by PyTorch too, in float64, one instance at a time.
"""

import torch
from torch.func import functional_call

frameworks = ("torch",)


class Classifier(torch.nn.Module):
    """A convolution, a norm layer in the middle, a dense layer."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, kernel_size=3, stride=2),
            torch.nn.GroupNorm(2, 8),  # batch normalisation would couple the instances
            torch.nn.ReLU(),
            torch.nn.Flatten(),
        )
        self.logits = torch.nn.Linear(8 * 13 * 13, 10)

    def forward(self, images):
        """Logits (B, 10) of images (B, 1, 28, 28)."""
        return self.logits(self.features(images))


torch.manual_seed(0)
MODEL = Classifier()


def losses(parameters, batch):
    """One loss per instance, shape (B,)."""
    logits = functional_call(MODEL, parameters, (batch["image"],))
    return torch.nn.functional.cross_entropy(logits, batch["label"], reduction="none")


def parameters(rng):
    """The model's own parameters, as NumPy arrays by name."""
    return {name: value.detach().numpy() for name, value in MODEL.named_parameters()}


def batch(rng, size):
    """`image` (B, 1, 28, 28), as PyTorch wants it, and `label` (B,); NumPy arrays, drawn from `rng`."""
    return {"image": rng.random((size, 1, 28, 28)), "label": rng.integers(10, size=size)}
