"""Colours, markers and dashes: one place for page and figures, light and dark.

Hues are for frameworks: those of the Okabe-Ito set (Okabe and Ito, "Color universal design", 2008), darkened for the
light ground and lightened for the dark one until text in them has a contrast of 4.5:1, and moved apart in lightness
until they differ for readers with protanopia, deuteranopia and tritanopia too (`tests/test_report.py` checks both).
Strategies of one framework differ by marker and dash, so that nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.core.framework import framework, framework_names

LIGHT: Mapping[str, str] = {
    "ground": "#fbfaf7",
    "panel": "#f2f0ea",
    "ink": "#1a1d21",
    "muted": "#585d64",
    "rule": "#d9d5cb",
    "faint": "#b7b3a9",
    "accent": "#0a5fa8",
    "good": "#0b6e4f",
    "bad": "#b3261e",
    "warn": "#8a5a00",
    "hue-other": "#706700",
    **{f"hue-{name}": framework(name).light for name in framework_names()},
}

DARK: Mapping[str, str] = {
    "ground": "#14161a",
    "panel": "#1d2026",
    "ink": "#e9e7e2",
    "muted": "#a6a9af",
    "rule": "#343840",
    "faint": "#5a5f68",
    "accent": "#7ab8f5",
    "good": "#5fd3a6",
    "bad": "#ff8a80",
    "warn": "#f0b95a",
    "hue-other": "#ffc64d",
    **{f"hue-{name}": framework(name).dark for name in framework_names()},
}

Dash = tuple[float, tuple[float, ...]]

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_DASHES: tuple[Dash, ...] = ((0, ()), (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5)))


@dataclass(frozen=True)
class Look:
    """How one strategy is drawn in every figure."""

    role: str
    """Key of `LIGHT` and `DARK`."""
    marker: str
    dash: Dash


def looks(strategies: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """One look per strategy.

    Args:
        strategies: (name, framework) pairs; their order decides nothing, so a strategy keeps its look between
            reports of the same set.
    """
    seen: dict[str, int] = {}
    found = {}
    for name, of_framework in sorted(set(strategies)):
        position = seen[of_framework] = seen.get(of_framework, -1) + 1
        found[name] = Look(hue(of_framework), _MARKERS[position % len(_MARKERS)], _DASHES[position % len(_DASHES)])
    return found


def hue(framework: str) -> str:
    """The role of a framework's hue; frameworks that this project does not know share one."""
    role = f"hue-{framework}"
    return role if role in LIGHT else "hue-other"


def variables(theme: Mapping[str, str]) -> str:
    """The theme as CSS custom properties."""
    return " ".join(f"--{role}: {colour};" for role, colour in theme.items())
