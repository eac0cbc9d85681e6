"""Measure a prepared run and write its report, for the command line and for Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness import report
from harness.analysis import formats, steady
from harness.core import store
from harness.core.records import Status
from harness.core.store import StoreError
from harness.runner import progress
from harness.runner.prepare import Prepared
from harness.system import lock

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def measure_and_report(prepared: Prepared, reports: Path) -> int:
    """Measure what is missing, write the report, and return the exit status.

    Raises:
        Busy: if another run is measuring on this machine.
        StoreError: if a row, or anything else that a run needs on disk, cannot be written.
    """
    with lock.only_run(prepared.folder):
        progress.announce(prepared)
        try:
            progress.measure_with_progress(prepared)
        except OSError as error:
            raise StoreError(
                f"the run stopped: {error}; what was measured is in {prepared.folder}, "
                f"go on with `pergrad run --resume {prepared.folder.name}`"
            ) from error
        except KeyboardInterrupt:
            print(
                f"\nInterrupted. What was measured is in {prepared.folder}; "
                f"go on with `pergrad run --resume {prepared.folder.name}`.",
                file=sys.stderr,
            )
            write_report([prepared.folder], reports / prepared.folder.name)
            return INTERRUPTED
    run = store.load(prepared.folder)
    if (share := steady.steady_share(run)) is not None:
        print(f"{formats.share(share)} of the time was spent inside steady-state calls.", file=sys.stderr)
    progress.say_what_was_left_out(run)
    return 1 if write_report([prepared.folder], reports / prepared.folder.name) else 0


def write_report(folders: Sequence[Path], target: Path) -> int:
    """Write the report, say where it is and what failed; returns the number of failures.

    Raises:
        StoreError: if it cannot be written; nothing that was measured is lost.
    """
    try:
        page = report.write(folders, target)
    except OSError as error:
        names = " ".join(folder.name for folder in folders)
        raise StoreError(
            f"the report cannot be written to {target}: {error.strerror or error}; the measurements are in "
            f"{folders[0].parent}, write it elsewhere with `pergrad report {names} --reports FOLDER`"
        ) from error
    runs = [store.load(folder) for folder in folders]
    for run in runs:
        if run.unreadable:
            count = f"{len(run.unreadable)} row{'s' if len(run.unreadable) > 1 else ''}"
            print(f"{run.name}: {count} cannot be read and left out, the first in {run.unreadable[0]}", file=sys.stderr)
    failures = {
        (row.workload, row.strategy, row.batch_size, row.status, row.reason)
        for run in runs
        for row in run.rows
        if row.status.is_failure
    }
    alike: dict[tuple[str, Status, str], list[str]] = {}
    for workload, strategy, batch_size, status, reason in sorted(failures):
        alike.setdefault((workload, status, reason), []).append(f"{strategy} on {workload} at batch size {batch_size}")
    for (_, status, reason), (first, *others) in alike.items():
        more = f" (and {len(others)} other cases)" if len(others) > 1 else f" (and {others[0]})" if others else ""
        print(f"{status}: {first}: {reason}{more}", file=sys.stderr)
    print(f"Report: {page}")
    return len(failures)
