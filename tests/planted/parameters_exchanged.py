from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def parameters_exchanged(problem: Problem) -> Step:
    """Two parameters of equal shape exchanged."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found["hidden1.weight"], found["hidden2.weight"] = found["hidden2.weight"], found["hidden1.weight"]
        return found

    return step
