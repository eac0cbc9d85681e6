"""`summary.md`: the answer in a form for a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.analysis import formats
from harness.report.data import captions
from harness.report.data.fleet import Fleet
from harness.report.data.needs import Best
from harness.report.data.sections import Section
from harness.report.html.page import Contents, Verdicts


def markdown(contents: Contents) -> str:
    """The answer, what to use for which workload and need, and the claims; without HTML."""
    blocks = [f"# {_safe(contents.headline.sentence)}", _about(contents)]
    if contents.glances:
        blocks.append(
            _table(
                ("workload", "conditions", "batch size", "use", "time per call", "against the baseline"),
                (
                    (
                        glance.section.title,
                        _conditions(glance.section, len(contents.runs) > 1),
                        f"{glance.section.answer.batch_size or 0:,}",
                        glance.use,
                        glance.time or "none",
                        glance.against or "none",
                    )
                    for glance in contents.glances
                ),
            )
        )
    blocks += _machines(contents.fleet)
    for said in contents.verdicts:
        blocks += _of_run(said, len(contents.verdicts) > 1)
    blocks += [
        f"Overtakings on {_safe(s.title)}: {_safe(' '.join(o.sentence for o in s.overtakings))}"
        for s in contents.sections
        if s.overtakings
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _machines(fleet: Fleet) -> list[str]:
    blocks = [_safe(notice) for notice in fleet.notices]
    if fleet.lines:
        rows = [
            (
                f"{line.place}, B={line.batch_size:,}",
                *(f"{winner.strategy}, {winner.time}; {winner.buys}" for winner in line.winners),
                line.order or "nowhere",
            )
            for line in fleet.lines
        ]
        blocks += ["## The fastest on each kind of machine", _table(("case", *fleet.kinds, "where it differs"), rows)]
    return blocks


def _about(contents: Contents) -> str:
    tallies = [captions.tally(section.panel.cases) for section in contents.sections]
    floors = [section.floor for section in contents.sections]
    runs = _safe(" and ".join(contents.names))
    return (
        f"Run {runs}: {tallies[0]}. Noise floor {floors[0]}." if len(tallies) == 1 else f"Run {runs}." if runs else ""
    )


def _of_run(said: Verdicts, named: bool) -> list[str]:
    suffix = f", run {_safe(said.label)}" if named else ""
    blocks = []
    for decision in said.decisions[:1]:
        title = f"## What do you need? ({_safe(decision.workload)}, batch size {decision.batch_size:,}{suffix})"
        rows = [
            (
                row.need.title,
                *(_best(row.best[f]) if f in row.best else "not measured" for f in decision.frameworks),
            )
            for row in decision.rows
        ]
        blocks += [title, _table(("need", *decision.frameworks), rows), _safe(decision.advice)]
    rows = [(j.claim.text, f"{j.finding.sign} {j.finding.ruling}", j.finding.numbers) for j in said.claims]
    blocks += [f"## The question's claims, measured{suffix}", _table(("claim", "verdict", "numbers"), rows)]
    return blocks


def _best(best: Best) -> str:
    return f"{best.shown}, {best.time}" + (f" (kept: {best.kept})" if best.kept else "")


def _conditions(section: Section, several: bool) -> str:
    return f"{section.conditions}, run {section.panel.conditions.run}" if several else section.conditions


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(_safe, line))} |" for line in lines)


def _safe(text: str) -> str:
    """One line in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|&$])", r"\\\1", formats.clipped(text, 600))
