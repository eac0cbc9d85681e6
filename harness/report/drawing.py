"""What all figures share: axes without clutter, line ends that never overlap, files in both themes.

A figure is drawn once, in the light theme. Its SVG then names colours as CSS variables, so the page (and the file
on its own) follows the reader's light or dark setting; the PNG stays light. Text in the SVG remains text.

Names come from anywhere: they are cut to one line and never read as mathematics or markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot could choose a window; this project never needs one

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from harness.report import formats
from harness.report.theme import DARK, LIGHT, variables

WIDTH = 10.0
"""Inches; 720 points, which is also the width of the SVG's own coordinates."""

FONT_SIZE = 10.5
"""Points: 14 px where the page has 960 px for a figure, and still 9 px at the least width it is shown in."""

PNG_DPI = 100

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["muted"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "text.parse_math": False,
    "xtick.labelsize": "medium",
    "ytick.labelsize": "medium",
    "text.hinting": "none",
}

_FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_ROLES = {colour: role for role, colour in LIGHT.items()}


@dataclass(frozen=True)
class Chart:
    """A drawn figure with all that the page says about it."""

    name: str
    """Stem of its files."""
    title: str
    alt: str
    """The figure in words, with its numbers."""
    caption: str
    svg: str
    """An `<svg>` element without script or style, for the page."""

    @property
    def files(self) -> tuple[str, str]:
        """Names of the PNG and the SVG file."""
        return f"{self.name}.png", f"{self.name}.svg"


def style() -> AbstractContextManager[None]:
    """The context in which figures are drawn and finished: fonts and colours of this report only."""
    return matplotlib.rc_context(_SETTINGS)


def canvas(height: float, right: float, left: float = 0.075, below: float = 0.62) -> tuple[Figure, Axes]:
    """A figure with one set of axes.

    Args:
        height: of the figure in inches.
        right: share of the width left free for labels.
        left: share of the width in front of the axes.
        below: inches below the axes.
    """
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left, below / height, 1 - left - right, 1 - (below + 0.95) / height))
    axes.patch.set_visible(False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, pad=6)
    axes.set_axisbelow(True)
    return figure, axes


def log_scale(axes: Axes, name: str, values: Sequence[float], write: Any, padding: float = 1.5) -> None:
    """A log axis (`x` or `y`) around positive values, with ticks at decades, or at 1, 2 and 5 on a short one."""
    low, high = min(values) / padding, max(values) * padding
    axis = axes.xaxis if name == "x" else axes.yaxis
    (axes.set_xscale if name == "x" else axes.set_yscale)("log")
    (axes.set_xlim if name == "x" else axes.set_ylim)(low, high)
    ticks = decades(low, high)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_ticks(ticks, [write(tick) for tick in ticks])
    axes.grid(axis=name, color=LIGHT["rule"], linewidth=0.8)  # type: ignore[arg-type]


def decades(low: float, high: float) -> list[float]:
    """Round numbers within [low, high]: powers of ten, or finer steps where there are fewer than three of those."""
    for steps in (_TENS, _FIVES, _FINE):
        ticks = [step * 10.0**power for power in range(-12, 13) for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: 1 + len(ticks) // 9]


_TENS = (1.0,)
_FIVES = (1.0, 2.0, 5.0)
_FINE = (1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


def batch_axis(axes: Axes, batch_sizes: Sequence[int]) -> None:
    """A log x axis whose ticks are the batch sizes that were measured."""
    axes.set_xscale("log")
    low, high = min(batch_sizes), max(batch_sizes)
    room = (high / low) ** 0.03 if high > low else 2.0
    axes.set_xlim(low / room, high * room)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_ticks(list(batch_sizes), [f"{size:,}" for size in batch_sizes])
    axes.set_xlabel("batch size (log scale)", color=LIGHT["muted"], loc="left", labelpad=6)


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


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each text beside the end of its line, moved apart where they would overlap, with a thin leader.

    Args:
        axes: with final limits.
        ends: (x, y, text, role of the colour), in data coordinates.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    points = [to_axes.transform((x, y)) for x, y, _, _ in ends]
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    gap = 1.35 * FONT_SIZE / height
    heights = spread([float(point[1]) for point in points], gap, 0.0, 1.0)
    for (_, _, text, role), point, y in zip(ends, points, heights, strict=True):
        colour = LIGHT[role]
        axes.plot(
            [float(point[0]), 1.02, 1.03],
            [float(point[1]), y, y],
            transform=axes.transAxes,
            color=colour,
            linewidth=0.7,
            alpha=0.6,
            clip_on=False,
            zorder=1,
        )
        axes.text(1.036, y, text, transform=axes.transAxes, color=colour, va="center", parse_math=False)


def headline(figure: Figure, text: str, title: str) -> None:
    """The line above the axes that says what is drawn, and above it the title, for files that stand alone."""
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.62 / height, text, color=LIGHT["muted"], va="center", parse_math=False)
    figure.text(0.012, 1 - 0.25 / height, title, fontsize=1.25 * FONT_SIZE, va="center", parse_math=False)


def finish(figure: Figure, folder: Path, name: str, title: str, alt: str, caption: str) -> Chart:
    """Write the PNG and SVG files into `folder` and return the chart."""
    with matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(folder / f"{name}.png", dpi=PNG_DPI, facecolor=LIGHT["ground"], pil_kwargs={"compress_level": 4})
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True)
    svg = _tidied(buffer.getvalue())
    (folder / f"{name}.svg").write_text(_standalone(svg), encoding="utf-8")
    return Chart(name, title, alt, caption, _untitled(svg))


def label(text: str, length: int = 34) -> str:
    """A name as a figure can show it."""
    return formats.clipped(text, length)


def _tidied(svg: str) -> str:
    """The bare `<svg>` element: colours as variables, no ids that a second figure on the page would repeat."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]*)"', lambda match: match.group(0) if match.group(1) in used else "", svg)
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', _ROOT, svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*(?=[;\"])", r"font: \1 var(--sans)", svg)
    svg = re.sub(r' (d|x|y|transform)="[^"]*"', lambda match: _shortened(match.group(0)), svg)
    return re.sub(r"((?:fill|stroke): )(#[0-9a-f]{6})", _variable, svg)


_ROOT = (
    r'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" \1'
    r' stroke-linejoin="round" stroke-linecap="butt">'
)


def _standalone(svg: str) -> str:
    style = (
        f"<style>svg {{ --sans: {_FONT}; {variables(LIGHT)} background: var(--ground); }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {variables(DARK)} }} }}</style>"
    )
    end = svg.index(">") + 1
    return f"{svg[:end]}{style}{svg[end:]}"


def _untitled(svg: str) -> str:
    """The same without the strip that holds the title: the page has a heading of its own."""
    return re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', _cropped, svg, count=1)


def _cropped(match: re.Match[str]) -> str:
    strip = 0.42 * 72
    return f'viewBox="0 {strip:g} {match.group(1)} {float(match.group(2)) - strip:g}"'


def _shortened(attribute: str) -> str:
    """Hundredths of a point are below what anyone sees, and half of the file otherwise."""
    return re.sub(r"(\d+\.\d\d)\d+", r"\1", attribute)


def _variable(match: re.Match[str]) -> str:
    role = _ROLES.get(match.group(2))
    return f"{match.group(1)}var(--{role})" if role else match.group(0)
