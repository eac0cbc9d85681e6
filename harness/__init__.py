"""pergrad's engine: find strategies and workloads, measure them, judge them, report.

The public interface of a plugin, and of a notebook::

    from harness import Problem, Step, Unsupported, strategy, workload
    from harness import load, run
"""

from harness.notebook import load, run
from harness.problem import Array, Batch, Gradients, GraphProblem, Parameters, Problem, Step
from harness.strategies import INTERFACE, Strategy, Unsupported, strategy
from harness.workloads import Workload, workload

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
