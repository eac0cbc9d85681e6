"""pergrad: every known way to compute per-instance gradients, measured, checked and compared.

What plugins, notebooks and documentation import::

    from pergrad import Problem, Step, Unsupported, strategy, workload
    from pergrad import load, run
"""

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
