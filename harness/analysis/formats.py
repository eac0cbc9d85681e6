"""Numbers as people read them: units, at most three significant digits, a direction and an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from harness.analysis.statistics import Interval

_TIMES = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
_PREFIXES = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
_BYTES = ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"))

OVERWRITTEN = "↻"
"""Stands behind the name of a strategy whose result is valid until its next call only."""


def marked(name: str, reuses_output: bool) -> str:
    """A strategy's name, with the sign of those that overwrite their last result."""
    return f"{name} {OVERWRITTEN}" if reuses_output else name


def number(value: float, digits: int = 3) -> str:
    """The value with at most `digits` significant digits and commas: 1,910."""
    return f"{_rounded(value, digits):,.10g}"


def duration(seconds: float) -> str:
    """72.04e-6 -> `72 µs`."""
    return _with_unit(seconds, _TIMES)


def duration_interval(low: float, high: float) -> str:
    """The ends of an interval, with one unit if both share it: `[70, 75] µs`."""
    return _interval(duration(low), duration(high))


def size(count: float) -> str:
    """Bytes in decimal units: 5,000,000 -> `5 MB`."""
    return _with_unit(count, _BYTES)


def rate(per_second: float, unit: str) -> str:
    """19.02e9, `B/s` -> `19 GB/s`."""
    return _with_unit(per_second, tuple((scale, f"{prefix}{unit}") for scale, prefix in _PREFIXES))


def factor(value: float) -> str:
    """A ratio without direction."""
    return number(value)


def speedup(value: Interval, short: bool = False) -> str:
    """Direction and interval: `1,910 times faster [1,720, 2,080]`, or `1,910× faster [...]` if short."""
    faster = value.value >= 1
    seen = value if faster else value.inverse()
    times = "×" if short else " times"
    return f"{factor(seen.value)}{times} {'faster' if faster else 'slower'} {factor_interval(seen)}"


def factor_interval(value: Interval) -> str:
    """`[1,720, 2,080]`, or `[no interval]` where one sample is all there is."""
    if value.low is None or value.high is None:
        return "[no interval]"
    return f"[{factor(value.low)}, {factor(value.high)}]"


def percent(floor: float) -> str:
    """A factor as the difference it stands for: 1.063 -> `6.3 %`."""
    return f"{number((floor - 1) * 100, 2)} %"


def share(value: float) -> str:
    """A part of 1 in percent: 0.412 -> `41 %`; what is below a thousandth is not told apart."""
    return f"{number(value * 100, 2)} %" if value >= 1e-3 else "below 0.1 %"


def digits(value: float) -> str:
    """Digits of agreement; an error of exactly 0 is `exact`."""
    return "exact" if math.isinf(value) else f"{value:.1f}"


def variables(environment: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Environment variables as `NAME=value`."""
    return tuple(f"{name}={value}" for name, value in environment)


def needs(environment: Sequence[str]) -> str:
    """The sentence that says which variables a strategy needs, as `variables` has them; empty without any."""
    return f" It needs {enumeration(list(environment))} in the environment." if environment else ""


def enumeration(words: list[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def clipped(text: str, length: int) -> str:
    """The text on one line without control characters, cut at `length` characters with an ellipsis."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def _with_unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    rounded = _rounded(value, 3)
    scale, unit = next((pair for pair in reversed(units) if rounded >= pair[0] * (1 - 1e-9)), units[0])
    return f"{number(value / scale)} {unit}"


def _interval(low: str, high: str) -> str:
    shared = low.split(" ")[1] == high.split(" ")[1]
    return f"[{low.split(' ')[0]}, {high.split(' ')[0]}] {high.split(' ')[1]}" if shared else f"[{low}, {high}]"


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
