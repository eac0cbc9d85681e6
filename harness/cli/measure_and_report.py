"""What `pergrad run` does between its options and its exit status: prepare, announce, measure, report."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.core import find_strategies, store
from harness.run import execute, lock, plan, prepare
from harness.system import detect
from harness.run.plan import Plan
from harness.system.detect import Seen
from harness.core.records import Measurement
from harness.core.store import Run, StoreError
from harness.core.find_strategies import Catalogue
from harness.core.strategy import Strategy
from harness.run.execute import Sweep

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


@dataclass(frozen=True)
class Prepared:
    """A run folder that exists and holds its plan, ready to be measured."""

    folder: Path
    wanted: Plan
    catalogue: Catalogue
    chosen: Sequence[Strategy]
    seen: dict[str, Seen]


def new_folder(results: Path, name: str | None) -> Path:
    """Where a new run goes; one without a name is called after date and time."""
    return results / (name or datetime.now().strftime("%Y-%m-%d-%H%M%S"))


def start(wanted: Plan, catalogue: Catalogue, device: str | None, folder: Path) -> Prepared:
    """Make a new run folder for a plan.

    Raises:
        PluginError: if a strategy of the plan is unknown.
        StoreError: if the folder cannot be written.
    """
    chosen = [catalogue.find(name) for name in wanted.strategies]
    store.check_writable(folder.parent)
    typer.echo("Looking at the machine and the frameworks ...", err=True)
    seen = detect.probe(sorted({s.framework for s in chosen}), wanted.threads)
    wanted = replace(wanted, devices=devices(device, seen))
    command = " ".join(["pergrad", *sys.argv[1:]])
    store.create(folder, prepare.describe(wanted, catalogue, chosen, seen, command))
    return Prepared(folder, wanted, catalogue, chosen, seen)


def resume(folder: Path, plugins: Sequence[Path], retry: bool, across_machines: bool) -> Prepared:
    """Go on with a run: its missing cases only, failed ones again with `retry`.

    Raises:
        StoreError: if there is no run, or this machine or its packages are not those it was started with.
        PluginError: if a strategy of its plan is not found any more.
    """
    run = store.load(folder)
    wanted = prepare.plan_of(run.info)
    if (differing := prepare.differences(run.info)) and not across_machines:
        raise StoreError(
            f"{folder} was measured under other conditions ({'; '.join(differing)}); "
            "start a new run, or mix them knowingly with --across-machines"
        )
    catalogue = find_strategies.discover(plugins)
    chosen = [catalogue.find(name) for name in wanted.strategies]
    store.repair(folder, lambda row: not (retry and row.status.is_failure))
    return Prepared(folder, wanted, catalogue, chosen, dict(run.info["frameworks"]))


def measure(prepared: Prepared, reports: Path) -> int:
    """Measure what is missing, write the report, and return the exit status.

    Raises:
        Busy: if another run is measuring on this machine.
        StoreError: if a row, or anything else that a run needs on disk, cannot be written.
    """
    with lock.only_run(prepared.folder):
        announce(prepared)
        try:
            _sweep(prepared)
        except OSError as error:
            raise StoreError(
                f"the run stopped: {error}; what was measured is in {prepared.folder}, "
                f"go on with `pergrad run --resume {prepared.folder.name}`"
            ) from error
        except KeyboardInterrupt:
            typer.echo(
                f"\nInterrupted. What was measured is in {prepared.folder}; "
                f"go on with `pergrad run --resume {prepared.folder.name}`.",
                err=True,
            )
            write_report([prepared.folder], reports / prepared.folder.name)
            return INTERRUPTED
    run = store.load(prepared.folder)
    if (share := execute.steady_share(run)) is not None:
        typer.echo(f"{share:.0%} of the time was spent inside steady-state calls.", err=True)
    _say_what_was_left_out(run)
    return 1 if write_report([prepared.folder], reports / prepared.folder.name) else 0


def write_report(folders: Sequence[Path], target: Path) -> int:
    """Write the report, say where it is and what failed; returns the number of failures."""
    from harness import report

    page = report.write(folders, target)
    failures = {
        (row.workload, row.strategy, row.batch_size, row.status, row.reason)
        for folder in folders
        for row in store.load(folder).rows
        if row.status.is_failure
    }
    for workload, strategy, batch_size, status, reason in sorted(failures):
        typer.echo(f"{status}: {strategy} on {workload} at batch size {batch_size}: {reason}", err=True)
    typer.echo(f"Report: {page}")
    return len(failures)


def devices(asked: str | None, seen: dict[str, Seen]) -> tuple[str, ...]:
    """The kinds of device to measure; a kind that no framework sees is measured only if it was asked for."""
    found = {device["kind"] for answer in seen.values() for device in answer["devices"]}
    if asked in ("cpu", "gpu"):
        return (asked,)
    return ("cpu", "gpu") if asked == "all" or "gpu" in found else ("cpu",)


def announce(prepared: Prepared) -> None:
    """Say what will be measured, and what cannot be."""
    wanted = prepared.wanted
    for broken in prepared.catalogue.unavailable:
        typer.echo(f"{broken.name}: unavailable: {broken.reason}", err=True)
    for framework, answer in prepared.seen.items():
        if answer["status"] != "ok":
            typer.echo(f"{framework}: unavailable: {answer['reason']}", err=True)
            continue
        for kind in wanted.devices:
            if kind not in {device["kind"] for device in answer["devices"]}:
                typer.echo(f"{framework}: sees no {kind} on this machine; its cases are marked unavailable", err=True)
    sizes = ", ".join(map(str, wanted.batch_sizes))
    typer.echo(
        f"Measuring {len(wanted.strategies)} strategies on {', '.join(wanted.workloads)} at batch sizes {sizes}, "
        f"on {' and '.join(wanted.devices)}, {wanted.passes} pass{'es' if wanted.passes > 1 else ''}, "
        f"into {prepared.folder}",
        err=True,
    )
    minutes = plan.expected_s(wanted, prepared.chosen) / 60
    typer.echo(f"This takes about {max(1, round(minutes))} min; Ctrl-C keeps what was measured.", err=True)


def _sweep(prepared: Prepared) -> None:
    """Run the sweep with a progress bar, or with a line per case where nobody watches a bar."""
    console = Console(stderr=True)
    total = case_count(prepared.wanted)
    done = len(store.load(prepared.folder).rows)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("computing the reference", total=total, completed=done)

        def on_row(row: Measurement) -> None:
            line = f"{row.workload} {row.strategy} B={row.batch_size} pass {row.pass_number}: {row.status}"
            progress.update(bar, advance=1, description=line)
            if row.status.is_failure or not console.is_terminal:
                console.print(f"{line}{': ' if row.reason else ''}{row.reason}", markup=False, highlight=False)

        Sweep(prepared.wanted, prepared.chosen, prepared.seen, prepared.folder, on_row).run()


def case_count(wanted: Plan) -> int:
    """How many rows a run of this plan has when it is complete."""
    names = len(wanted.strategies) + (wanted.control and plan.BASELINE in wanted.strategies)
    dimensions = (wanted.workloads, wanted.devices, wanted.allocators, wanted.batch_sizes)
    return names * wanted.passes * math.prod(len(dimension) for dimension in dimensions)


def _say_what_was_left_out(run: Run) -> None:
    left_out = sum(row.reason.startswith("left out") for row in run.rows)
    if left_out:
        typer.echo(f"The budget left out {left_out} of {len(run.rows)} cases; the report names them.", err=True)
