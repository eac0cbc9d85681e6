"""The commands for those who write strategies and models: new, check, advise, doctor."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options
from harness.core import domain
from harness.cli.list import Json, Plugins, discovered
from harness.cli.options import refuse
from harness.core.find_strategies import Catalogue
from harness.core.plugins import PluginError
from harness.core.strategy import Strategy

new = typer.Typer(help="Write a file that already runs, to start from.", no_args_is_help=True)


@new.command("strategy")
def new_strategy(name: Annotated[str, typer.Argument(metavar="FRAMEWORK/NAME", help="Such as torch/my-idea.")]) -> None:
    """Write strategies/<framework>/<name>.py below the current folder.

    Example: `pergrad new strategy torch/my-idea`.
    """
    from harness.cli import new as files

    try:
        path = files.strategy(name)
    except PluginError as error:
        refuse(str(error))
    typer.echo(f"{path} is a strategy that runs. Next: edit it, then\n\n    pergrad check {name}\n")


@new.command("workload")
def new_workload(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as my-model.")],
    framework: Annotated[
        str | None,
        typer.Option(metavar="tf1|tf2|jax|torch|numpy", help="Written in it.  [default: through ops, for all]"),
    ] = None,
) -> None:
    """Write workloads/<name>.py below the current folder.

    Example: `pergrad new workload my-model --framework torch`.
    """
    from harness.cli import new as files

    try:
        path = files.workload(name, framework)
    except PluginError as error:
        refuse(str(error))
    typer.echo(
        f"{path} is a workload that runs. Next: edit it, then\n\n    pergrad advise --workload {name} --batch-size 64\n"
    )


def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[STRATEGY|FILE]...", help="Such as jax/vmap, or a strategy file.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every strategy.")] = False,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help="On this workload only; repeatable.  [default: small variants of all]"),
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Is a strategy right, and honest with the clock? What passed, what failed, and what to do about it.

    It is measured on the small variants of all workloads, with every check of a run; what lies inside the clock is
    printed. The exit status is 1 if something failed.

    Examples: `pergrad check jax/vmap`, `pergrad check my_idea.py`, `pergrad check --all`.
    """
    from harness.cli import check as checks_
    from harness.core import find_workloads
    from harness.run import lock
    from harness.core.records import Measurement

    if not names and not every:
        refuse("name a strategy or a file to check, as in `pergrad check jax/vmap`, or give --all")
    catalogue = discovered([*(plugin or []), *(Path(name) for name in names or [] if name.endswith(".py"))])
    chosen = (
        list(catalogue.strategies) if every else [found for name in names or [] for found in _named(catalogue, name)]
    )

    def say(row: Measurement) -> None:
        typer.echo(f"{row.strategy} on {row.workload} at batch size {row.batch_size}: {row.status}", err=True)

    results = []
    try:
        found = [find_workloads.find(name) for name in workload] if workload else checks_.everything()
        with tempfile.TemporaryDirectory(prefix="pergrad-") as folder, lock.only_run(Path("check")):
            quantities = sorted({strategy.quantity for strategy in chosen})
            typer.echo(f"Computing the truth about {len(found)} workloads ...", err=True)
            subjects = checks_.prepare(found, quantities, Path(folder))
            for strategy in chosen:
                results.append(checks_.check(strategy, subjects, say))
                if not as_json:
                    typer.echo(f"\n{checks_.text(results[-1])}")
    except (PluginError, lock.Busy) as error:
        refuse(str(error))
    if as_json:
        typer.echo(json.dumps([result.as_json() for result in results], indent=2, ensure_ascii=False))
    # Among all of them, those of a framework that is not installed are no failure; one that was asked for is.
    raise typer.Exit(0 if all(result.ok or (every and not result.failures) for result in results) else 1)


def _named(catalogue: Catalogue, name: str) -> list[Strategy]:
    """The strategy of that name, or all that a file defines."""
    if not name.endswith(".py"):
        try:
            return [catalogue.find(name)]
        except PluginError as error:
            refuse(str(error))
    inside = [strategy for strategy in catalogue.strategies if strategy.path.resolve() == Path(name).resolve()]
    if not inside:
        broken = [entry.reason for entry in catalogue.unavailable if entry.path.resolve() == Path(name).resolve()]
        refuse(f"{name} defines no strategy that can be imported: {'; '.join(broken)}")
    return inside


def advise(
    workload: Annotated[str, typer.Option(metavar="NAME|FILE", help="The model: a workload, or your own in a file.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Instances in a batch.")],
    quantity: Annotated[
        str, typer.Option(metavar="|".join(domain.QUANTITIES), help="What is needed of the gradients.")
    ] = "gradients",
    within: Annotated[str, typer.Option(metavar="TIME", help="What the whole answer may take.")] = "60s",
    dtype: Annotated[str, typer.Option(metavar="float32|float64|bfloat16", help="Dtype of everything.")] = "float32",
    plugin: Plugins = None,
    as_json: Json = False,
    results: options.Results = Path("results"),
) -> None:
    """Which strategy for this model? The most promising are measured first, and dropped when they cannot win any more.

    Example: `pergrad advise --workload my_model.py --batch-size 256 --within 60s`.
    """
    began = time.monotonic()
    from harness.advise import advisor, answer
    from harness.run.lock import Busy

    options.one_of("--quantity", quantity, tuple(domain.QUANTITIES))
    options.one_of("--dtype", dtype, options.DTYPES)
    until = began + options.seconds("--within", within)
    catalogue = discovered(plugin)
    try:
        found = advisor.advise(
            catalogue, workload, batch_size, quantity, dtype, until, results, lambda line: typer.echo(line, err=True)
        )
    except (PluginError, Busy) as error:
        refuse(str(error))
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else answer.text(found))
    raise typer.Exit(0 if found.ranking else 1)


def doctor(as_json: Json = False) -> None:
    """What is installed, what each framework sees, what will disturb a measurement here, and what to do about it.

    The exit status is 1 if a run could not be trusted, or could not start.

    Example: `pergrad doctor`.
    """
    from harness.system import doctor as examination

    found = examination.examine()
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else found.text())
    raise typer.Exit(0 if found.ok else 1)
