"""What lies inside the clock for one strategy, as text: its own code and the harness's, nothing retold."""

from __future__ import annotations

import ast
import inspect
import textwrap

from harness import frameworks
from harness.core.strategy import Strategy


def inside_the_clock(strategy: Strategy) -> str:
    """What the stopwatch times for this strategy, and what it does not."""
    waiting = inspect.getdoc(frameworks.adapter_class(strategy.framework).wait) or ""
    return (
        "Inside the clock, once per timed call:\n"
        "    output = step(batch)   # parameters and batch are on the device already; step is\n"
        f"{textwrap.indent(step_code(strategy), ' ' * 8)}\n"
        f"    wait(output)           # {waiting.partition(chr(10))[0]}\n"
        "Outside it, each with a clock of its own: the build, which is everything before `return`; the first call; "
        "copying the output to NumPy."
    )


def step_code(strategy: Strategy) -> str:
    """The source of what the strategy's function returns: an expression, or the function of that name inside it."""
    source = textwrap.dedent(inspect.getsource(strategy.build))
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    returned = [node.value for node in function.body if isinstance(node, ast.Return) and node.value is not None]
    if not returned:
        return source.rstrip()
    inner = {node.name: node for node in function.body if isinstance(node, ast.FunctionDef)}
    chosen: ast.AST = returned[-1]
    if isinstance(chosen, ast.Name) and chosen.id in inner:
        chosen = inner[chosen.id]
    return textwrap.dedent(" " * getattr(chosen, "col_offset", 0) + (ast.get_source_segment(source, chosen) or ""))
