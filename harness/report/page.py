"""The page: what the template needs, gathered, and rendered with every text escaped."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness import analysis, store
from harness.analysis import Panel
from harness.report import answer, captions, formats, sources, tables, theme
from harness.report.answer import Answer
from harness.report.drawing import Chart
from harness.report.sources import Source
from harness.report.tables import Matrix
from harness.store import Run

CASES_FILE = "cases.csv"

_FEW = 12
"""Up to so many strategies their source is open on the page; beyond, a click opens it."""

_STEPS_UP = 3
"""A link to raw data leaves the report's folder by at most so many steps; further away it would name the machine."""

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Section:
    """One panel as the page shows it."""

    anchor: str
    title: str
    conditions: str
    answer: Answer
    matrix: Matrix
    charts: tuple[Chart, ...]
    tally: str
    floor: str
    panel: Panel

    @staticmethod
    def of(panel: Panel, stem: str, charts: Sequence[Chart]) -> Section:
        """Everything but the figures is made from the panel."""
        return Section(
            anchor=f"panel-{stem}",
            title=formats.clipped(panel.place.workload, 40) or "unnamed",
            conditions=captions.conditions(panel),
            answer=answer.of(panel),
            matrix=tables.matrix(panel),
            charts=tuple(charts),
            tally=captions.tally(panel.cases),
            floor=_floor(panel),
            panel=panel,
        )


@dataclass(frozen=True)
class RunFacts:
    """One run's machine, versions and plan, as pairs of texts."""

    name: str
    state: str
    command: str
    machine: Facts
    versions: Facts
    frameworks: Facts
    plan: Facts
    unavailable: Facts
    files: tuple[tuple[str, str], ...]
    """Name and address of each raw file; the address is empty where it cannot be linked."""


def render(runs: Sequence[Run], sections: Sequence[Section], folder: Path) -> str:
    """The HTML of the whole page.

    Args:
        runs: what was read.
        sections: one per panel, in order.
        folder: where the page will lie, for links to the raw data.
    """
    panels = [section.panel for section in sections]
    names = analysis.run_names(runs)
    described = _unique([source for run in runs for source in sources.strategies(run.info)])
    return (
        _environment()
        .get_template("template.html")
        .render(
            headline=_emphasised(_headline(sections)),
            supported=bool(sections) and sections[0].answer.supported,
            overline=_overline(names, runs),
            sections=sections,
            titles=[section.title for section in sections],
            several_runs=len(runs) > 1,
            shared=tables.shared(panels),
            dimensions=tables.varying(panels),
            measures=tables.MEASURES,
            lines=tables.lines(panels),
            unmeasured=tables.UNMEASURED,
            statuses=[(tables.SIGNS[s], captions.words(s), tables.MEANINGS[s]) for s in analysis.SEVERITY],
            strategies=described,
            workloads=_unique([source for run in runs for source in sources.workloads(run.info)]),
            open_sources=len(described) <= _FEW,
            runs=[_facts(name, run, folder) for name, run in zip(names, runs, strict=True)],
            cases_file=CASES_FILE,
            light=Markup(theme.variables(theme.LIGHT)),
            dark=Markup(theme.variables(theme.DARK)),
            hue=theme.hue,
        )
    )


def stems(panels: Sequence[Panel]) -> list[str]:
    """One file name stem per panel: the workload and whatever else tells the panels apart, safe in any path."""
    names = ["workload", *(name for name in tables.varying(panels) if name != "workload")]
    found: list[str] = []
    for panel in panels:
        words = "-".join(getattr(panel.place, name) for name in names)
        stem = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60].strip("-") or "panel"
        found.append(stem if stem not in found else f"{stem}-{len(found) + 1}")
    return found


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # names, docstrings and errors may come from anywhere
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = _drawing
    environment.filters["breakable"] = _breakable
    environment.filters["unbroken"] = _unbroken
    return environment


def _drawing(chart: Chart) -> Markup:
    """The chart's SVG as an image with its alternative text; matplotlib has escaped the text inside."""
    label = Markup.escape(chart.alt)
    return Markup(chart.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))


