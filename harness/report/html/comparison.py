"""The comparison of two runs for people: on a terminal, and as a page beside its CSV and JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from harness.analysis import formats
from harness.analysis.compare import CaseChange, Comparison
from harness.report.data import tables
from harness.report.figures import theme
from harness.report.html.page import environment, fingerprint

SIGNS = {"FASTER": "▲", "SLOWER": "▼", "SAME": "=", "AMBIGUOUS": "≈", "NOT COMPARED": "–"}

_TERMINAL = 40
"""Cases that the terminal shows before it says how many more there are."""


def as_text(found: Comparison) -> str:
    """One line per case, what became slower first, then how many cases there are of each verdict."""
    lines = [f"{found.b} against {found.a}: above 1, {found.b} is faster"]
    lines += [f"  differs: {formats.clipped(difference, 160)}" for difference in found.differences]
    cells = [line(case) for case in found.cases[:_TERMINAL]]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    if len(found.cases) > _TERMINAL:
        lines.append(f"... and {len(found.cases) - _TERMINAL:,} more")
    return "\n".join([*lines, counts(found)])


def counts(found: Comparison) -> str:
    """`1 SLOWER, 3 SAME`."""
    return ", ".join(f"{count:,} {word}" for word, count in found.counts().items()) or "There is no case in either run."


def line(case: CaseChange) -> tuple[str, ...]:
    """A case as cells: verdict, ratio, times, and which case it is."""
    return (
        word(case),
        _ratio(case),
        f"{_time(case.time_a_s, case.status_a)} -> {_time(case.time_b_s, case.status_b)}",
        name(case),
    )


def word(case: CaseChange) -> str:
    """The verdict, or that there is none."""
    return str(case.verdict or "NOT COMPARED")


def name(case: CaseChange) -> str:
    """`policy: jax/vmap at batch size 16 (gradients, cpu, float32)`."""
    conditions = ", ".join((case.quantity, case.device, case.dtype, *_unusual(case.allocator)))
    return formats.clipped(
        f"{formats.clipped(case.workload, 40)}: {formats.clipped(case.strategy, 60)} at batch size "
        f"{case.batch_size:,} ({conditions})",
        200,
    )


def write(found: Comparison, folder: Path) -> Path:
    """Write page, CSV and JSON into `folder`; made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(
        json.dumps(found.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    tables.to_csv(pd.DataFrame(_flat(found.cases)), folder / "comparison.csv")
    script = (Path(__file__).parent / "script.js").read_text(encoding="utf-8")
    index = folder / "index.html"
    index.write_text(
        environment()
        .get_template("comparison.html")
        .render(
            found=found,
            counts=counts(found),
            rows=[
                (
                    case,
                    SIGNS[word(case)],
                    word(case),
                    _ratio(case),
                    _time(case.time_a_s, case.status_a),
                    _time(case.time_b_s, case.status_b),
                )
                for case in found.cases
            ],
            floor=formats.percent(max((case.floor for case in found.cases), default=1.0)),
            script=Markup(script),
            script_hash=fingerprint(script),
            light=Markup(theme.variables(theme.LIGHT)),
            dark=Markup(theme.variables(theme.DARK)),
        ),
        encoding="utf-8",
    )
    return index


def _ratio(case: CaseChange) -> str:
    return formats.speedup(case.ratio, short=True) if case.ratio else "no ratio"


def _time(seconds: float | None, status: str) -> str:
    return formats.duration(seconds) if seconds is not None else status.replace("_", " ")


def _unusual(allocator: str) -> tuple[str, ...]:
    return () if allocator == "default" else (f"allocator {allocator}",)


def _flat(cases: Sequence[CaseChange]) -> list[dict[str, object]]:
    rows = []
    for case in cases:
        ends = (case.ratio.value, case.ratio.low, case.ratio.high) if case.ratio else (None, None, None)
        values = asdict(case) | dict(zip(("ratio", "ratio_low", "ratio_high"), ends, strict=True))
        rows.append(values | {"verdict": word(case)})
    return rows
