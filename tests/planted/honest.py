from harness import Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def honest(problem: Problem) -> Step:
    """A loop of HIPS autograd: slow, right, and needs no framework."""
    return honest_rows(problem)
