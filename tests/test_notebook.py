"""pergrad from Python."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from harness import load, run
from harness.core.records import Measurement
from tests.conftest import PLANTED


def test_a_run_gives_a_frame_with_a_row_for_every_case_and_pass(tmp_path: Path) -> None:
    frame = run(
        "policy",
        ["numpy/honest"],
        [1, 3],
        passes=2,
        target_s=0.01,
        plugins=[PLANTED / "honest.py"],
        name="mine",
        results=tmp_path / "results",
        reports=tmp_path / "reports",
    )

    assert len(frame) == 4
    assert set(frame["status"]) == {"ok"}
    assert (frame["median_s"] > 0).all()
    assert (tmp_path / "reports" / "mine" / "index.html").exists()


def test_a_stored_run_is_loaded_with_all_its_columns() -> None:
    frame = load("results/sample")

    assert set(frame.columns) == {field.name for field in fields(Measurement)} - {"pass_number"} | {"pass"}
    assert len(frame) > 100
