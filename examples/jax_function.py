"""Bring your model, JAX: a plain function of nested parameters; a Flax module's `apply` is one.

Run it with

    pergrad run --workload examples/jax_function.py

Only strategies of JAX can run it. The truth is computed by JAX too, in float64, one instance at a time.
"""

import jax
import jax.numpy as jnp
import numpy as np

frameworks = ("jax",)


def model(parameters, x):
    """A recurrence over the 8 rows of an image; `parameters` is nested, as a library would have it."""

    def cell(hidden, row):
        hidden = jnp.tanh(row @ parameters["cell"]["input"] + hidden @ parameters["cell"]["hidden"])
        return hidden, None

    start = jnp.zeros((x.shape[0], 16), x.dtype)
    hidden, _ = jax.lax.scan(cell, start, x.swapaxes(0, 1))
    return hidden @ parameters["logits"]


def nested(rng):
    """What your library's `init` returns."""
    return {
        "cell": {"input": rng.standard_normal((8, 16)) / 8, "hidden": rng.standard_normal((16, 16)) / 16},
        "logits": rng.standard_normal((16, 10)) / 16,
    }


STRUCTURE = jax.tree.structure(nested(np.random.default_rng(0)))


def losses(parameters, batch):
    """One loss per instance, shape (B,); the flat names are put back into the nested structure."""
    logits = model(jax.tree.unflatten(STRUCTURE, parameters.values()), batch["rows"])
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], axis=1)[:, 0]


def parameters(rng):
    """Names such as `cell.input` and NumPy arrays."""
    leaves, _ = jax.tree.flatten_with_path(nested(rng))
    return {".".join(key.key for key in path): value for path, value in leaves}


def batch(rng, size):
    """`rows` (B, 8, 8) and `label` (B,); NumPy arrays, drawn from `rng`."""
    return {"rows": rng.random((size, 8, 8)), "label": rng.integers(10, size=size)}
