"""The command `pergrad`: run, report, list. Only what a command needs is imported, and never a framework."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from harness.plan import Plan

app = typer.Typer(
    help="Measure every known way to compute per-instance gradients, check that they agree, and say which to use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
lists = typer.Typer(help="List what can be measured, without loading any framework.", no_args_is_help=True)
app.add_typer(lists, name="list")

DEFAULT_WORKLOADS = ("policy", "cnn", "mlp")
"""The smallest results first: a process that has freed large ones gets memory in another way afterwards."""

DTYPES = ("float32", "float64", "bfloat16")

ALLOCATORS = {"default": ("default",), "reuse": ("reuse",), "all": ("default", "reuse")}

Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", metavar="FILE", help="A strategy file outside strategies/; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")]
Results = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where runs are stored.")]
Reports = Annotated[Path, typer.Option("--reports", metavar="FOLDER", help="Where reports are written.")]

WHAT, HOW, WHERE = "What is measured", "How it is measured", "Where it goes"


@app.command()
def run(
    quick: Annotated[
        bool, typer.Option("--quick", help="A first impression: 1 pass, batch sizes 1, 16, 256.", rich_help_panel=WHAT)
    ] = False,
    batch_size: Annotated[
        str | None,
        typer.Option(metavar="1,8,64", help="Batch sizes.  [default: 1,4,16,64,256]", rich_help_panel=WHAT),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This strategy only; repeatable.  [default: all]", rich_help_panel=WHAT),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE|all",
            help="This workload, or your own in a file; repeatable.  [default: policy, mlp and cnn]",
            rich_help_panel=WHAT,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="cpu|gpu|all", help="[default: every device found]", rich_help_panel=WHAT),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="float32|float64|bfloat16", help="Dtype of everything.", rich_help_panel=WHAT)
    ] = "float32",
    plugin: Plugins = None,
    passes: Annotated[
        int | None, typer.Option(min=1, help="How often to measure everything.  [default: 3]", rich_help_panel=HOW)
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="What one case may take, build included.  [default: 60s]", rich_help_panel=HOW
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Timed calls to aim for per case.  [default: 1.6s]", rich_help_panel=HOW),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Stop after this time, the most useful cases first; as in 5min.", rich_help_panel=HOW
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for every framework.  [default: theirs]", rich_help_panel=HOW)
    ] = None,
    cpus: Annotated[
        str | None, typer.Option(metavar="0,1", help="Bind the workers to these cores.", rich_help_panel=HOW)
    ] = None,
    allocator: Annotated[
        str,
        typer.Option(
            metavar="default|reuse|all",
            help="Whether glibc keeps freed memory; decides much where gradients are large.",
            rich_help_panel=HOW,
        ),
    ] = "default",
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with this run: its missing cases only.", rich_help_panel=WHERE),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="With --resume: measure failed cases again.", rich_help_panel=WHERE)
    ] = False,
    across_machines: Annotated[
        bool,
        typer.Option(
            "--across-machines", help="With --resume: even if machine or versions differ.", rich_help_panel=WHERE
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the run's folder.  [default: date and time]", rich_help_panel=WHERE)
    ] = None,
    results: Results = Path("results"),
    reports: Reports = Path("reports"),
) -> None:
    """Measure strategies and write the report.

    The exit status is 1 if a strategy disagrees with the reference or fails; it is 0 if every case is ok,
    unsupported, unavailable or skipped.

    Examples: `pergrad run --quick`, `pergrad run --batch-size 1,8,64 --strategy jax/vmap`,
    `pergrad run --budget 5min`.
    """
    from dataclasses import replace

    from harness import runner, strategies
    from harness.lock import Busy
    from harness.plan import Plan
    from harness.store import StoreError
    from harness.strategies import PluginError

    if device not in (None, "cpu", "gpu", "all"):
        _refuse(f"--device {device} is not one of cpu, gpu, all")
    if dtype not in DTYPES:
        _refuse(f"--dtype {dtype} is not one of {', '.join(DTYPES)}")
    if allocator not in ALLOCATORS:
        _refuse(f"--allocator {allocator} is not one of {', '.join(ALLOCATORS)}")
    try:
        if resume is not None:
            prepared = runner.resume(_run_folder(resume, results), plugin or (), retry, across_machines)
        else:
            catalogue = strategies.discover(plugin or ())
            names = [catalogue.find(given).name for given in strategy] if strategy else catalogue.measurable()
            found = _workloads(workload or DEFAULT_WORKLOADS)
            wanted = Plan(
                workloads=tuple(found),
                strategies=tuple(names),
                devices=("cpu",),
                workload_files={name: source for name, source in found.items() if name != source},
                dtype=dtype,
                allocators=ALLOCATORS[allocator],
            )
            wanted = wanted.quick() if quick else wanted
            given: dict[str, Any] = {
                "batch_sizes": None if batch_size is None else _numbers("--batch-size", batch_size, 1),
                "cpus": cpus and _numbers("--cpus", cpus, 0),
                "passes": passes,
                "limit_s": limit and _seconds("--limit", limit),
                "target_s": target and _seconds("--target", target),
                "budget_s": budget and _seconds("--budget", budget),
                "threads": threads,
            }
            wanted = replace(wanted, **{key: value for key, value in given.items() if value is not None})
            wanted = _bound(wanted)
            folder = results / (name or datetime.now().strftime("%Y-%m-%d-%H%M%S"))
            prepared = runner.start(wanted, catalogue, device, folder)
        status = runner.measure(prepared, reports)
    except (PluginError, StoreError, Busy) as error:
        _refuse(str(error))
    raise typer.Exit(status)


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
    from harness import runner, store

    found = store.runs(results)
    if not run and not found:
        _refuse(f"there is no run in {results}; measure one with `pergrad run --quick`")
    folders = [_run_folder(given, results) for given in run] if run else [found[-1]]
    try:
        runner.write_report(folders, reports / "+".join(folder.name for folder in folders))
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
    from harness.facts import facts

    entries: list[dict[str, Any]] = []
    for workload in workloads.builtin():
        known = facts(workload)
        entries.append(
            {
                "name": workload.name,
                "framework": ", ".join(known.frameworks),
                "summary": workload.summary,
                "parameters": known.parameter_count,
                "gradient_bytes_per_instance": known.gradient_bytes(),
                "flops_per_instance": known.flops,
            }
        )
    if as_json:
        _print_list(entries, as_json)
        return
    for entry in entries:
        typer.echo(f"{entry['name']}\n  {entry['summary']}")
        typer.echo(
            f"  per instance: {entry['gradient_bytes_per_instance'] / 1e3:,.1f} kB of gradients, "
            f"{(entry['flops_per_instance'] or 0) / 1e6:,.3g} Mflop; runs in {entry['framework']}"
        )


def main() -> None:
    """The console script."""
    app()


def _numbers(option: str, text: str, least: int) -> tuple[int, ...]:
    """Whole numbers separated by commas, each once, ascending."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not part.isdecimal() or int(part) < least:
            _refuse(f"{option} {text}: {part or 'nothing'!r} is not a whole number from {least} up, as in 1,8,64")
    return tuple(sorted({int(part) for part in parts}))


