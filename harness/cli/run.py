"""`pergrad run`: measure strategies and write the report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options
from harness.cli.options import ALLOCATORS, Plugins, Pythons, Reports, Results, refuse
from harness.core.domain import DTYPES

WHAT, HOW, WHERE, FLEET = "What is measured", "How it is measured", "Where it goes", "On several machines"


def run(
    context: typer.Context,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A first impression: policy and cnn, batch sizes 1 and 64, 1 pass.", rich_help_panel=WHAT
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every strategy, not the leading ones only.", rich_help_panel=WHAT)
    ] = False,
    batch_size: Annotated[
        str | None,
        typer.Option(metavar="1,16,128", help="Batch sizes.  [default: 1,10,100]", rich_help_panel=WHAT),
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
        typer.Option(
            metavar="cpu|gpu|gpu:1|all",
            help="gpu:UUID is one, too.  [default: every device found]",
            rich_help_panel=WHAT,
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="float32|float64|bfloat16", help="Dtype of everything.", rich_help_panel=WHAT)
    ] = "float32",
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What speed-ups are relative to.  [default: the plain loop of the first framework, tf1 before others]",
            rich_help_panel=WHAT,
        ),
    ] = None,
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
        typer.Option(metavar="TIME", help="Timed calls to aim for per case.  [default: 1.2s]", rich_help_panel=HOW),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="End a case when its ratios to the best and the baseline are known this well.  [default: 2%]",
            rich_help_panel=HOW,
        ),
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
    python: Pythons = None,
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
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local:2|ADDRESS|FILE",
            help="Measure on the machines of this Dask cluster: its scheduler's address, or its scheduler file.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread", help="Divide the plan among machines of one kind.  [the default]", rich_help_panel=FLEET
        ),
    ] = False,
    each: Annotated[
        bool,
        typer.Option("--each", help="Measure the whole plan on every kind of machine.", rich_help_panel=FLEET),
    ] = False,
    across_versions: Annotated[
        bool,
        typer.Option("--across-versions", help="Even if machines differ in versions.", rich_help_panel=FLEET),
    ] = False,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=0.42", help="What an hour of a kind of machine costs; repeatable.", rich_help_panel=FLEET
        ),
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
    from harness import session
    from harness.cli import fleet as on_fleet
    from harness.core import find_strategies
    from harness.core.plugins import PluginError
    from harness.core.store import StoreError
    from harness.fleet.kinds import FleetError
    from harness.frameworks.child_process import ChildProcessFailed
    from harness.runner import plan as plans
    from harness.runner import prepare
    from harness.runner.plan import PlanError, bind_to_cores, frameworks_of, plan_for, requested_workloads
    from harness.system.lock import Busy

    if device is not None:
        options.device(device, ("cpu", "gpu", "all"))
    options.use_pythons(python)
    options.one_of("--dtype", dtype, tuple(DTYPES))
    options.one_of("--allocator", allocator, tuple(ALLOCATORS))
    if spread and each:
        refuse("--spread divides the plan among machines, --each measures all of it on every kind; give one of them")
    prices = on_fleet.prices(price or ())
    fleet = on_fleet.fleet(cluster, each, across_versions, prices, bool(python))
    try:
        if resume is not None:
            _refuse_other_options(context)
            folder = options.run_folder(resume, results)
            if fleet:
                status = on_fleet.engine().resume(fleet, folder, plugin or (), retry, across_machines, reports)
                raise typer.Exit(status)
            prepared = prepare.resume(folder, plugin or (), retry, across_machines)
        else:
            catalogue = find_strategies.discover(plugin or ())
            workloads = requested_workloads(workload or (), plans.QUICK_WORKLOADS if quick else plans.DEFAULT_WORKLOADS)
            named = [catalogue.find(given).name for given in strategy or ()]
            wanted = plan_for(workloads, named or catalogue.measurable(full, frameworks_of(workloads)))
            wanted = wanted.given(dtype=dtype, allocators=ALLOCATORS[allocator])
            wanted = wanted.quick() if quick else wanted
            wanted = wanted.given(
                batch_sizes=None if batch_size is None else options.numbers("--batch-size", batch_size, 1),
                cpus=cpus and options.numbers("--cpus", cpus, 0),
                passes=passes,
                limit_s=limit and options.seconds("--limit", limit),
                target_s=target and options.seconds("--target", target),
                precision=precision and options.percent("--precision", precision),
                budget_s=budget and options.seconds("--budget", budget),
                threads=threads,
                baseline=baseline,
            )
            command = shlex.join(["pergrad", *sys.argv[1:]])
            folder = prepare.new_folder(results, name)
            if fleet:
                status = on_fleet.engine().start(
                    fleet,
                    wanted,
                    catalogue,
                    device,
                    folder,
                    reports,
                    command=command,
                    may_add_baseline=not strategy,
                )
                raise typer.Exit(status)
            prepared = prepare.start(
                bind_to_cores(wanted), catalogue, device, folder, command=command, may_add_baseline=not strategy
            )
        status = session.measure_and_report(prepared, reports)
    except (PluginError, PlanError, StoreError, Busy, FleetError) as error:
        refuse(str(error))
    except ChildProcessFailed as error:
        refuse(f"a workload cannot be loaded here: {error}; choose others with --workload, or install what it needs")
    raise typer.Exit(status)


WITH_RESUME = {
    *("resume", "retry", "across_machines", "plugin", "python", "results", "reports"),
    *("cluster", "spread", "across_versions"),
}


def _refuse_other_options(context: typer.Context) -> None:
    """A run that goes on has its plan already: an option that would change it is refused, not ignored."""
    sources = {parameter: context.get_parameter_source(str(parameter.name)) for parameter in context.command.params}
    given = [
        parameter.opts[0]
        for parameter, source in sources.items()
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in WITH_RESUME
    ]
    if given:
        refuse(
            f"--resume goes on with the plan of that run, so {', '.join(given)} cannot be given with it; "
            "start a new run for another plan"
        )
