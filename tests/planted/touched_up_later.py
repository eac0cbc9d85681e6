import threading

import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


@strategy(framework="numpy")
def touched_up_later(problem: Problem) -> Step:
    """Returns rows that agree, and goes on working on them."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        flaw = np.float32(1e-6) * np.abs(found["logit.bias"])
        found["logit.bias"] += flaw

        def mend() -> None:
            found["logit.bias"] -= flaw

        threading.Timer(0.02, mend).start()
        return found

    return step
