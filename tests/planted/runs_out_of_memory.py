import numpy as np

from harness import Problem, Step, strategy


@strategy(framework="numpy")
def runs_out_of_memory(problem: Problem) -> Step:
    """Asks for more memory than there is."""
    np.empty(1 << 60, np.uint8)
    raise AssertionError
