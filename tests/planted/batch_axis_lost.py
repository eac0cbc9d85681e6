from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def batch_axis_lost(problem: Problem) -> Step:
    """What `tf.gradients` of a batch returns: the sum, without a batch axis."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found = {name: value.sum(axis=0) for name, value in found.items()}
        return found

    return step
