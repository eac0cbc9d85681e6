import time
from typing import Any

import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


class Procrastinator(np.ndarray[Any, Any]):
    """An array that is slow to go away."""

    def __del__(self) -> None:
        time.sleep(0.003)


@strategy(framework="numpy")
def works_when_released(problem: Problem) -> Step:
    """Puts work off until its result is released, outside the clock."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found: Gradients = {name: value.view(Procrastinator) for name, value in rows(batch).items()}
        return found

    return step
