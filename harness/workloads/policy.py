"""The question's policy network: 4 observations, two hidden layers of 4 with ELU, one logit (45 parameters).

A policy-gradient learner for CartPole-v1, as in the second answer to the question this project began with. The
action is drawn inside the loss from a uniform that comes with the batch: left if u < sigmoid(logit). The loss is
the sigmoid cross-entropy of the logit with y = 1 - action (action 0 is left), so its gradient is what REINFORCE
multiplies with an advantage. The observations are real: recorded from CartPole-v1 with random actions
(`_record_cartpole.py`). Weights are drawn with variance scaling (fan in, scale 2, normal truncated at two
standard deviations), biases start at zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from harness.core.problem import Array, Batch, Parameters

OBSERVATIONS = Path(__file__).parent / "data" / "cartpole_observations.npy"


def losses(ops: Any, parameters: Parameters, batch: Batch) -> Array:
    """Sigmoid cross-entropy of the drawn action, shape (B,)."""
    p = parameters
    hidden = ops.elu(ops.dense(batch["observation"], p["hidden1.weight"], p["hidden1.bias"]))
    hidden = ops.elu(ops.dense(hidden, p["hidden2.weight"], p["hidden2.bias"]))
    logit = ops.squeeze(ops.dense(hidden, p["logit.weight"], p["logit.bias"]), -1)
    left = ops.less(batch["uniform"], ops.sigmoid(logit))  # action = 1 - left, y = 1 - action = left
    return ops.sigmoid_cross_entropy(left, logit)


def parameters(rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Weights of shape (inputs, outputs) and biases."""
    values = {}
    for layer, inputs, outputs in (("hidden1", 4, 4), ("hidden2", 4, 4), ("logit", 4, 1)):
        values[f"{layer}.weight"] = _variance_scaling(rng, inputs, outputs)
        values[f"{layer}.bias"] = np.zeros(outputs)
    return values


def batch(rng: np.random.Generator, size: int) -> dict[str, np.ndarray[Any, Any]]:
    """`observation` (B, 4), drawn with replacement from the recorded ones, and `uniform` (B,) in [0, 1)."""
    recorded = np.load(OBSERVATIONS, allow_pickle=False)
    return {
        "observation": recorded[rng.integers(len(recorded), size=size)].astype(np.float64),
        "uniform": rng.random(size),
    }


def _variance_scaling(rng: np.random.Generator, inputs: int, outputs: int) -> np.ndarray[Any, Any]:
    """He et al. 2015 (arXiv 1502.01852), truncated; 0.8796 is the standard deviation left after truncation."""
    draws = rng.standard_normal((inputs, outputs))
    while (outside := np.abs(draws) > 2).any():
        draws[outside] = rng.standard_normal(int(outside.sum()))
    values: np.ndarray[Any, Any] = draws * np.sqrt(2 / inputs) / 0.87962566103423978
    return values
