"""The page: what the template needs, gathered, and rendered with every text escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.analysis import formats
from harness.analysis.case_summary import SEVERITY, CaseSummary
from harness.analysis.compare import differences
from harness.analysis.panels import run_names
from harness.core.domain import DEVICE_NAMES
from harness.core.records import MarkKind
from harness.core.store import Run
from harness.report.data import answer as answers
from harness.report.data import (
    captions,
    claims,
    costs,
    fleet,
    needs,
    published,
    run_info,
    side_by_side,
    sources,
    tables,
)
from harness.report.data.answer import Answer
from harness.report.data.claims import Judged
from harness.report.data.evidence import Evidence
from harness.report.data.fleet import Fleet
from harness.report.data.needs import Decision
from harness.report.data.published import SideBySide
from harness.report.data.sections import Section
from harness.report.data.side_by_side import Sides
from harness.report.data.sources import Source
from harness.report.figures import theme
from harness.report.figures.drawing import Chart

CASES_FILE = "cases.csv"

CSV_FILES = (
    CASES_FILE,
    "costs.csv",
    "overtakings.csv",
    "needs.csv",
    "claims.csv",
    "published.csv",
    "side-by-side.csv",
)
"""The tables of the page; `harness.report.html.exports` writes them."""

_HERE = Path(__file__).parent

_FEW = 12
"""Up to so many strategies their source is open on the page; beyond, a click opens it."""


@dataclass(frozen=True)
class Verdicts:
    """What one run says of the claims, of published numbers, and of what to use for which need; on one device.

    `device` names it; it is empty where all was measured on the CPU.
    """

    run: str
    device: str
    claims: tuple[Judged, ...]
    published: tuple[SideBySide, ...]
    decisions: tuple[Decision, ...]

    @property
    def label(self) -> str:
        """The run, and its device where that has to be said."""
        return f"{self.run} on {self.device}" if self.device else self.run


@dataclass(frozen=True)
class Glance:
    """One section's answer as a line of the table below the headline."""

    section: Section
    use: str
    time: str
    against: str


@dataclass(frozen=True)
class Contents:
    """Everything that page, summary and CSV files are made of."""

    runs: tuple[Run, ...]
    names: tuple[str, ...]
    sections: tuple[Section, ...]
    verdicts: tuple[Verdicts, ...]
    sides: tuple[Sides, ...]
    glances: tuple[Glance, ...]
    fleet: Fleet

    @property
    def headline(self) -> Answer:
        """The answer that the page opens with."""
        if self.sections:
            return self.sections[0].answer
        return Answer("Nothing was measured in this run, so there is nothing to recommend.", supported=False)


def gather(runs: Sequence[Run], sections: Sequence[Section]) -> Contents:
    """Judge, decide and set side by side; every run by itself."""
    names = run_names(runs)
    panels = [panel for section in sections for panel in section.panels]
    return Contents(
        tuple(runs),
        tuple(names),
        tuple(sections),
        tuple(found for name in names for found in _verdicts(name, sections)),
        tuple(found for dimension in ("run", "allocator", "device") for found in side_by_side.sides(panels, dimension)),
        tuple(_glance(section) for section in sections),
        fleet.gather(names, runs, panels),
    )


def render(contents: Contents, folder: Path) -> str:
    """The HTML of the whole page, which will lie in `folder`."""
    runs, sections = contents.runs, contents.sections
    panels = [panel for section in sections for panel in section.panels]
    described = _unique([source for run in runs for source in sources.strategies(run.info)])
    script = (_HERE / "script.js").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("template.html")
        .render(
            contents=contents,
            side_tables=side_by_side.tables(contents.sides),
            differences=_differences(contents),
            headline=_emphasised(contents.headline),
            overline=_overline(contents.names, runs),
            sections=sections,
            titles=[section.title for section in sections],
            several_runs=len(runs) > 1,
            shared=tables.shared(panels),
            dimensions=tables.varying(panels),
            measures=tables.MEASURES,
            lines=tables.lines(panels),
            cases=sum(len(panel.cases) for panel in panels),
            unmeasured=tables.UNMEASURED,
            cost_headings=costs.HEADINGS,
            cost_table=costs.table,
            statuses=[(tables.SIGNS[s], captions.words(s), tables.MEANINGS[s]) for s in SEVERITY],
            strategies=described,
            workloads=_unique([source for run in runs for source in sources.workloads(run.info)]),
            open_sources=len(described) <= _FEW,
            runs=[run_info.facts(name, run, folder) for name, run in zip(contents.names, runs, strict=True)],
            unstable=_marked(sections, MarkKind.UNSTABLE),
            retraced=_retraced(sections),
            cases_file=CASES_FILE,
            csv_files=CSV_FILES,
            script=Markup(script),
            script_hash=fingerprint(script),
            light=Markup(theme.variables(theme.LIGHT)),
            dark=Markup(theme.variables(theme.DARK)),
            hue=theme.hue,
        )
    )