def _breakable(name: str) -> Markup:
    """A name that may be broken after its slashes and nowhere inside a word."""
    return Markup("/<wbr>").join(name.split("/"))


def _unbroken(text: str) -> str:
    """The text with numbers held to their units, and intervals together, in large type."""
    return re.sub(r"(?<=\d) (?=[nµm]?s\b|times\b)|(?<=,) (?=[\d.,]+\])", "\u00a0", text)


def _headline(sections: Sequence[Section]) -> Answer:
    if sections:
        return sections[0].answer
    return Answer("Nothing was measured in this run, so there is nothing to recommend.", supported=False)


def _emphasised(answer: Answer) -> list[tuple[str, bool]]:
    """The sentence cut into stretches, the names of what it recommends marked."""
    names = [re.escape(formats.clipped(name, 40)) for name in answer.leaders]
    if not (names and answer.supported):
        return [(answer.sentence, False)]
    parts = re.split(f"({'|'.join(names)})", answer.sentence)
    return [(part, bool(index % 2)) for index, part in enumerate(parts) if part]


def _overline(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    machine = _mapping(runs[0].info, "machine") if runs else {}
    cores = machine.get("cores_physical")
    words = [f"run {' and '.join(names)}", _text(machine.get("processor")), f"{cores} cores" if cores else ""]
    return [formats.clipped(word, 80) for word in words if word]


def _floor(panel: Panel) -> str:
    floor = panel.floor
    known = {
        "control": f"measured by {floor.pairs} {captions.plural('pair', floor.pairs)} of the baseline under two names",
        "passes": f"measured by {floor.pairs} {captions.plural('pair', floor.pairs)} of passes of one case",
    }
    return (
        f"{formats.percent(floor.factor)}, {known.get(floor.source, 'assumed, because every case has one pass only')}"
    )


def _facts(name: str, run: Run, folder: Path) -> RunFacts:
    info = run.info
    state = _text(info.get("state"))
    gone = [(_text(entry.get("name")), _text(entry.get("reason"))) for entry in sources.entries(info, "unavailable")]
    return RunFacts(
        name=name,
        state="" if state in ("", "complete") else state,
        command=_text(info.get("command")),
        machine=(
            *((key, _text(info.get(key))) for key in ("created", "finished", "pergrad") if info.get(key)),
            *_pairs(_mapping(info, "machine")),
        ),
        versions=_pairs(_mapping(info, "versions")),
        frameworks=tuple((_text(key), _framework(value)) for key, value in _mapping(info, "frameworks").items()),
        plan=_pairs(_mapping(info, "plan")),
        unavailable=tuple((formats.clipped(what, 60), formats.clipped(why, 300)) for what, why in gone),
        files=tuple((file, _address(run.path / file, folder)) for file in _FILES if (run.path / file).exists()),
    )


_FILES = (store.RUN_FILE, store.ROWS_FILE, store.BENCHMARK_FILE)


def _framework(value: object) -> str:
    if not isinstance(value, Mapping):
        return "nothing is on record"
    devices = [_text(device.get("name")) for device in sources.entries(value, "devices")]
    threads = [f"{kind} {count}" for kind, count in _mapping(value, "threads").items()]
    words = [
        _text(value.get("status")),
        _text(value.get("reason")),
        f"threads: {', '.join(threads)}" if threads else "",
        f"devices: {', '.join(devices)}" if devices else "",
    ]
    return formats.clipped("; ".join(word for word in words if word), 300)


def _address(file: Path, folder: Path) -> str:
    relative = Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()
    return quote(relative) if relative.count("../") <= _STEPS_UP else ""


def _pairs(values: Mapping[Any, Any]) -> Facts:
    return tuple((_text(key).replace("_", " "), _value(_text(key), value)) for key, value in values.items())


def _value(key: str, value: object) -> str:
    if key.endswith("bytes") and analysis.known(value):
        return formats.size(float(str(value)))
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(name)} {_text(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return _text(value) or "not given"


def _mapping(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


def _unique(found: Sequence[Source]) -> list[Source]:
    """The first of each name: several runs describe the same strategies."""
    return list({source.name: source for source in reversed(found)}.values())[::-1]


def _text(value: object) -> str:
    return "" if value is None else str(value)[:2000]
