import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def nan_in_one_row(problem: Problem) -> Step:
    """Not a number in one row."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found["logit.weight"][1, 2] = np.nan
        return found

    return step
