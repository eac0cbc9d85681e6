import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def remembers_most(problem: Problem) -> Step:
    """Works three times as long on a batch that it has not seen: most of what a call costs comes from memory."""
    rows = honest_rows(problem)
    seen: set[bytes] = set()

    def step(batch: Batch) -> Gradients:
        key = b"".join(np.ascontiguousarray(value).tobytes() for value in batch.values())
        if key not in seen:
            seen.add(key)
            rows(batch)
            rows(batch)
        return rows(batch)

    return step
