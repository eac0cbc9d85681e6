from harness import Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy", requires=["a_package_that_nobody_has"])
def needs_a_package(problem: Problem) -> Step:
    """Needs a package that nobody has."""
    return honest_rows(problem)
