import os
import time

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def forks(problem: Problem) -> Step:
    """Forks a child that outlives the worker."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        if not children:
            children.append(os.fork())
            if children[0] == 0:  # the child: it holds the worker's pipe and never ends
                time.sleep(1000)
        return rows(batch)

    children: list[int] = []
    return step
