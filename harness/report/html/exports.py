"""All tables of the page as CSV: numbers in seconds and bytes, nothing rounded, missing ones empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.panels import table
from harness.analysis.statistics import Interval
from harness.report.data import tables
from harness.report.html.page import CASES_FILE, Contents


def write(contents: Contents, folder: Path) -> None:
    """Write one file per table into `folder`; a table without a line keeps its heading."""
    panels = [panel for section in contents.sections for panel in section.panels]
    tables.to_csv(tables.plain(table(case for panel in panels for case in panel.cases)), folder / CASES_FILE)
    for name, columns, rows in (
        ("costs.csv", _COSTS, _costs(contents)),
        ("overtakings.csv", _OVERTAKINGS, _overtakings(contents)),
        ("needs.csv", _NEEDS, _needs(contents)),
        ("claims.csv", _CLAIMS, _claims(contents)),
        ("published.csv", _PUBLISHED, _published(contents)),
        ("side-by-side.csv", _SIDES, _sides(contents)),
    ):
        tables.to_csv(pd.DataFrame(rows, columns=list(columns)), folder / name)


_PLACE = ("run", "workload", "quantity", "device", "dtype", "allocator")
_COSTS = (
    *_PLACE,
    *("strategy", "framework", "batch_size", "time_s", "per_instance_s", "over_plain", "ceiling_share", "peak_bytes"),
    *("over_memory_floor", "once_s", "pays_after", "pays", "digits", "exponent", "exponent_low", "exponent_high"),
)
_OVERTAKINGS = (*_PLACE, "before", "after", "batch_size", "batch_size_low", "batch_size_high")
_NEEDS = (
    *("run", "workload", "batch_size", "quantity", "framework"),
    *("strategy", "time", "leads", "reuses_output", "kept"),
)
_CLAIMS = ("run", "claim", "source", "ruling", "numbers", "why")
_PUBLISHED = ("run", "source", "work", "published", "here")
_SIDES = ("dimension", "what", "batch_size", "strategy", "condition", "time", "against_first")

Rows = Sequence[Sequence[Any]]


def _costs(contents: Contents) -> Rows:
    return [
        [
            *section.panel.conditions,
            *(value for name, value in vars(cost).items() if name != "exponent"),
            *_ends(cost.exponent),
        ]
        for section in contents.sections
        for cost in section.costs
    ]


def _overtakings(contents: Contents) -> Rows:
    return [
        [*section.panel.conditions, found.before, found.after, *_ends(found.batch_size)]
        for section in contents.sections
        for found in section.overtakings
    ]


def _needs(contents: Contents) -> Rows:
    return [
        [said.label, table.workload, table.batch_size, row.need.quantity, framework, *asdict(best).values()]
        for said in contents.verdicts
        for table in said.decisions
        for row in table.rows
        for framework, best in row.best.items()
    ]


def _claims(contents: Contents) -> Rows:
    return [
        [said.label, judged.claim.text, judged.claim.source, *map(str, vars(judged.finding).values())]
        for said in contents.verdicts
        for judged in said.claims
    ]


def _published(contents: Contents) -> Rows:
    return [
        [said.label, found.entry.source, found.entry.work, found.entry.published, "; ".join(found.here)]
        for said in contents.verdicts
        for found in said.published
    ]


def _sides(contents: Contents) -> Rows:
    return [
        [found.dimension, found.title, found.batch_size, strategy, condition, *cell]
        for found in contents.sides
        for strategy, cells in found.rows
        for condition, cell in zip(found.conditions, cells, strict=True)
    ]


def _ends(found: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (found.value, found.low, found.high) if found else (None, None, None)
