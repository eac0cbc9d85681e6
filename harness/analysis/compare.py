"""Two runs, case by case: what became faster, what slower, and what cannot be told.

    from harness.compare import compare
    from harness.report import comparison

    found = compare(Path("results/before"), Path("results/after"))
    print(comparison.as_text(found))

A difference counts only if the whole interval of the ratio lies beyond the noise floors of both runs, and that interval
is wide enough to hold in all cases at once: of 500 that did not change, none should be called slower. Runs of two
machines say little about a change in the code, so they are refused unless that is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis import panels, statistics
from harness.analysis.case_summary import CaseSummary, Conditions
from harness.analysis.panels import Panel
from harness.analysis.statistics import Interval, Verdict
from harness.core import store
from harness.core.records import Status, plain
from harness.core.store import Run

SAME_MACHINE = (
    "architecture",
    "processor",
    "cores_physical",
    "cores_logical",
    "cores_available",
    "memory_bytes",
    "gpus",
)
"""Entries of `machine` in `run.json` that make a machine another one."""

WORTH_NAMING = ("system", "python", "cpu_quota", "transparent_huge_pages", "frequency_policy")
"""Entries that change with an update of the same machine: named, never refused."""

_MEMORY_TOLERANCE = 0.01
"""Virtual machines report a little more or less memory after every start."""

_ORDER = (Verdict.SLOWER, Verdict.FASTER, Verdict.AMBIGUOUS, Verdict.SAME)


class DifferentMachines(Exception):
    """Two runs come from two machines; the message names the differences and says what to do."""


@dataclass(frozen=True)
class CaseChange:
    """One case in both runs. `ratio` is the time in A over the time in B: above 1, B is faster."""

    workload: str
    strategy: str
    quantity: str
    device: str
    dtype: str
    allocator: str
    batch_size: int
    status_a: str
    status_b: str
    time_a_s: float | None
    time_b_s: float | None
    ratio: Interval | None
    """None unless both runs have a time."""
    floor: float
    """The larger of the two noise floors."""
    verdict: Verdict | None

    @property
    def slowdown(self) -> float:
        """How many times as long it takes in B; 1 where that is not known."""
        return 1 / self.ratio.value if self.ratio else 1.0


@dataclass(frozen=True)
class Comparison:
    """All cases of two runs, the ones that became slower first."""

    a: str
    b: str
    differences: tuple[str, ...]
    """In what machine, versions and plan differ."""
    cases: tuple[CaseChange, ...]

    def slower_than(self, threshold: float) -> tuple[CaseChange, ...]:
        """Cases that are SLOWER beyond the noise and by more than `threshold` (0.1: 10 %)."""
        return tuple(case for case in self.cases if case.verdict is Verdict.SLOWER and case.slowdown > 1 + threshold)

    def broken(self) -> tuple[CaseChange, ...]:
        """Cases that were ok in A and failed in B."""
        return tuple(case for case in self.cases if case.status_a == Status.OK and _failed(case.status_b))

    def counts(self) -> Mapping[str, int]:
        """Verdict -> how many cases; `NOT COMPARED` for those without a time in both runs."""
        found = Counter(str(case.verdict or "NOT COMPARED") for case in self.cases)
        return {word: found[word] for word in (*map(str, _ORDER), "NOT COMPARED") if found[word]}

    def as_json(self) -> dict[str, Any]:
        """A JSON object of plain values."""
        values: dict[str, Any] = plain(asdict(self))
        return values | {"counts": dict(self.counts())}


def compare(a: Path, b: Path, *, across_machines: bool = False) -> Comparison:
    """Compare two runs.

    Args:
        a: folder of the run that came first.
        b: folder of the run that is judged.
        across_machines: whether runs of two machines may be compared.

    Raises:
        DifferentMachines: if the machines differ and `across_machines` is false.
        harness.core.store.StoreError: if a folder holds no run that can be read.
    """
    one, two = store.load(a), store.load(b)
    machines = machine_differences(_entries(one, "machine"), _entries(two, "machine"))
    if machines and not across_machines:
        raise DifferentMachines(
            f"{one.name} and {two.name} were measured on different machines ({'; '.join(machines)}), so their times "
            "say nothing about a change between them; compare them all the same with --across-machines"
        )
    names = panels.run_names([one, two])
    changes = _changes(_cases(panels.panels([one])), _cases(panels.panels([two])))
    ranked = sorted(changes, key=lambda case: (_rank(case), -abs(np.log(case.slowdown))))
    return Comparison(names[0], names[1], differences(one, two), tuple(ranked))


def differences(one: Run, two: Run) -> tuple[str, ...]:
    """In what machine, versions, variables and settings of two runs differ: `jax 0.10.2 and 0.11.0`."""
    return (*machine_differences(_entries(one, "machine"), _entries(two, "machine")), *_other_differences(one, two))


_Key = tuple[Conditions, str, int]


def _cases(panels: Sequence[Panel]) -> dict[_Key, tuple[CaseSummary, float]]:
    """Case -> its line of the table, and its panel's noise floor; controls are left out."""
    return {
        (panel.conditions._replace(run=""), line.strategy, int(line.batch_size)): (line, panel.floor.factor)
        for panel in panels
        for line in panel.cases
        if line.strategy != panel.control
    }


