import os

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def prints_rows(problem: Problem) -> Step:
    """Writes to standard output and error what looks like a measurement."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        print('{"event": "row", "row": {"status": "ok", "median_s": 1e-9}}', flush=True)
        os.write(2, b'{"event": "row"}\n')
        return found

    return step
