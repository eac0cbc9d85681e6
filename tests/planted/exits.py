import os
import sys

from harness import Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def exits(problem: Problem) -> Step:
    """Ends the process in the middle of a case."""
    rows = honest_rows(problem)
    if problem.batch_size == 3:
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)
    return rows
