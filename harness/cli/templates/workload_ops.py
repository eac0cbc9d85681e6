"""My idea: a dense network of one hidden layer, cross-entropy. Written through `ops`, every framework can run it."""

from pergrad import synthetic


def losses(ops, parameters, batch):
    """One loss per instance, shape (B,); not averaged over B."""
    hidden = ops.tanh(ops.dense(batch["x"], parameters["hidden.weight"], parameters["hidden.bias"]))
    logits = ops.dense(hidden, parameters["logits.weight"], parameters["logits.bias"])
    return ops.softmax_cross_entropy(batch["label"], logits)


def parameters(rng):
    """NumPy arrays by name; gradients are taken at these values."""
    return synthetic.layers(rng, {"hidden": (20, 16), "logits": (16, 3)})


def batch(rng, size):
    """NumPy arrays by name; the first axis is the instance. Random numbers that a loss needs are inputs too."""
    return {"x": rng.standard_normal((size, 20)), "label": rng.integers(3, size=size)}
