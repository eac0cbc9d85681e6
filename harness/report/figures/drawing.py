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
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from harness.analysis import formats
from harness.report.figures.theme import DARK, LIGHT, variables

WIDTH = 10.0
"""Inches; 720 points, which is also the width of the SVG's own coordinates."""

FONT_SIZE = 10.5
"""Points: 14 px where the page has 960 px for a figure, and still 9 px at the least width it is shown in."""

PNG_DPI = 100

_PAD = 6 / 72
"""Inches between an axis and its labels."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "text.color": LIGHT["ink"],
    "text.parse_math": False,
    "text.hinting": "none",
}

_FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
_LINE = "pick-"
_ROLES = {colour: role for role, colour in LIGHT.items()}


@dataclass(frozen=True)
class Pick:
    """A line that a reader can pick out of a figure."""

    number: int
    name: str
    role: str
    """The hue of its framework."""
    coloured: bool
    """Whether it stands out already; the others are grey until picked."""


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
    picks: tuple[Pick, ...] = ()

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
    axes.set_axis_off()  # ticks and labels are drawn by `ticks`: matplotlib's own take half the time of a figure
    axes.add_line(Line2D([0, 1], [0, 0], transform=axes.transAxes, color=LIGHT["muted"], linewidth=1, clip_on=False))
    return figure, axes


def ticks(
    axes: Axes, name: str, places: Sequence[float], texts: Sequence[str], role: str = "muted", ruled: bool = False
) -> None:
    """Texts along an axis (`x` or `y`), and rules across the figure if `ruled`."""
    down = name == "x"
    along = axes.get_xaxis_transform() if down else axes.get_yaxis_transform()
    shift = _shift(axes, 0, -_PAD) if down else _shift(axes, -_PAD, 0)
    align: dict[str, Any] = {"ha": "center", "va": "top"} if down else {"ha": "right", "va": "center"}
    for place, text in zip(places, texts, strict=True):
        at = (place, 0.0) if down else (0.0, place)
        axes.text(*at, text, transform=along + shift, color=LIGHT[role], parse_math=False, **align)
    if ruled:
        rules = [[(place, 0), (place, 1)] if down else [(0, place), (1, place)] for place in places]
        lines = LineCollection(rules, transform=along, colors=LIGHT["rule"], linewidths=0.8, zorder=0.4)
        axes.add_collection(lines, autolim=False)


def log_scale(axes: Axes, name: str, values: Sequence[float], write: Any, padding: float = 1.5) -> None:
    """A log axis (`x` or `y`) around positive values, with ticks at decades, or at 1, 2 and 5 on a short one."""
    low, high = min(values) / padding, max(values) * padding
    (axes.set_xscale if name == "x" else axes.set_yscale)("log")
    (axes.set_xlim if name == "x" else axes.set_ylim)(low, high)
    places = decades(low, high)
    ticks(axes, name, places, [write(place) for place in places], ruled=True)


def decades(low: float, high: float) -> list[float]:
    """Round numbers within [low, high]: powers of ten, or finer steps where there are fewer than three of those."""
    for steps in (_TENS, _FIVES, _FINE):
        places = [step * 10.0**power for power in range(-12, 13) for step in steps if low <= step * 10.0**power <= high]
        if len(places) >= 3:
            break
    return places[:: 1 + len(places) // 9]


_TENS = (1.0,)
_FIVES = (1.0, 2.0, 5.0)
_FINE = (1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


def batch_axis(axes: Axes, batch_sizes: Sequence[int]) -> None:
    """A log x axis whose ticks are the batch sizes that were measured."""
    axes.set_xscale("log")
    low, high = min(batch_sizes), max(batch_sizes)
    room = (high / low) ** 0.03 if high > low else 2.0
    axes.set_xlim(low / room, high * room)
    ticks(axes, "x", batch_sizes, [f"{size:,}" for size in batch_sizes])
    below = axes.transAxes + _shift(axes, 0, -5 * _PAD)
    axes.text(0, 0, "batch size (log scale)", transform=below, color=LIGHT["muted"], va="center")


def _shift(axes: Axes, right: float, up: float) -> ScaledTranslation:
    """Inches, whatever the size of the figure."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return ScaledTranslation(right, up, figure.dpi_scale_trans)


def headline(figure: Figure, text: str, title: str) -> None:
    """The line above the axes that says what is drawn, and above it the title, for files that stand alone."""
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.62 / height, text, color=LIGHT["muted"], va="center", parse_math=False)
    figure.text(0.012, 1 - 0.25 / height, title, fontsize=1.25 * FONT_SIZE, va="center", parse_math=False)


def finish(
    figure: Figure, folder: Path, name: str, title: str, alt: str, caption: str, picks: Sequence[Pick] = ()
) -> Chart:
    """Write the PNG and SVG files into `folder` and return the chart."""
    with matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(folder / f"{name}.png", dpi=PNG_DPI, facecolor=LIGHT["ground"], pil_kwargs={"compress_level": 4})
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True)
    svg = _tidied(buffer.getvalue())
    (folder / f"{name}.svg").write_text(_standalone(svg), encoding="utf-8")
    return Chart(name, title, alt, caption, _untitled(svg), tuple(picks))


def line_id(number: int) -> str:
    """What marks everything that is drawn for one line; on the page it becomes `data-line`."""
    return f"{_LINE}{number}"


def label(text: str, length: int = 34) -> str:
    """A name as a figure can show it."""
    return formats.clipped(text, length)


def _tidied(svg: str) -> str:
    """The bare `<svg>` element: colours as variables, no ids that a second figure on the page would repeat."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', svg))
    svg = re.sub(rf' id="{_LINE}(\d+)"', r' class="line" data-line="\1"', svg)
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
