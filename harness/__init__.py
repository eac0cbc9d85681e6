"""The engine of pergrad. Plugins and notebooks import `pergrad`; the same names stay importable from here."""

from harness.api import load, run
from harness.core import layouts, synthetic
from harness.core import synthetic as draw  # its name in plugins of the first version
from harness.core.domain import INTERFACE, __version__
from harness.core.problem import Array, Batch, Gradients, GraphProblem, Parameters, Problem, Step
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
    "__version__",
    "draw",
    "layouts",
    "load",
    "run",
    "strategy",
    "synthetic",
    "workload",
]
