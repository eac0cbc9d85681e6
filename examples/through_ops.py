"""Bring your model, for all frameworks: a small autoencoder of handwritten digits, written once through `ops`.

Run it with

    pergrad run --workload examples/through_ops.py

The functions are the same as in the built-in workloads (`harness/workloads/`); the operations that `ops` offers are
listed in `harness/ops/__init__.py`.
"""

from pergrad import synthetic


def losses(ops, parameters, batch):
    """One loss per instance, shape (B,): the mean squared error of the reconstruction. Do not average over B."""
    p = parameters
    code = ops.tanh(ops.dense(batch["image"], p["encoder.weight"], p["encoder.bias"]))
    image = ops.sigmoid(ops.dense(code, p["decoder.weight"], p["decoder.bias"]))
    return ops.mean((image - batch["image"]) ** 2, 1)


def parameters(rng):
    """The values that gradients are taken at, as NumPy arrays by name; `rng` is a NumPy generator."""
    return synthetic.layers(rng, {"encoder": (784, 16), "decoder": (16, 784)})


def batch(rng, size):
    """`size` instances as NumPy arrays by name; the first axis is the instance. Random numbers are inputs too."""
    images, _ = synthetic.digits(rng, size)
    return {"image": images.reshape(size, 784)}
