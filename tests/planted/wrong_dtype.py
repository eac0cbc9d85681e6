import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def wrong_dtype(problem: Problem) -> Step:
    """float64 where float32 was asked for."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found = {name: value.astype(np.float64) for name, value in found.items()}
        return found

    return step
