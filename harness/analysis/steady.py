"""How a run spent its time: in timed calls or beside them, and in how many turns."""

from __future__ import annotations

import statistics

from harness.core.store import Run


def steady_share(run: Run) -> float | None:
    """The share of a run's wall time that was spent inside steady-state calls; None if the time is not on record."""
    wall = run.info.get("wall_s")
    timed = sum(sum(row.samples_ns) * 1e-9 if row.timed_s is None else row.timed_s for row in run.rows)
    return timed / wall if isinstance(wall, float | int) and wall > 0 else None


def turns(run: Run) -> tuple[int, int, int] | None:
    """The fewest, the typical and the most turns that a process took on a case; None where cases took no turns."""
    counts = [len(row.samples_ns) for row in run.rows if row.samples_ns and row.timed_s is not None]
    return (min(counts), round(statistics.median(counts)), max(counts)) if counts else None
