"""Bring your model, PyTorch: a `torch.nn.Module` as it is, and its loss.

Run it with

    pergrad run --workload examples/torch_module.py

Only strategies of PyTorch can run it; with `--full`, Opacus and BackPACK are given the module itself. The truth is
computed by PyTorch too, in float64, one instance at a time.
"""

import torch

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


def model():
    """The model, with the same weights in every process. What is called `Classifier` here is yours, as it is."""
    torch.manual_seed(0)
    return Classifier()


def loss(output, batch):
    """One loss per instance, shape (B,), of what the model returned for the first input, `image`."""
    return torch.nn.functional.cross_entropy(output, batch["label"], reduction="none")


def batch(rng, size):
    """`image` (B, 1, 28, 28), as PyTorch wants it, and `label` (B,); NumPy arrays, drawn from `rng`."""
    return {"image": rng.random((size, 1, 28, 28)), "label": rng.integers(10, size=size)}
