"""The command `pergrad`: run, report, list. Only what a command needs is imported, and never a framework."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.probe import Seen
    from harness.records import Measurement
    from harness.strategies import Catalogue, Strategy

app = typer.Typer(
    help="Measure every known way to compute per-instance gradients, check that they agree, and say which to use.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
lists = typer.Typer(help="List what can be measured, without loading any framework.", no_args_is_help=True)
app.add_typer(lists, name="list")

Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", metavar="FILE", help="A strategy file outside strategies/; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")]
Results = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where runs are stored.")]
Reports = Annotated[Path, typer.Option("--reports", metavar="FOLDER", help="Where reports are written.")]


@app.command()
def run(
    quick: Annotated[bool, typer.Option("--quick", help="A first impression: 1 pass, batch sizes 1, 16, 256.")] = False,
    batch_size: Annotated[
        str | None, typer.Option(metavar="1,8,64", help="Batch sizes, separated by commas.  [default: 1,4,16,64,256]")
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Measure only this strategy; repeatable.  [default: all]")
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Measure this workload; repeatable.  [default: policy]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="cpu|gpu|all", help="Where to compute.  [default: every device found]")
    ] = None,
    passes: Annotated[int | None, typer.Option(min=1, help="How often to measure everything.  [default: 3]")] = None,
    limit: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="What one case may take.  [default: 60]")
    ] = None,
    target: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Timed calls to aim for per case.  [default: 1.6]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for every framework.  [default: one per core]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder.  [default: date and time]")] = None,
    plugin: Plugins = None,
    results: Results = Path("results"),
    reports: Reports = Path("reports"),
) -> None:
    """Measure strategies and write the report.

    The exit status is 1 if a strategy disagrees with the reference or fails; it is 0 if every case is ok,
    unsupported, unavailable or skipped.

    Examples: `pergrad run --quick`, `pergrad run --batch-size 1,8,64 --strategy jax/vmap`.
    """
    from dataclasses import replace

    from harness import probe, store, strategies, sweep
    from harness.plan import Plan
    from harness.strategies import PluginError

    try:
        catalogue = strategies.discover(plugin or ())
        chosen = [catalogue.find(wanted) for wanted in strategy] if strategy else list(catalogue.strategies)
        names = _workload_names(workload)
    except PluginError as error:
        _refuse(str(error))
    wanted = Plan(names, tuple(s.name for s in chosen), ("cpu",))
    wanted = wanted.quick() if quick else wanted
    given: dict[str, Any] = {
        "batch_sizes": None if batch_size is None else _batch_sizes(batch_size),
        "passes": passes,
        "limit_s": limit,
        "target_s": target,
        "threads": threads,
    }
    wanted = replace(wanted, **{key: value for key, value in given.items() if value is not None})
    if device not in (None, "cpu", "gpu", "all"):
        _refuse(f"--device {device} is not one of cpu, gpu, all")

    folder = results / (name or datetime.now().strftime("%Y-%m-%d-%H%M%S"))
    try:
        store.check_writable(results)
        typer.echo("Looking at the frameworks ...", err=True)
        seen = probe.probe(sorted({s.framework for s in chosen}), threads)
        wanted = replace(wanted, devices=_devices(device, seen))
        command = " ".join(["pergrad", *sys.argv[1:]])
        store.create(folder, sweep.describe(wanted, catalogue, chosen, seen, command))
    except store.StoreError as error:
        _refuse(str(error))
    _announce(wanted, catalogue, seen, folder)
    try:
        _measure(wanted, chosen, seen, folder)
    except KeyboardInterrupt:
        typer.echo(f"\nInterrupted. What was measured is in {folder}; the report shows it.", err=True)
        _write_report([folder], reports / folder.name)
        raise typer.Exit(130) from None
    failures = _write_report([folder], reports / folder.name)
    raise typer.Exit(1 if failures else 0)


@app.command()
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
    from harness import store

    found = store.runs(results)
    if not run and not found:
        _refuse(f"there is no run in {results}; measure one with `pergrad run --quick`")
    folders = [_run_folder(given, results, found) for given in run] if run else [found[-1]]
    try:
        _write_report(folders, reports / "+".join(folder.name for folder in folders))
    except store.StoreError as error:
        _refuse(str(error))


@lists.command("strategies")
def list_strategies(as_json: Json = False, plugin: Plugins = None) -> None:
    """Every strategy that can be measured."""
    from harness import strategies

    try:
        catalogue = strategies.discover(plugin or ())
    except strategies.PluginError as error:
        _refuse(str(error))
    _print_list(
        [
            {"name": s.name, "framework": s.framework, "quantity": s.quantity, "summary": s.summary, "source": s.source}
            for s in catalogue.strategies
        ]
        + [
            {"name": u.name, "framework": u.name.partition("/")[0], "summary": f"unavailable: {u.reason}"}
            for u in catalogue.unavailable
        ],
        as_json,
    )


@lists.command("workloads")
def list_workloads(as_json: Json = False) -> None:
    """Every workload: a model, its loss, its parameters and its batches."""
    from harness import workloads

    _print_list(
        [
            {
                "name": workload.name,
                "framework": "any",
                "summary": workload.summary,
                "parameters": sum(value.size for value in workload.initial_parameters(0).values()),
            }
            for workload in workloads.builtin()
        ],
        as_json,
    )


def main() -> None:
    """The console script."""
    app()


def _batch_sizes(text: str) -> tuple[int, ...]:
    sizes = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1:
            _refuse(f"--batch-size {text}: {part.strip() or 'nothing'!r} is not a whole number from 1 up, as in 1,8,64")
        sizes.append(int(part))
    return tuple(sorted(set(sizes)))


def _workload_names(given: Sequence[str] | None) -> tuple[str, ...]:
    from harness import workloads

    return tuple(workloads.find(name).name for name in given) if given else ("policy",)


def _devices(asked: str | None, seen: dict[str, Seen]) -> tuple[str, ...]:
    """The kinds of device to measure; a kind that no framework sees is measured only if it was asked for."""
    found = {device["kind"] for answer in seen.values() for device in answer["devices"]}
    if asked in ("cpu", "gpu"):
        return (asked,)
    return ("cpu", "gpu") if asked == "all" or "gpu" in found else ("cpu",)


def _announce(wanted: Plan, catalogue: Catalogue, seen: dict[str, Seen], folder: Path) -> None:
    for broken in catalogue.unavailable:
        typer.echo(f"{broken.name}: unavailable: {broken.reason}", err=True)
    for framework, answer in seen.items():
        if answer["status"] != "ok":
            typer.echo(f"{framework}: unavailable: {answer['reason']}", err=True)
            continue
        for kind in wanted.devices:
            if kind not in {device["kind"] for device in answer["devices"]}:
                typer.echo(f"{framework}: sees no {kind} on this machine; its cases are marked unavailable", err=True)
    sizes = ", ".join(map(str, wanted.batch_sizes))
    typer.echo(
        f"Measuring {len(wanted.strategies)} strategies on {', '.join(wanted.workloads)} at batch sizes {sizes}, "
        f"on {' and '.join(wanted.devices)}, {wanted.passes} pass{'es' if wanted.passes > 1 else ''}, into {folder}",
        err=True,
    )


def _measure(wanted: Plan, chosen: Sequence[Strategy], seen: dict[str, Seen], folder: Path) -> None:
    """Run the sweep with a progress bar, or with a line per case where nobody watches a bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from harness import sweep

    console = Console(stderr=True)
    cases = len(chosen) * len(wanted.workloads) * len(wanted.devices) * len(wanted.batch_sizes) * wanted.passes
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("computing the reference", total=cases)

        def on_row(row: Measurement) -> None:
            line = f"{row.workload} {row.strategy} B={row.batch_size} pass {row.pass_number}: {row.status}"
            progress.update(bar, advance=1, description=line)
            if row.status.is_failure or not console.is_terminal:
                console.print(f"{line}{': ' if row.reason else ''}{row.reason}", markup=False, highlight=False)

        sweep.sweep(wanted, chosen, seen, folder, on_row)


def _run_folder(given: str, results: Path, found: Sequence[Path]) -> Path:
    from harness.strategies import suggestion

    for candidate in (Path(given), results / given):
        if (candidate / "run.json").exists():
            return candidate
    _refuse(f"there is no run {given!r} in {results}; {suggestion(given, [path.name for path in found])}")


def _write_report(folders: Sequence[Path], target: Path) -> int:
    """Write the report, say where it is and what failed; returns the number of failures."""
    from harness import report as reports
    from harness import store

    page = reports.write(folders, target)
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


def _print_list(entries: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    width = max((len(entry["name"]) for entry in entries), default=0)
    for entry in entries:
        typer.echo(f"{entry['name']:<{width}}  {entry['summary']}")


def _refuse(message: str) -> NoReturn:
    typer.echo(f"pergrad: {message}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
