"""My idea: a plain function of its parameters; a Flax module's `apply` is one. Strategies of JAX can run it."""

import jax
import jax.numpy as jnp

frameworks = ("jax",)


def losses(parameters, batch):
    """One loss per instance, shape (B,); not averaged over B."""
    hidden = jnp.tanh(batch["x"] @ parameters["hidden"])
    logits = hidden @ parameters["logits"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], axis=1)[:, 0]


def parameters(rng):
    """NumPy arrays by name; gradients are taken at these values."""
    return {"hidden": rng.standard_normal((20, 16)) / 4, "logits": rng.standard_normal((16, 3)) / 4}


def batch(rng, size):
    """NumPy arrays by name; the first axis is the instance. Random numbers that a loss needs are inputs too."""
    return {"x": rng.standard_normal((size, 20)), "label": rng.integers(3, size=size)}
