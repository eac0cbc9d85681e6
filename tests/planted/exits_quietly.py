import os

from harness import Problem, Step, strategy


@strategy(framework="numpy")
def exits_quietly(problem: Problem) -> Step:
    """Ends the process with exit status 0."""
    os._exit(0)
