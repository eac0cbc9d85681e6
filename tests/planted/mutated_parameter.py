from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def mutated_parameter(problem: Problem) -> Step:
    """Changes a parameter, so little that the rows still agree."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        problem.parameters["hidden1.bias"][0] += 1e-9
        return found

    return step
