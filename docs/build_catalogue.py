"""The catalogue of all strategies as a page of Markdown, from their docstrings.

To make the page anew: `python docs/build_catalogue.py > docs/catalogue.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from harness.core import find_strategies
from harness.core.domain import QUANTITIES
from harness.core.find_strategies import FOLDER
from harness.core.framework import framework, framework_names
from harness.core.strategy import Strategy


def markdown(found: Iterable[Strategy]) -> str:
    """One section per framework, one entry per strategy: docstring, source, what it returns."""
    listed = sorted(found, key=lambda strategy: (framework_names().index(strategy.framework), strategy.name))
    lines = [
        "# Catalogue of strategies",
        "",
        f"{len(listed)} strategies, each one file in [`strategies/`](../strategies). This page is made from their",
        "docstrings by `python docs/build_catalogue.py`. `pergrad show NAME` prints one with its code.",
    ]
    for name, some in groupby(listed, key=lambda strategy: strategy.framework):
        lines += ["", f"## {framework(name).label}"]
        for strategy in some:
            lines += ["", f"### {strategy.name}", "", *strategy.docstring.splitlines(), "", *_facts(strategy)]
    return "\n".join(lines)


def _facts(strategy: Strategy) -> list[str]:
    path = strategy.path.resolve().relative_to(FOLDER).as_posix()
    facts = [f"- returns {strategy.quantity}: {QUANTITIES[strategy.quantity]}", f"- source: {strategy.source}"]
    if strategy.requires:
        facts.append(f"- needs {', '.join(strategy.requires)}")
    if strategy.reuses_output:
        facts.append("- a result is overwritten by the next call")
    where = "measured with `--full`" if strategy.full_only else "in the default plan"
    return [*facts, f"- [`{path}`](../strategies/{path}), {where}"]


if __name__ == "__main__":
    print(markdown(strategy for strategy in find_strategies.discover().strategies if FOLDER in strategy.path.parents))
