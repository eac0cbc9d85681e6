from dataclasses import replace

import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def float16_inside(problem: Problem) -> Step:
    """Computed in half precision, returned in single."""
    half = {name: value.astype(np.float16) for name, value in problem.parameters.items()}
    rows = honest_rows(replace(problem, parameters=half))

    def step(batch: Batch) -> Gradients:
        found = rows({name: value.astype(np.float16) for name, value in batch.items()})
        return {name: value.astype(np.float32) for name, value in found.items()}

    return step
