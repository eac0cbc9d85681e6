"""Count what happens in a worker without being said: forks and slow fallbacks; adapters count compilations."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

SLOW = re.compile(r"performance drop|while_loop|fall.?back|not implemented the batching rule|slow", re.IGNORECASE)
"""What frameworks say when they replace a vectorised operation by a loop."""

Counter = Callable[[], int]


class Count:
    """A counter that is read by calling `read`."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, *_: Any, **__: Any) -> None:
        """Count one."""
        self.value += 1

    def read(self) -> int:
        """How many so far."""
        return self.value


def forks() -> Counter:
    """Start to count the forks of this process. A forked child has none of the threads that it may wait for."""
    count = Count()
    os.register_at_fork(before=count.add)
    return count.read


@contextlib.contextmanager
def slow_fallbacks() -> Iterator[list[str]]:
    """Collects warnings of slow fallbacks, from Python's `warnings` and from TensorFlow's logger."""
    found: list[str] = []

    def note(text: str) -> None:
        line = text.strip().partition("\n")[0][:300]
        if SLOW.search(line) and line not in found:
            found.append(line)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.getMessage())

    handler = Handler()
    logger = logging.getLogger("tensorflow")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
    finally:
        logger.removeHandler(handler)
        for warning in caught:
            note(str(warning.message))
