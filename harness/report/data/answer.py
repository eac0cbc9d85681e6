"""The answer in one sentence, made from the numbers alone, and withheld where they do not carry it.

A strategy is recommended over another only if the interval of their ratio lies beyond the noise floor; what cannot
be told apart is named together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis import formats, statistics
from harness.analysis.case_summary import CaseSummary
from harness.analysis.panels import Panel
from harness.analysis.statistics import Verdict
from harness.core.domain import DEVICE_NAMES
from harness.report.data import captions

_TIED = 3
"""Ties named in the sentence before it gives their number."""


@dataclass(frozen=True)
class Answer:
    """What to use on one panel, as a sentence."""

    sentence: str
    supported: bool
    """False where the sentence says why there is no recommendation."""
    batch_size: int | None = None
    leaders: tuple[str, ...] = ()
    """The fastest strategy, and those that cannot be told from it, fastest first."""


def recommend(panel: Panel, naming: bool = False) -> Answer:
    """The answer for the largest batch size at which anything has a time.

    Args:
        naming: whether it names the device, as it does where there are several, or another than the CPU.
    """
    where = f" on {DEVICE_NAMES.get(panel.conditions.device, panel.conditions.device[:40])}" if naming else ""
    sizes = panel.timed_sizes
    if not sizes:
        return Answer(
            f"No strategy has a time on {formats.clipped(panel.conditions.workload, 40)}{where}, so there is nothing "
            f"to recommend ({captions.tally(panel.cases)}).",
            supported=False,
        )
    return _at(panel, sizes[-1], where)


def keeping(panel: Panel, batch_size: int) -> CaseSummary | None:
    """The fastest strategy whose results stay valid, where one that overwrites its last result is faster still."""
    lines = panel.at(batch_size)
    if not lines or not lines[0].reuses_output:
        return None
    return next((line for line in lines if not line.reuses_output), None)


def leaders(panel: Panel, batch_size: int) -> tuple[str, ...]:
    """The fastest strategy at a batch size and those that are not slower beyond noise floor and interval.

    The fastest of many was lucky, too: intervals are as wide as holding for all comparisons with it at once takes.
    Empty if nothing has a time there.
    """
    lines = panel.at(batch_size)
    confidence = statistics.shared_confidence(len(lines) - 1)
    return tuple(
        line.strategy
        for line in lines
        if line is lines[0]
        or statistics.verdict(_ratio(line, lines[0], confidence), panel.floor.factor) is not Verdict.FASTER
    )


def _ratio(line: CaseSummary, best: CaseSummary, confidence: float) -> statistics.Interval:
    """How many times faster the best is, of two cases that have a time."""
    assert line.estimate
    assert best.estimate
    return statistics.ratio(line.estimate, best.estimate, confidence)


def _at(panel: Panel, batch_size: int, where: str) -> Answer:
    lines = panel.at(batch_size)
    best = lines[0]
    tied = leaders(panel, batch_size)
    start = f"For {formats.clipped(panel.conditions.workload, 40)} at batch size {batch_size:,}{where}"
    if best.samples == 1:
        return Answer(f"{start} there is no recommendation: one timed call says nothing about noise.", False)
    if len(tied) == len(lines) and len(lines) > 1:
        return Answer(
            f"{start} there is no recommendation: the {len(lines)} strategies that have a time cannot be told apart.",
            supported=False,
            batch_size=batch_size,
            leaders=tied,
        )
    versus, supported = _against_baseline(panel, best, batch_size)
    sentence = f"{start}, use {_choice(tied)}: {formats.duration(best.time_s)} per call, {versus}."
    sentence += formats.needs(best.environment)
    if best.reuses_output:
        sentence += f" Its result is valid until the next call{_to_keep(keeping(panel, batch_size))}."
    if not supported:
        sentence = f"{start} there is no recommendation: {versus}."
    return Answer(sentence, supported, batch_size, tied)


def _against_baseline(panel: Panel, best: CaseSummary, batch_size: int) -> tuple[str, bool]:
    """The clause that compares with the baseline, and whether it carries a recommendation."""
    baseline = formats.clipped(panel.baseline, 40)
    if best.strategy == panel.baseline:
        return "the baseline, which nothing here beats", True
    if not best.verdict:
        found = [case for case in panel.cases if (case.strategy, case.batch_size) == (panel.baseline, batch_size)]
        why = captions.words(found[0].status) if found else "not part of the run"
        return f"the fastest measured; {baseline} has no time to compare with ({why})", True
    speedup = best.speedup
    if best.verdict == Verdict.FASTER:
        return f"{formats.speedup(speedup)} than {baseline}", True
    name = formats.clipped(best.strategy, 40)
    gain = f"{formats.factor(speedup.value)} times {formats.factor_interval(speedup)}"
    floor = formats.percent(panel.floor.factor)
    return f"the gain of {name} over {baseline}, {gain}, does not clearly exceed the noise floor of {floor}", False


def _to_keep(kept: CaseSummary | None) -> str:
    if kept is None:
        return ", as that of every strategy measured here"
    name = formats.clipped(kept.strategy, 40)
    return f"; if you keep results, use {name}: {formats.duration(kept.time_s)} per call"


def _choice(tied: Sequence[str]) -> str:
    names = [formats.clipped(name, 40) for name in tied]
    if len(names) == 1:
        return names[0]
    if len(names) <= _TIED:
        return f"{formats.enumeration(names, 'or')} (they cannot be told apart)"
    return f"{names[0]} (or one of {len(names) - 1} others that cannot be told from it)"
