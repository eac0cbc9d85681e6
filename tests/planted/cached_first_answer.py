from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def cached_first_answer(problem: Problem) -> Step:
    """Gives the first answer to every question."""
    rows = honest_rows(problem)
    answers: list[Gradients] = []

    def step(batch: Batch) -> Gradients:
        if not answers:
            answers.append(rows(batch))
        return answers[0]

    return step
