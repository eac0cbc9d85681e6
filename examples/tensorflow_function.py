"""Bring your model, plain TensorFlow: one function that runs in graphs and sessions (TF1) and in `tf.function` (TF2).

Run it with

    pergrad run --workload examples/tensorflow_function.py

Strategies of both ways to use TensorFlow can run it. The truth is computed by TensorFlow too, in float64, one
instance at a time.
"""

import tensorflow as tf

frameworks = ("tf1", "tf2")


def losses(parameters, batch):
    """Squared error of a network with one hidden layer, shape (B,)."""
    hidden = tf.tanh(tf.matmul(batch["x"], parameters["hidden"]))
    return (tf.squeeze(tf.matmul(hidden, parameters["output"]), 1) - batch["y"]) ** 2


def parameters(rng):
    """NumPy arrays by name."""
    return {"hidden": rng.standard_normal((5, 8)), "output": rng.standard_normal((8, 1))}


def batch(rng, size):
    """`x` (B, 5) and `y` (B,); NumPy arrays, drawn from `rng`."""
    return {"x": rng.random((size, 5)), "y": rng.random(size)}
