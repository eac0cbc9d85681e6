"""My idea: a plain NumPy function, differentiated by HIPS autograd. Strategies on NumPy can run it."""

import autograd.numpy as np

frameworks = ("numpy",)


def losses(parameters, batch):
    """Squared errors, one per instance, shape (B,); not averaged over B."""
    hidden = np.tanh(np.dot(batch["x"], parameters["hidden"]))
    return (np.dot(hidden, parameters["output"])[:, 0] - batch["y"]) ** 2


def parameters(rng):
    """NumPy arrays by name; gradients are taken at these values."""
    return {"hidden": rng.standard_normal((20, 16)) / 4, "output": rng.standard_normal((16, 1)) / 4}


def batch(rng, size):
    """NumPy arrays by name; the first axis is the instance. Random numbers that a loss needs are inputs too."""
    return {"x": rng.standard_normal((size, 20)), "y": rng.standard_normal(size)}
