from harness import Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def raises_at_64(problem: Problem) -> Step:
    """Works, but not at batch size 64."""
    rows = honest_rows(problem)
    if problem.batch_size == 64:
        raise ValueError("64 is not my number")
    return rows
