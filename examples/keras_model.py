"""Bring your model, Keras on TensorFlow: a model as it is, called without state through `stateless_call`.

Run it with

    pergrad run --workload examples/keras_model.py

Only strategies of TensorFlow 2 can run it. The truth is computed by TensorFlow too, in float64, one instance at a
time.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import tensorflow as tf

frameworks = ("tf2",)

NAMES = ("conv.kernel", "conv.bias", "logits.kernel", "logits.bias")


def model(dtype):
    """The model; Keras fixes the dtype of a layer when it is made, so there is one model per dtype."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((28, 28, 1), dtype=dtype),
            keras.layers.Conv2D(8, 3, strides=2, activation="relu", dtype=dtype),
            keras.layers.Flatten(dtype=dtype),
            keras.layers.Dense(10, dtype=dtype),
        ]
    )


MODELS = {dtype: model(dtype) for dtype in ("float32", "float64", "bfloat16")}


def losses(parameters, batch):
    """One loss per instance, shape (B,)."""
    weights = [parameters[name] for name in NAMES]
    logits, _ = MODELS[batch["image"].dtype.name].stateless_call(weights, [], batch["image"])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits)


def parameters(rng):
    """The model's own parameters, as NumPy arrays by name."""
    variables = MODELS["float32"].trainable_variables
    return {name: variable.numpy() for name, variable in zip(NAMES, variables, strict=True)}


def batch(rng, size):
    """`image` (B, 28, 28, 1) and `label` (B,); NumPy arrays, drawn from `rng`."""
    return {"image": rng.random((size, 28, 28, 1)), "label": rng.integers(10, size=size)}
