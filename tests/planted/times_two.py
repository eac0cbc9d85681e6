from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def times_two(problem: Problem) -> Step:
    """Every row twice what it should be."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found = {name: 2 * value for name, value in found.items()}
        return found

    return step
