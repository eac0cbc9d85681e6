"""My idea: one TensorFlow function. Strategies of TensorFlow can run it, in sessions and in `tf.function`."""

import tensorflow as tf

frameworks = ("tf1", "tf2")


def losses(parameters, batch):
    """One loss per instance, shape (B,); not averaged over B."""
    logits = tf.matmul(tf.tanh(tf.matmul(batch["x"], parameters["hidden"])), parameters["logits"])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits)


def parameters(rng):
    """NumPy arrays by name; gradients are taken at these values."""
    return {"hidden": rng.standard_normal((20, 16)) / 4, "logits": rng.standard_normal((16, 3)) / 4}


def batch(rng, size):
    """NumPy arrays by name; the first axis is the instance. Random numbers that a loss needs are inputs too."""
    return {"x": rng.standard_normal((size, 20)), "label": rng.integers(3, size=size)}