def _changes(
    one: Mapping[_Key, tuple[CaseSummary, float]], two: Mapping[_Key, tuple[CaseSummary, float]]
) -> list[CaseChange]:
    shared = sum(
        one[key][0].estimate is not None and two[key][0].estimate is not None for key in one.keys() & two.keys()
    )
    confidence = statistics.shared_confidence(shared)
    return [_change(key, one.get(key), two.get(key), confidence) for key in dict.fromkeys([*one, *two])]


def _change(
    key: _Key, one: tuple[CaseSummary, float] | None, two: tuple[CaseSummary, float] | None, confidence: float
) -> CaseChange:
    place, strategy, batch_size = key
    floor = max(found[1] for found in (one, two) if found)
    times = [found[0].estimate if found else None for found in (one, two)]
    quotient = statistics.ratio(times[0], times[1]) if times[0] and times[1] else None
    careful = statistics.ratio(times[0], times[1], confidence) if times[0] and times[1] else None
    return CaseChange(
        workload=place.workload,
        strategy=strategy,
        quantity=place.quantity,
        device=place.device,
        dtype=place.dtype,
        allocator=place.allocator,
        batch_size=batch_size,
        status_a=one[0].status if one else "not planned",
        status_b=two[0].status if two else "not planned",
        time_a_s=times[0].value if times[0] else None,
        time_b_s=times[1].value if times[1] else None,
        ratio=quotient,
        floor=floor,
        verdict=_verdict(quotient, careful, floor) if quotient and careful else None,
    )


def _rank(case: CaseChange) -> int:
    if case.verdict is None:
        return -1 if case.status_a == Status.OK and _failed(case.status_b) else len(_ORDER)
    return _ORDER.index(case.verdict)


def _verdict(ratio: Interval, careful: Interval, floor: float) -> Verdict:
    """A change needs the wide interval, which holds in all cases at once; that nothing changed, the usual one."""
    if statistics.verdict(ratio, floor) is Verdict.SAME:
        return Verdict.SAME
    return statistics.verdict(careful, floor)


def _failed(status: str) -> bool:
    return status in set(Status) and Status(status).is_failure


def machine_differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """In what two machines differ, as `harness.system.info.describe` tells of them; none are the same machine."""
    return [
        f"{name} {_said(here, name)} and {_said(there, name)}" for name in SAME_MACHINE if not _alike(name, here, there)
    ]


def _alike(name: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    one, two = here.get(name), there.get(name)
    if name == "memory_bytes" and isinstance(one, int | float) and isinstance(two, int | float) and two:
        return abs(one / two - 1) < _MEMORY_TOLERANCE
    return bool(here.get(name) == there.get(name))


def _other_differences(one: Run, two: Run) -> list[str]:
    """Versions, variables and settings; what only one of the runs has on record counts too."""
    found = []
    for key, names in (("machine", WORTH_NAMING), ("versions", None), ("environment", None), ("plan", _SETTINGS)):
        here, there = _entries(one, key), _entries(two, key)
        for name in names or sorted({*map(str, here), *map(str, there)}):
            if here.get(name) != there.get(name):
                found.append(f"{name} {_said(here, name)} and {_said(there, name)}")
    return found


_SETTINGS = ("threads", "cpus", "passes", "limit_s", "target_s")


def _said(values: Mapping[str, Any], name: str) -> str:
    return "(none)" if values.get(name) is None else str(values[name])


def _entries(run: Run, key: str) -> Mapping[str, Any]:
    found = run.info.get(key)
    return found if isinstance(found, Mapping) else {}
