from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def none_for_a_parameter(problem: Problem) -> Step:
    """None for a parameter, as TensorFlow gives for an unconnected one."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found["hidden1.bias"] = None
        return found

    return step
