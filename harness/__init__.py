"""pergrad's engine: find strategies and workloads, measure them, judge them, report.

The names below are the whole public interface of a strategy file::

    from harness import Problem, Step, Unsupported, strategy
"""

from harness.problem import Array, Batch, Gradients, GraphProblem, Parameters, Problem, Step
from harness.strategies import Unsupported, strategy

__all__ = ["Array", "Batch", "Gradients", "GraphProblem", "Parameters", "Problem", "Step", "Unsupported", "strategy"]
__version__ = "0.1.0"