def environment() -> Environment:
    """Jinja with everything escaped: names, docstrings and errors may come from anywhere."""
    found = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["svg"] = _drawing
    found.filters["breakable"] = _breakable
    found.filters["unbroken"] = _unbroken
    return found


def fingerprint(script: str) -> str:
    """The only script that the page's policy lets run is the one with this hash."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _verdicts(name: str, sections: Sequence[Section]) -> Iterator[Verdicts]:
    """What one run says, each of its devices by itself: nothing of the CPU's speaks for the GPU."""
    panels = [panel for section in sections for panel in section.panels if panel.conditions.run == name]
    devices = list(dict.fromkeys(panel.conditions.device for panel in panels)) or ["cpu"]
    for device in devices:
        evidence = Evidence.of(panel for panel in panels if panel.conditions.device == device)
        decisions = [needs.decide(evidence, workload) for workload in evidence.workloads()]
        yield Verdicts(
            name,
            DEVICE_NAMES.get(device, device[:40]) if devices != ["cpu"] else "",
            tuple(claims.judge(evidence)),
            tuple(published.side_by_side(evidence)),
            tuple(decision for decision in decisions if decision),
        )


def _differences(contents: Contents) -> list[tuple[str, tuple[str, ...]]]:
    """For every run after the first: in what it differs from it."""
    first, *others = contents.runs or (None,)
    named = zip(contents.names[1:], others, strict=True)
    return [(name, differences(first, run)) for name, run in named] if first else []


def _glance(section: Section) -> Glance:
    answer = section.answer
    if not (answer.supported and answer.batch_size):
        return Glance(section, "no recommendation", "", "")
    best = section.panel.at(answer.batch_size)[0]
    others = len(answer.leaders) - 1
    use = formats.marked(formats.clipped(best.strategy, 40), best.reuses_output)
    use += f", or {others} tied with it" if others else ""
    if kept := answers.keeping(section.panel, answer.batch_size):
        use += f"; to keep results {formats.clipped(kept.strategy, 40)}, {formats.duration(kept.time_s)}"
    against = tables.against(section.panel, best)
    return Glance(section, use, formats.duration(best.time_s), " ".join(word for word in against if word))


def _marked(sections: Iterable[Section], kind: MarkKind) -> list[str]:
    """The cases with a mark of that kind, as `policy: jax/vmap at batch size 16`."""
    return [
        _case(section, line)
        for section in sections
        for panel in section.panels
        for line in panel.cases
        if any(mark.kind is kind for mark in line.marks)
    ]


def _retraced(sections: Iterable[Section]) -> list[str]:
    return [
        f"{_case(section, line)}: {int(line.retraces):,}"
        for section in sections
        for panel in section.panels
        for line in panel.cases
        if line.retraces > 0
    ]


def _case(section: Section, line: CaseSummary) -> str:
    strategy = formats.clipped(line.strategy, 60)
    return f"{section.title} ({section.conditions}): {strategy} at batch size {line.batch_size:,}"


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


def _emphasised(answer: Answer) -> list[tuple[str, bool]]:
    """The sentence cut into stretches, the names of what it recommends marked."""
    names = [re.escape(formats.clipped(name, 40)) for name in answer.leaders]
    if not (names and answer.supported):
        return [(answer.sentence, False)]
    parts = re.split(f"({'|'.join(names)})", answer.sentence)
    return [(part, bool(index % 2)) for index, part in enumerate(parts) if part]


def _overline(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    machine = run_info.mapping(runs[0].info, "machine") if runs else {}
    cores = machine.get("cores_physical")
    words = [f"run {' and '.join(names)}", str(machine.get("processor") or ""), f"{cores} cores" if cores else ""]
    return [formats.clipped(word, 80) for word in words if word]


def _unique(found: Sequence[Source]) -> list[Source]:
    """The first of each name: several runs describe the same strategies."""
    return list({source.name: source for source in reversed(found)}.values())[::-1]
