"""What each strategy costs on one panel beyond its time: the compact table of a workload's section.

One line per strategy at the largest batch size that it reached. Every number that is not there has a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis import formats, scaling
from harness.analysis.case_summary import CaseSummary
from harness.analysis.crossover import Crossover, crossovers
from harness.analysis.panels import Panel, known
from harness.analysis.statistics import Estimate, Interval
from harness.core.domain import DTYPES
from harness.report.data.answer import leaders
from harness.report.data.published_figures import PLAIN

NOT_MEASURED = "not measured"
_MOST_CROSSINGS = 6


@dataclass(frozen=True)
class Cost:
    """One strategy, as numbers; None where there is none."""

    strategy: str
    framework: str
    batch_size: int
    time_s: float
    per_instance_s: float
    over_plain: float | None
    """How many times the plain batch gradient of the same framework, or of the fastest framework that has one."""
    ceiling_share: float | None
    peak_bytes: float | None
    over_memory_floor: float | None
    """Peak memory over batch size x parameters x bytes per number."""
    once_s: float | None
    """Build and first call."""
    pays_after: int | None
    """Calls after which `once_s` is made up for, against the baseline; None if it never is, or is not known."""
    pays: str
    digits: float | None
    exponent: Interval | None

    def cells(self) -> tuple[str, ...]:
        """The cells under `HEADINGS` after strategy and batch size."""
        memory = formats.size(self.peak_bytes) if self.peak_bytes is not None else NOT_MEASURED
        share = self.over_memory_floor
        return (
            formats.duration(self.time_s),
            formats.duration(self.per_instance_s),
            f"{formats.factor(self.over_plain)}×" if self.over_plain is not None else NOT_MEASURED,
            formats.share(self.ceiling_share) if self.ceiling_share is not None else NOT_MEASURED,
            memory if share is None else f"{memory}, {formats.factor(share)}× its rows",
            formats.duration(self.once_s) if self.once_s is not None else NOT_MEASURED,
            self.pays,
            formats.digits(self.digits) if self.digits is not None else NOT_MEASURED,
            _power(self.exponent),
        )


HEADINGS = (
    ("time per call", "at the largest batch size that the strategy reached"),
    ("per instance", "time per call over batch size"),
    ("over plain", "times one plain gradient of the whole batch, in the same framework where there is one"),
    (
        "of ceiling",
        "share reached of what the machine could do: its least time for these bytes and flops, over the time",
    ),
    ("peak memory", "above the state before the build, and how many times batch size x parameters x bytes per number"),
    ("once", "build and first call, compilation included"),
    ("pays after", "calls until build and first call are made up for, against the baseline"),
    ("digits", "worst agreement with the float64 reference"),
    ("grows as", "exponent p of time as B to the p, with its 95 % interval; 0 is free, 1 a loop, 2 a Jacobian"),
)


@dataclass(frozen=True)
class Table:
    """The costs as the page shows them, without the columns in which nothing was measured."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cost, tuple[str, ...]], ...]
    missing: tuple[str, ...]
    """Headings of the columns left out."""


def table(found: Sequence[Cost]) -> Table:
    """Cells of the columns that hold a number for some strategy."""
    cells = [cost.cells() for cost in found]
    titles = [title for title, _ in HEADINGS]
    kept = [i for i in range(len(titles)) if any(row[i] != NOT_MEASURED for row in cells)]
    return Table(
        tuple(titles[i] for i in kept),
        tuple((cost, tuple(row[i] for i in kept)) for cost, row in zip(found, cells, strict=True)),
        tuple(title for i, title in enumerate(titles) if i not in kept) if found else (),
    )


@dataclass(frozen=True)
class Overtaking:
    """Two leading strategies that change places."""

    before: str
    after: str
    batch_size: Interval

    @property
    def sentence(self) -> str:
        """The batch size with its interval, in words."""
        return (
            f"From a batch size of about {formats.number(self.batch_size.value, 2)} "
            f"{formats.factor_interval(self.batch_size)} on, {self.after} is faster than {self.before}."
        )


def costs(panel: Panel, others: Sequence[Panel] = ()) -> list[Cost]:
    """One cost per strategy that has a time, in the panel's order.

    Args:
        panel: whose strategies.
        others: panels of the same place with other quantities, for the plain batch gradient.
    """
    found: dict[str, dict[int, CaseSummary]] = {}
    for line in panel.ranked:
        found.setdefault(line.strategy, {})[int(line.batch_size)] = line
    plain = _plain(others)
    return [_cost(panel, name, lines, found.get(panel.baseline, {}), plain) for name, lines in found.items()]


