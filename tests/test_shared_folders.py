"""Two runs at once, and folders that cannot be written: nothing measured is lost, and a sentence says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harness.cli.app import app
from harness.core import find_strategies, store
from harness.runner.plan import frameworks_of
from harness.system import lock
from tests.conftest import PLANTED


def run(folder: Path, *more: str, strategy: str = "honest") -> Result:
    plugin = ["--plugin", str(PLANTED / f"{strategy}.py")]
    named = [] if "--resume" in more else ["--strategy", f"numpy/{strategy}", "--workload", "policy"]
    sizes = [] if "--resume" in more else ["--batch-size", "2", "--passes", "1", "--target", "0.01"]
    folders = ["--results", str(folder / "results"), "--reports", str(folder / "reports")]
    return CliRunner().invoke(app, ["run", *plugin, *named, *sizes, *folders, *more])


def test_a_run_that_is_refused_because_another_is_measuring_leaves_no_folder(tmp_path: Path) -> None:
    with lock.only_run(tmp_path):
        result = run(tmp_path, "--name", "second")

    assert result.exit_code == 2
    assert "another run is measuring on this machine" in result.output
    assert not (tmp_path / "results" / "second").exists()
    assert run(tmp_path, "--name", "second").exit_code == 0


def test_a_resumed_run_touches_no_row_before_it_holds_the_lock(tmp_path: Path) -> None:
    assert run(tmp_path, "--name", "live", strategy="raises").exit_code == 1
    rows = tmp_path / "results" / "live" / store.ROWS_FILE
    before = rows.read_bytes() + b'{"torn'
    rows.write_bytes(before)

    with lock.only_run(tmp_path):
        result = run(tmp_path, "--resume", "live", "--retry", strategy="raises")

    assert result.exit_code == 2
    assert rows.read_bytes() == before


def test_a_report_that_cannot_be_written_loses_no_measurement(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file is in the way")

    result = run(tmp_path, "--name", "kept")

    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "the report cannot be written to" in said
    assert "`pergrad report kept --reports FOLDER`" in said
    assert [row.status for row in store.load(tmp_path / "results" / "kept").rows] == ["ok"]


def test_a_lock_that_cannot_be_taken_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder stands in its place here; another user's file is another reason."""
    monkeypatch.setenv("PERGRAD_LOCK", str(tmp_path))

    with pytest.raises(lock.Busy, match=r"cannot be taken: .*PERGRAD_LOCK"), lock.only_run(tmp_path):
        pass


def test_of_a_workload_for_one_framework_only_that_framework_is_looked_at() -> None:
    example = Path(__file__).parents[1] / "examples" / "torch_module.py"
    able = frameworks_of({"torch-module": str(example)})

    names = find_strategies.discover().measurable(full=True, frameworks=able)

    assert able == {"torch"}
    assert names
    assert all(name.startswith("torch/") for name in names)
