"""What do you need? For each quantity the best strategy of every framework, on one workload at one batch size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis import formats, statistics
from harness.analysis.statistics import Verdict
from harness.core.framework import framework_names
from harness.report.data.evidence import Evidence, Series, largest
from harness.report.data.published_figures import PLAIN

"""Columns come in this order; frameworks that this project does not know follow."""


@dataclass(frozen=True)
class Need:
    """A quantity as someone would ask for it."""

    quantity: str
    title: str
    meaning: str
    without_rows: str
    """How to get it without a row per instance; empty for the rows themselves."""


NEEDS = (
    Need("gradients", "The rows", "one gradient per instance", ""),
    Need(
        "norms",
        "Norms only",
        "the length of each instance's gradient",
        "products of each layer's inputs and cotangents give it (ghost norms), in one backward pass",
    ),
    Need(
        "weighted_sum",
        "A weighted sum",
        "the sum of aᵢ gᵢ with known aᵢ: policy gradients, importance weights",
        "one backward pass of the sum of aᵢ times loss i",
    ),
    Need(
        "clipped_sum",
        "Clipped, then summed",
        "each gradient cut to a length, then added up: private training",
        "ghost norms, then one backward pass of the re-weighted loss",
    ),
)


@dataclass(frozen=True)
class Best:
    """A framework's best strategy for a need."""

    strategy: str
    time: str
    leads: bool
    """The fastest of all frameworks, or not to be told from it."""
    reuses_output: bool
    """Whether its result is valid until its next call only."""
    kept: str = ""
    """The framework's fastest strategy whose results stay valid, with its time, where this one's do not."""

    @property
    def shown(self) -> str:
        """The strategy's name, with the sign of those that overwrite their last result."""
        return formats.marked(self.strategy, self.reuses_output)


@dataclass(frozen=True)
class Row:
    """One need with its best strategies; a framework that has none is missing from `best`."""

    need: Need
    best: Mapping[str, Best]
    remark: str
    """What it saves against the rows; empty where one of the two was not measured."""


@dataclass(frozen=True)
class Decision:
    """The table of one workload."""

    workload: str
    batch_size: int
    frameworks: tuple[str, ...]
    rows: tuple[Row, ...]
    advice: str
    """Whether the rows are needed at all, with the numbers; says so too where nothing else was measured."""


def decide(evidence: Evidence, workload: str) -> Decision | None:
    """The table of one workload at the largest batch size of its rows; None if nothing has a time there."""
    everything = {need.quantity: evidence.all(workload, quantity=need.quantity) for need in NEEDS}
    size = largest(everything["gradients"]) or largest([one for some in everything.values() for one in some])
    if size is None:
        return None
    found = {quantity: _at(some, size) for quantity, some in everything.items()}
    names = {one.strategy.split("/")[0] for some in found.values() for one in some}
    frameworks = (*(name for name in framework_names() if name in names), *sorted(names - set(framework_names())))
    rows = tuple(_row(need, found[need.quantity], found["gradients"], size) for need in NEEDS)
    return Decision(workload, size, frameworks, rows, _advice(found, size))


def _at(some: Sequence[Series], size: int) -> list[Series]:
    """Those that reached the batch size, the fastest there first."""
    return sorted((one for one in some if size in one.lines), key=lambda one: one.time(size).value)


def _row(need: Need, found: Sequence[Series], rows: Sequence[Series], size: int) -> Row:
    best: dict[str, Best] = {}
    for one in found:
        name = one.strategy.split("/")[0]
        time, reuses = formats.duration(one.time(size).value), one.lines[size].reuses_output
        if name not in best:
            best[name] = Best(one.strategy, time, _leads(one, found[0], size), reuses)
        elif best[name].reuses_output and not best[name].kept and not reuses:
            best[name] = replace(best[name], kept=f"{one.strategy}, {time}")
    return Row(need, best, _against_rows(found, rows, size) if need.without_rows else "")


def _leads(one: Series, first: Series, size: int) -> bool:
    ratio = statistics.ratio(one.time(size), first.time(size))
    return one is first or statistics.verdict(ratio, one.panel.floor.factor) is not Verdict.FASTER


def _against_rows(found: Sequence[Series], rows: Sequence[Series], size: int) -> str:
    if not found:
        return ""
    if not rows:
        return "no rows to compare with"
    ratio = statistics.ratio(rows[0].time(size), found[0].time(size))
    return f"{formats.speedup(ratio, short=True)} than the fastest rows"


def _advice(found: Mapping[str, Sequence[Series]], size: int) -> str:
    rows = found["gradients"]
    sums = [one for one in found["weighted_sum"] if re.fullmatch(PLAIN, one.strategy)]  # others add up rows
    if rows and sums:
        ratio = statistics.ratio(rows[0].time(size), sums[0].time(size))
        floor = max(one.panel.floor.factor for one in (rows[0], sums[0]))
        taken = f"{sums[0].strategy} takes {formats.duration(sums[0].time(size).value)}"
        verdict = statistics.verdict(ratio, floor)
        told = {
            Verdict.FASTER: f": {taken}, {formats.speedup(ratio)} than the fastest rows.",
            Verdict.SLOWER: f". Here the rows are the cheaper way all the same: {taken}, {formats.speedup(ratio)}.",
        }.get(verdict, f". Here that saves no time: {taken}, which cannot be told from the fastest rows.")
        return (
            "If the coefficients of your sum are known before the backward pass, as in a policy gradient, no row is "
            f"needed{told}"
        )
    return (
        "A policy gradient needs the sum of aᵢ gᵢ, and one backward pass of the sum of aᵢ times loss i gives exactly "
        "that, without any row. This run did not measure it, so the table says nothing about its time."
    )
