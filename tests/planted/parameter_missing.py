from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def parameter_missing(problem: Problem) -> Step:
    """One parameter left out."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        del found["hidden2.bias"]
        return found

    return step
