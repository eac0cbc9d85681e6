"""pergrad: every known way to compute per-instance gradients, measured, checked and compared.

What plugins, notebooks and documentation import::

    from pergrad import Problem, Step, Unsupported, strategy, workload
    from pergrad import load, run
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import (
        INTERFACE,
        Array,
        Batch,
        Gradients,
        GraphProblem,
        Parameters,
        Problem,
        Step,
        Strategy,
        Unsupported,
        Workload,
        __version__,
        layouts,
        load,
        run,
        strategy,
        synthetic,
        workload,
    )

__all__ = [
    "INTERFACE",
    "Array",
    "Batch",
    "Gradients",
    "GraphProblem",
    "Parameters",
    "Problem",
    "Step",
    "Strategy",
    "Unsupported",
    "Workload",
    "__version__",
    "layouts",
    "load",
    "run",
    "strategy",
    "synthetic",
    "workload",
]


def __getattr__(name: str) -> Any:
    """Import the engine when one of its names is asked for: the modules beside this one stand without it."""
    if name in __all__:
        return getattr(importlib.import_module("harness"), name)
    raise AttributeError(f"module 'pergrad' has no attribute {name!r}")
