from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def cached_by_value(problem: Problem) -> Step:
    """Remembers the answer for every batch it has seen, by its values."""
    rows = honest_rows(problem)
    answers: dict[bytes, Gradients] = {}

    def step(batch: Batch) -> Gradients:
        key = b"".join(value.tobytes() for value in batch.values())
        if key not in answers:
            answers[key] = rows(batch)
        return answers[key]

    return step
