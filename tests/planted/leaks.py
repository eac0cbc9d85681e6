import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def leaks(problem: Problem) -> Step:
    """Keeps 50 MB more with every call."""
    rows = honest_rows(problem)
    kept = []

    def step(batch: Batch) -> Gradients:
        kept.append(np.ones(50_000_000 // 8))
        return rows(batch)

    return step
