"""Record the observations of workload `policy` from CartPole-v1.

Needs gymnasium, which pergrad itself does not::

    pip install gymnasium==1.4.0
    python harness/workloads/data/record_cartpole.py

Episodes are played with uniformly random actions from a fixed seed until 4,096 observations are recorded
(cart position in m, cart velocity in m/s, pole angle in rad, pole angular velocity in rad/s).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SEED = 20260101
COUNT = 4096


def record() -> np.ndarray[Any, Any]:
    """Play random episodes and return the observations, float32 of shape (4096, 4)."""
    import gymnasium  # type: ignore[import-not-found]

    environment = gymnasium.make("CartPole-v1")
    environment.action_space.seed(SEED)
    observation, _ = environment.reset(seed=SEED)
    observations: list[Any] = []
    while len(observations) < COUNT:
        observations.append(observation)
        observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        if terminated or truncated:
            observation, _ = environment.reset()
    return np.asarray(observations, dtype=np.float32)


if __name__ == "__main__":
    np.save(Path(__file__).parent / "cartpole_observations.npy", record())
