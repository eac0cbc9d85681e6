"""Labels at the ends of lines: as close as can be, and never upon each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from harness.report.figures.drawing import FONT_SIZE
from harness.report.figures.theme import LIGHT


@dataclass(frozen=True)
class End:
    """The end of a line, in data coordinates, and what is written beside it."""

    x: float
    y: float
    text: str
    role: str
    gid: str


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as close to `wanted` as can be (least squares), at least `gap` apart and within [low, high].

    The order of `wanted` is kept. If they do not fit, they share the room evenly.

    Source: isotonic regression of `wanted - rank * gap` by pooling adjacent violators (Barlow et al., "Statistical
    inference under order restrictions", 1972), clipped to the room.
    """
    if not wanted:
        return []
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    pools: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        total, count = wanted[index] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            before, members = pools.pop()
            total, count = total + before, count + members
        pools.append((total, count))
    centres = [total / count for total, count in pools for _ in range(count)]
    placed = [0.0] * len(wanted)
    for rank, (index, centre) in enumerate(zip(order, centres, strict=True)):
        placed[index] = min(max(centre, low), high - (len(wanted) - 1) * gap) + rank * gap
    return placed


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Write each text beside the end of its line, moved apart where they would overlap, with a thin leader.

    Args:
        axes: with final limits.
        ends: one per labelled line.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    points = [to_axes.transform((end.x, end.y)) for end in ends]
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    gap = 1.35 * FONT_SIZE / height
    heights = spread([float(point[1]) for point in points], gap, 0.0, 1.0)
    for end, point, y in zip(ends, points, heights, strict=True):
        colour = LIGHT[end.role]
        axes.plot(
            [float(point[0]), 1.02, 1.03],
            [float(point[1]), y, y],
            transform=axes.transAxes,
            color=colour,
            linewidth=0.7,
            alpha=0.6,
            clip_on=False,
            zorder=1,
            gid=end.gid,
        )
        axes.text(
            1.036, y, end.text, transform=axes.transAxes, color=colour, va="center", parse_math=False, gid=end.gid
        )
