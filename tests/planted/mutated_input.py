from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def mutated_input(problem: Problem) -> Step:
    """Changes its input, so little that no action changes at once."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        batch["uniform"] *= 0.9999
        return found

    return step
