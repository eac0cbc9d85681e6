import os
import time

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def busy_wait(problem: Problem) -> Step:
    """Takes exactly as many milliseconds as `PERGRAD_BUSY_MS` says, busy all the time."""
    rows = honest_rows(problem)
    seconds = float(os.environ["PERGRAD_BUSY_MS"]) * 1e-3
    known: dict[bytes, Gradients] = {}

    def step(batch: Batch) -> Gradients:
        end = time.perf_counter() + seconds
        key = b"".join(value.tobytes() for value in batch.values())
        if key not in known:
            known[key] = rows(batch)
        while time.perf_counter() < end:
            pass
        return known[key]

    return step