def _seconds(option: str, text: str) -> float:
    """A time such as 90, 90s, 1.5min or 2h, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(s|min|h)?", text.strip())
    seconds = float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    if not seconds:
        _refuse(f"{option} {text} is not a time above zero, as in 90s, 5min or 1h")
    return seconds


def _workloads(given: Sequence[str]) -> dict[str, str]:
    """Name -> where it is found, of the workloads asked for; `all` means those that come with pergrad."""
    from harness import workloads

    found = [workloads.find(name) for name in given if name != "all"]
    if "all" in given:
        found = [*workloads.builtin(), *found]
    return {workload.name: workload.source for workload in found}


def _bound(wanted: Plan) -> Plan:
    """The plan with its cores checked; `--threads N` alone binds to N cores, the only way to limit XLA's threads."""
    import os
    from dataclasses import replace

    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if wanted.cpus and not set(wanted.cpus) <= set(available):
        _refuse(f"--cpus {','.join(map(str, wanted.cpus))}: available here are {','.join(map(str, available))}")
    if wanted.threads and not wanted.cpus and wanted.threads < len(available):
        return replace(wanted, cpus=tuple(available[: wanted.threads]))
    return wanted


def _run_folder(given: str, results: Path) -> Path:
    from harness import store
    from harness.strategies import suggestion

    for candidate in (Path(given), results / given):
        if (candidate / store.RUN_FILE).exists():
            return candidate
    _refuse(f"there is no run {given!r} in {results}; {suggestion(given, [path.name for path in store.runs(results)])}")


def _print_list(entries: Sequence[dict[str, Any]], as_json: bool) -> None:
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
