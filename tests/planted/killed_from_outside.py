import os
import signal

from harness import Problem, Step, strategy


@strategy(framework="numpy")
def killed_from_outside(problem: Problem) -> Step:
    """Dies as the kernel kills when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
