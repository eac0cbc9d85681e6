"""Count what a framework does without saying so: compilations, hidden loops, slow fallbacks, forks."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

SLOW = re.compile(r"performance drop|while_loop|fall.?back|not implemented the batching rule|slow", re.IGNORECASE)
"""What frameworks say when they replace a vectorised operation by a loop."""

Counter = Callable[[], int]


def compilations(framework: str) -> Counter:
    """Start to count: traces of `tf.function`, compilations by XLA in JAX, graphs of `torch.compile`.

    The framework must have been imported.
    """
    return {"tf2": _tensorflow, "jax": _jax, "torch": _torch}.get(framework, lambda: lambda: 0)()


def forks() -> Counter:
    """Start to count the forks of this process. A forked child has none of the threads that it may wait for."""
    count = _Count()
    os.register_at_fork(before=count.add)
    return count.read


def while_loops(framework: str, step: Callable[..., Any], batch: Any) -> int | None:
    """`While` nodes in the graph of a `tf.function`; None where there is no such graph.

    The converter of `tf.vectorized_map` uses a loop for some operations without saying so; the graph tells.
    """
    if framework != "tf2" or not hasattr(step, "get_concrete_function"):
        return None
    graph = step.get_concrete_function(batch).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return sum(node.op in ("While", "StatelessWhile") for node in nodes)


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


class _Count:
    def __init__(self) -> None:
        self.value = 0

    def add(self, *_: Any, **__: Any) -> None:
        self.value += 1

    def read(self) -> int:
        return self.value


def _jax() -> Counter:
    from jax import monitoring

    count = _Count()

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            count.add()

    monitoring.register_event_duration_secs_listener(listen)
    return count.read


def _tensorflow() -> Counter:
    # Every trace of a tf.function, and every call of tf.vectorized_map outside one, makes a FuncGraph. TensorFlow
    # has no public counter that covers functions which a strategy keeps to itself.
    from tensorflow.python.framework.func_graph import FuncGraph

    count = _Count()
    original = FuncGraph.__init__

    def counted(self: Any, *arguments: Any, **keywords: Any) -> None:
        count.add()
        original(self, *arguments, **keywords)

    FuncGraph.__init__ = counted
    return count.read


def _torch() -> Counter:
    def read() -> int:
        dynamo = sys.modules.get("torch._dynamo.utils")
        return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0

    return read
