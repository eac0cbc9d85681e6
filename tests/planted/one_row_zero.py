from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def one_row_zero(problem: Problem) -> Step:
    """One row forgotten."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        for value in found.values():
            value[2] = 0
        return found

    return step
