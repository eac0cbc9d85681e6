"""Predict what a case will take from smaller ones, and say which cases are not worth starting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

MOST_ROW_BYTES = 4 << 30
"""Results beyond this are skipped: with the copies that checking needs, they would not fit on common machines."""


def too_large(row_bytes: int, batch_size: int) -> str:
    """Why the rows of such a batch are not measured; empty if they are."""
    needed = batch_size * row_bytes
    if needed <= MOST_ROW_BYTES:
        return ""
    return (
        f"{batch_size} rows take {needed / 2**30:.1f} GiB, "
        f"the limit is {MOST_ROW_BYTES / 2**30:g} GiB of gradients in one result"
    )


def extrapolate(history: Sequence[tuple[int, float]], batch_size: int) -> float:
    """The seconds a case will take, from (batch size, seconds) of smaller ones; 0 if they do not tell.

    The time is continued as a power of the batch size, with the exponent between the two largest. If the
    exponent has been rising, as it does while a cost that grows with B squared overtakes a fixed one, it is
    taken to rise by half as much again. A size that takes less than a smaller one, at which something was compiled for
    the first time, counts as one that takes as long. Times under a second say little about what comes and are not
    extrapolated.
    """
    points = [(size, seconds) for size, seconds in sorted(history) if 0 < size < batch_size and seconds > 0]
    if len(points) < 2 or points[-1][1] < 1:
        return 0.0
    exponents = [max(0.0, math.log(t2 / t1) / math.log(b2 / b1)) for (b1, t1), (b2, t2) in itertools.pairwise(points)]
    rise = max(0.0, exponents[-1] - exponents[-2]) if len(exponents) > 1 else 0.0
    exponent = exponents[-1] + 1.5 * rise
    size, seconds = points[-1]
    return seconds * math.pow(batch_size / size, min(exponent, 3.0))


def trial_size(history: Sequence[tuple[int, float]], batch_size: int, limit_s: float) -> int | None:
    """A smaller batch size to try first, after a large step: if a cost that grows with B squared might not fit.

    A prediction from smaller sizes errs by a factor of two, and being stopped at the limit costs all of it. What looks
    hopeless is tried at twice the size: if two sizes only tell so, of which one may have been disturbed, and as long
    as that size itself is not hopeless, because a cost that is just overtaking a fixed one looks as if it grew on.
    """
    size, seconds = max(history, default=(1, 1.0))
    step = batch_size / size
    if step < 4:
        return None
    if extrapolate(history, batch_size) > limit_s:
        return size * 2 if len(history) < 3 or extrapolate(history, 2 * size) <= limit_s else None
    return size * (4 if step > 4 else 2) if seconds * step**2 > limit_s / 2 else None
