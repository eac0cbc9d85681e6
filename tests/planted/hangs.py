import subprocess
import time

from harness import Batch, Gradients, Problem, Step, strategy


@strategy(framework="numpy")
def hangs(problem: Problem) -> Step:
    """Never returns, and has started a process that does not end either."""

    def step(batch: Batch) -> Gradients:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        time.sleep(1000)
        return {}

    return step
