"""The pulse of the machine: a short fixed kernel that takes longer when something else is running or throttled."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import deque

DISTURBED = 1.25
"""A pulse this many times slower than usual means that a case was measured on a disturbed machine."""

_DATA = bytes(1 << 20)


def pulse_s() -> float:
    """Median seconds of seven SHA-256 sums over 1 MiB: about 10 ms of work on one core, in no framework."""
    times = []
    for _ in range(7):
        started = time.perf_counter()
        hashlib.sha256(_DATA).digest()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


class Usual:
    """What the pulse usually is: the median of the last forty."""

    def __init__(self) -> None:
        self._pulses: deque[float] = deque([pulse_s() for _ in range(5)], maxlen=40)

    def is_disturbed(self, pulse: float) -> bool:
        """Whether this pulse is much slower than usual; it counts as usual from now on."""
        disturbed = pulse > DISTURBED * statistics.median(self._pulses)
        self._pulses.append(pulse)
        return disturbed
