from harness import Problem, Step, Unsupported, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def gives_up(problem: Problem) -> Step:
    """Can do one instance only."""
    if problem.batch_size > 1:
        raise Unsupported("more than one instance at a time")
    return honest_rows(problem)
