from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def transposed(problem: Problem) -> Step:
    """One square weight transposed."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found["hidden1.weight"] = found["hidden1.weight"].transpose(0, 2, 1)
        return found

    return step