def overtakings(panel: Panel) -> list[Overtaking]:
    """Changes of the lead between the strategies that are fastest at some batch size."""
    sizes = panel.timed_sizes
    heads = list(dict.fromkeys(names[0] for size in sizes if (names := leaders(panel, size))))
    times: dict[str, dict[int, Estimate]] = {name: {} for name in heads}
    for line in panel.ranked:
        if line.strategy in times and line.estimate:
            times[line.strategy][int(line.batch_size)] = line.estimate
    found = []
    for position, first in enumerate(heads):
        for second in heads[position + 1 :]:
            shared = sorted(times[first].keys() & times[second].keys())
            one, two = ([times[name][size] for size in shared] for name in (first, second))
            found += [_overtaking(first, second, met) for met in crossovers(shared, one, two, panel.floor.factor)]
    return sorted(found, key=lambda one: one.batch_size.value)[:_MOST_CROSSINGS]


def _overtaking(first: str, second: str, found: Crossover) -> Overtaking:
    before, after = (second, first) if found.first_leads_after else (first, second)
    return Overtaking(before, after, found.batch_size)


def _cost(
    panel: Panel,
    name: str,
    lines: Mapping[int, CaseSummary],
    base: Mapping[int, CaseSummary],
    plain: Mapping[str, Mapping[int, float]],
) -> Cost:
    size = max(lines)
    line = lines[size]
    time = line.time_s
    once = _once(line)
    peak = _positive(line.peak_bytes)
    rows = size * panel.parameters * DTYPES.get(panel.conditions.dtype, 4) if panel.parameters else 0
    reference = _reference(plain, line.framework, size)
    pays_after, pays = _pays(name == panel.baseline, once, time, base.get(size))
    return Cost(
        strategy=name,
        framework=line.framework,
        batch_size=size,
        time_s=time,
        per_instance_s=time / size,
        over_plain=time / reference if reference else None,
        ceiling_share=line.ceiling_share if known(line.ceiling_share) else None,
        peak_bytes=peak,
        over_memory_floor=peak / rows if peak and rows and panel.conditions.quantity == "gradients" else None,
        once_s=once,
        pays_after=pays_after,
        pays=pays,
        digits=line.digits if known(line.digits) else None,
        exponent=scaling.exponent(list(lines), [found.estimate for found in lines.values() if found.estimate]),
    )


def _once(line: CaseSummary) -> float | None:
    clocks = [seconds for seconds in (line.build_s, line.first_call_s) if known(seconds)]
    return sum(clocks) if clocks else None


def _pays(is_baseline: bool, once: float | None, time: float, base: CaseSummary | None) -> tuple[int | None, str]:
    """What the baseline itself costs before its first timed call is not counted against the strategy."""
    if is_baseline:
        return None, "baseline"
    before = _once(base) if base is not None else None
    if once is None or before is None or base is None:
        return None, NOT_MEASURED
    calls = scaling.calls_to_pay(max(0.0, once - before), time, base.time_s)
    if calls is None:
        return None, "never"
    return calls, f"{calls:,} {'call' if calls == 1 else 'calls'}" if calls else "at once"


def _plain(others: Sequence[Panel]) -> dict[str, dict[int, float]]:
    """Framework -> batch size -> the time of its plain batch gradient."""
    found: dict[str, dict[int, float]] = {}
    for panel in others:
        if panel.conditions.quantity == "weighted_sum":
            for line in panel.ranked:
                if re.fullmatch(PLAIN, line.strategy):
                    times = found.setdefault(line.framework, {})
                    times[int(line.batch_size)] = min(line.time_s, times.get(int(line.batch_size), line.time_s))
    return found


def _reference(plain: Mapping[str, Mapping[int, float]], framework: str, size: int) -> float | None:
    own = plain.get(framework, {}).get(size)
    return own or min((times[size] for times in plain.values() if size in times), default=None)


def _positive(value: Any) -> float | None:
    return float(value) if known(value) and value > 0 else None


def _power(found: Interval | None) -> str:
    if found is None:
        return "one batch size"
    if found.low is None or found.high is None:
        return f"B^{_hundredths(found.value)}"
    return f"B^{_hundredths(found.value)} [{_hundredths(found.low)}, {_hundredths(found.high)}]"


def _hundredths(value: float) -> str:
    """Two decimals, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"
