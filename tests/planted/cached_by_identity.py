from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def cached_by_identity(problem: Problem) -> Step:
    """Remembers the answer for every batch object it has seen."""
    rows = honest_rows(problem)
    answers: dict[int, Gradients] = {}

    def step(batch: Batch) -> Gradients:
        if id(batch) not in answers:
            answers[id(batch)] = rows(batch)
        return answers[id(batch)]

    return step
