import ctypes

from harness import Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def segfaults(problem: Problem) -> Step:
    """Reads address 0."""
    rows = honest_rows(problem)
    if problem.batch_size == 3:
        ctypes.string_at(0)
    return rows
