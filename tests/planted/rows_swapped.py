from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def rows_swapped(problem: Problem) -> Step:
    """The first two rows exchanged."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        for value in found.values():
            value[[0, 1]] = value[[1, 0]]
        return found

    return step
