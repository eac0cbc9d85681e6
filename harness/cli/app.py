"""The command `pergrad`. Only what a command needs is imported, and never a framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import __version__
from harness.cli import list as lists_, options, plugin_commands
from harness.cli.list import Json, Plugins, discovered
from harness.cli.options import ALLOCATORS, DTYPES, Reports, Results, refuse

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

WHAT, HOW, WHERE = "What is measured", "How it is measured", "Where it goes"


def say_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"pergrad {__version__}")
        raise typer.Exit


@app.callback()
def pergrad(
    version: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Measure every known way to compute per-instance gradients, check that they agree, and say which to use.

    Begin with `pergrad doctor`, then `pergrad run --quick`; or ask for one model with
    `pergrad advise --workload my_model.py --batch-size 64`.
    """


@app.command()
def run(
    quick: Annotated[
        bool, typer.Option("--quick", help="A first impression: 1 pass, batch sizes 1, 16, 256.", rich_help_panel=WHAT)
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every strategy, not the leading ones only.", rich_help_panel=WHAT)
    ] = False,
    batch_size: Annotated[
        str | None,
        typer.Option(metavar="1,8,64", help="Batch sizes.  [default: 1,4,16,64,256]", rich_help_panel=WHAT),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="This strategy only; repeatable.  [default: the leading ones]", rich_help_panel=WHAT
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE|all",
            help="This workload, or your own in a file; repeatable.  [default: policy, cnn, mlp and your own]",
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
        int | None, typer.Option(min=1, help="How often to measure everything.  [default: 2]", rich_help_panel=HOW)
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="What one case may take, build included.  [default: 60s]", rich_help_panel=HOW
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Timed calls to aim for per case.  [default: 1s]", rich_help_panel=HOW),
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

    from harness.cli import measure_and_report
    from harness.core import find_strategies
    from harness.frameworks.child_process import IsolatedError
    from harness.run.lock import Busy
    from harness.run.plan import plan_for
    from harness.core.store import StoreError
    from harness.core.plugins import PluginError

    if device is not None:
        options.one_of("--device", device, ("cpu", "gpu", "all"))
    options.one_of("--dtype", dtype, DTYPES)
    options.one_of("--allocator", allocator, tuple(ALLOCATORS))
    try:
        if resume is not None:
            prepared = measure_and_report.resume(options.run_folder(resume, results), plugin or (), retry, across_machines)
        else:
            catalogue = find_strategies.discover(plugin or ())
            names = [catalogue.find(given).name for given in strategy] if strategy else catalogue.measurable(full)
            wanted = plan_for(options.workloads(workload or ()), names)
            wanted = replace(wanted, dtype=dtype, allocators=ALLOCATORS[allocator])
            wanted = wanted.quick() if quick else wanted
            given: dict[str, Any] = {
                "batch_sizes": None if batch_size is None else options.numbers("--batch-size", batch_size, 1),
                "cpus": cpus and options.numbers("--cpus", cpus, 0),
                "passes": passes,
                "limit_s": limit and options.seconds("--limit", limit),
                "target_s": target and options.seconds("--target", target),
                "budget_s": budget and options.seconds("--budget", budget),
                "threads": threads,
            }
            wanted = replace(wanted, **{key: value for key, value in given.items() if value is not None})
            wanted = options.bound(wanted)
            prepared = measure_and_report.start(wanted, catalogue, device, measure_and_report.new_folder(results, name))
        status = measure_and_report.measure(prepared, reports)
    except (PluginError, StoreError, Busy) as error:
        refuse(str(error))
    except IsolatedError as error:
        refuse(f"a workload cannot be loaded here: {error}; choose others with --workload, or install what it needs")
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
    from harness.cli import measure_and_report
    from harness.core import store

    found = store.runs(results)
    if not run and not found:
        refuse(f"there is no run in {results}; measure one with `pergrad run --quick`")
    folders = [options.run_folder(given, results) for given in run] if run else [found[-1]]
    try:
        measure_and_report.write_report(folders, reports / "+".join(folder.name for folder in folders))
    except store.StoreError as error:
        refuse(str(error))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="STRATEGY", help="Such as jax/vmap.")],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Print a strategy: what it does, where the idea comes from, and its code, to be copied.

    Example: `pergrad show jax/vmap`.
    """
    from harness.core.plugins import PluginError

    try:
        found = discovered(plugin).find(name)
    except PluginError as error:
        refuse(str(error))
    if as_json:
        known = {"name": found.name, "framework": found.framework, "quantity": found.quantity, "source": found.source}
        typer.echo(json.dumps(known | {"docstring": found.docstring, "code": found.code}, indent=2))
        return
    typer.echo(f"{found.name}: {found.docstring}\n\nSource: {found.source}\n\n{found.code}")


@app.command()
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
    from harness.report.html import comparison
    from harness.core.store import StoreError

    threshold = None if fail_on_slower is None else options.percent("--fail-on-slower", fail_on_slower)
    one, two = options.run_folder(a, results), options.run_folder(b, results)
    try:
        found = compare_runs(one, two, across_machines=across_machines)
    except (DifferentMachines, StoreError) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        typer.echo(comparison.text(found))
        typer.echo(f"Page: {comparison.write(found, reports / f'{one.name}-against-{two.name}')}")
    if threshold is not None and (found.slower_than(threshold) or found.broken()):
        raise typer.Exit(1)


for command in (plugin_commands.advise, plugin_commands.check, plugin_commands.doctor):
    app.command()(command)
app.add_typer(lists_.app, name="list")
app.add_typer(plugin_commands.new, name="new")


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
