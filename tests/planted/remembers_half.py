import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def remembers_half(problem: Problem) -> Step:
    """Works twice as long on a batch that it has not seen: half of what a call would cost comes from memory."""
    rows = honest_rows(problem)
    seen: set[bytes] = set()

    def step(batch: Batch) -> Gradients:
        key = b"".join(np.ascontiguousarray(value).tobytes() for value in batch.values())
        if key not in seen:
            seen.add(key)
            rows(batch)
        return rows(batch)

    return step
