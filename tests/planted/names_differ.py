from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def names_differ(problem: Problem) -> Step:
    """A list of rows, one of which has an array more."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        listed = [{name: value[i] for name, value in found.items()} for i in range(problem.batch_size)]
        listed[1]["another"] = listed[1]["hidden1.bias"]
        return listed

    return step
