"""Detect interference: a fixed calibration kernel takes longer when something else runs or the clock is throttled."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import deque

DISTURBED = 1.25
"""A kernel this many times slower than usual means that a case was measured on a disturbed machine."""

_DATA = bytes(1 << 20)


def calibration_s() -> float:
    """Median seconds of seven SHA-256 sums over 1 MiB: about 10 ms of work on one core, in no framework."""
    times = []
    for _ in range(7):
        started = time.perf_counter()
        hashlib.sha256(_DATA).digest()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


class UsualTime:
    """The usual time of the calibration kernel: the median of the last forty."""

    def __init__(self) -> None:
        self._times: deque[float] = deque([calibration_s() for _ in range(5)], maxlen=40)

    def is_disturbed(self, seconds: float) -> bool:
        """Whether this time is much longer than usual; it counts as usual from now on."""
        disturbed = seconds > DISTURBED * statistics.median(self._times)
        self._times.append(seconds)
        return disturbed
