"""Figures that others published, beside what the same kind of work takes here.

An entry is data. Published figures come from other machines and versions and often from another model, so only
ratios are set side by side, each with the workload and batch size it was measured on here. A figure that is known
from an abstract only is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis import formats
from harness.report.data.evidence import Evidence, compare
from harness.report.data.published_figures import ENTRIES, Entry, Pair

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class SideBySide:
    """An entry and what was measured here, one sentence per pair."""

    entry: Entry
    here: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether anything here can be set beside it."""
        return self.here != (NOT_MEASURED,)


def side_by_side(evidence: Evidence, entries: Sequence[Entry] | None = None) -> list[SideBySide]:
    """Every entry with what this run says, those with a number first; `ENTRIES` unless others are given."""
    found = [SideBySide(entry, _here(evidence, entry)) for entry in (ENTRIES if entries is None else entries)]
    return sorted(found, key=lambda one: not one.measured)


def _here(evidence: Evidence, entry: Entry) -> tuple[str, ...]:
    found = [sentence for pair in entry.pairs if (sentence := _sentence(evidence, entry, pair))]
    return tuple(found) or (NOT_MEASURED,)


def _sentence(evidence: Evidence, entry: Entry, pair: Pair) -> str:
    slow = evidence.one(entry.workload, pair.slow, pair.slow_quantity)
    fast = evidence.one(entry.workload, pair.fast, pair.fast_quantity)
    found = compare(slow, fast, entry.batch_size) if slow and fast else None
    if found is None:
        return ""
    return (
        f"{formats.speedup(found.ratio)}: {found.fast.strategy} against {found.slow.strategy} on {entry.workload} "
        f"at batch size {found.batch_size:,}"
    )
