import time
from typing import Any

import numpy as np

from harness import Problem, Step, strategy
from tests.planted.base import honest_rows


class Lazy:
    """An array that is not there yet."""

    def __init__(self, value: "np.ndarray[Any, Any]") -> None:
        self.value = value

    def __array__(self, *_: Any, **__: Any) -> "np.ndarray[Any, Any]":
        time.sleep(0.05)
        return self.value


@strategy(framework="numpy")
def sleeps_in_the_conversion(problem: Problem) -> Step:
    """Returns something that computes when it is converted to NumPy, outside the clock."""
    rows = honest_rows(problem)
    return lambda batch: {name: Lazy(value) for name, value in rows(batch).items()}
