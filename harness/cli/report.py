"""`pergrad report` and `pergrad compare`: read runs that have been measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options
from harness.cli.options import Reports, Results, refuse


def report(
    run: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Names or folders of runs.  [default: the latest]")
    ] = None,
    results: Results = Path("results"),
    reports: Reports = Path("reports"),
) -> None:
    """Write the report of a run again, from its files alone.

    Example: `pergrad report 2026-12-01-0405`.
    """
    from harness import session
    from harness.core import store

    found = store.runs(results)
    if not run and not found:
        refuse(f"there is no run in {results}; measure one with `pergrad run --quick`")
    folders = [options.run_folder(given, results) for given in run] if run else [found[-1]]
    try:
        session.write_report(folders, reports / "+".join(folder.name for folder in folders))
    except store.StoreError as error:
        refuse(str(error))


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The run that came first: its name or folder.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run that is judged.")],
    across_machines: Annotated[bool, typer.Option("--across-machines", help="Even if the machines differ.")] = False,
    fail_on_slower: Annotated[
        str | None, typer.Option(metavar="10%", help="Exit status 1 if a case became slower by more than this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    results: Results = Path("results"),
    reports: Reports = Path("reports"),
) -> None:
    """Compare two runs case by case: FASTER, SLOWER, SAME or AMBIGUOUS, beyond the noise of both.

    Example: `pergrad compare before after --fail-on-slower 10%`.
    """
    from harness.analysis.compare import DifferentMachines
    from harness.analysis.compare import compare as compare_runs
    from harness.core.store import StoreError
    from harness.report.html import comparison

    threshold = None if fail_on_slower is None else options.percent("--fail-on-slower", fail_on_slower)
    one, two = options.run_folder(a, results), options.run_folder(b, results)
    try:
        found = compare_runs(one, two, across_machines=across_machines)
    except (DifferentMachines, StoreError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        typer.echo(comparison.as_text(found))
        target = reports / f"{one.name}-against-{two.name}"
        try:
            typer.echo(f"Page: {comparison.write(found, target)}")
        except OSError as error:
            refuse(f"the page cannot be written to {target}: {error.strerror or error}; name a folder with --reports")
    if threshold is not None and (found.slower_than(threshold) or found.broken()):
        raise typer.Exit(1)
