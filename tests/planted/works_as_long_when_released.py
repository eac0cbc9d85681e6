from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Batch, Gradients, Problem, Step, strategy
from tests.planted.base import honest_rows


class Procrastinator(np.ndarray[Any, Any]):
    """An array that does something else when it goes away."""

    then: Callable[[], object] | None = None

    def __del__(self) -> None:
        if self.then:
            self.then()


@strategy(framework="numpy")
def works_as_long_when_released(problem: Problem) -> Step:
    """Does half of its work when its result is released: outside the clock as long as inside."""
    rows = honest_rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows(batch)
        name = next(iter(found))
        late = found[name].view(Procrastinator)
        late.then = lambda: rows(batch)
        return {**found, name: late}

    return step
