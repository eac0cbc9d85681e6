"""pergrad's engine: find strategies and workloads, measure them, judge them, report.

The public interface of a plugin, and of a notebook::

    from harness import Problem, Step, Unsupported, strategy, workload
    from harness import load, run
"""

from harness.api import load, run
from harness.core.problem import Array, Batch, Gradients, GraphProblem, Parameters, Problem, Step
from harness.core.domain import INTERFACE
from harness.core.strategy import Strategy, Unsupported, strategy
from harness.core.workload import Workload, workload

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
    "load",
    "run",
    "strategy",
    "workload",
]
__version__ = "0.1.0"
