"""The report: one self-contained page, its figures as PNG and SVG, its tables as CSV, and a summary for a chat.

    from harness import report

    report.write([Path("results/sample")], Path("reports/sample"))

No framework is imported here: the report reads only what a run left on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["write"]


def write(runs: Sequence[Path], folder: Path) -> Path:
    """Write the report of one or several runs.

    Runs stand side by side and are never mixed. Whatever is missing in a run is named as missing.

    Args:
        runs: folders of runs, each with `run.json` and `measurements.jsonl`.
        folder: where the report goes; made if needed. Files of an earlier report are replaced.

    Returns:
        The path of `index.html`.

    Raises:
        harness.core.store.StoreError: if a folder holds no run that can be read.
        OSError: if `folder` cannot be written.
    """
    from harness.analysis import panels
    from harness.core import store
    from harness.report.data import sections
    from harness.report.html import exports, page, summary

    loaded = [store.load(run) for run in runs]
    folder.mkdir(parents=True, exist_ok=True)
    groups = panels.panels(loaded)
    contents = page.gather(loaded, sections.sections(groups, folder))
    exports.write(contents, folder)
    (folder / "summary.md").write_text(summary.markdown(contents), encoding="utf-8")
    index = folder / "index.html"
    index.write_text(page.render(contents, folder), encoding="utf-8")
    return index
