from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def parameter_renamed(problem: Problem) -> Step:
    """One parameter under another name."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        found["weight"] = found.pop("hidden2.weight")
        return found

    return step
