"""`pergrad check`: are a strategy's rows right, and is its time true?"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options
from harness.cli.options import Device, Json, Plugins, Pythons, discovered, refuse
from harness.core.find_strategies import Catalogue
from harness.core.plugins import PluginError
from harness.core.strategy import Strategy


def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[STRATEGY|FILE]...", help="Such as jax/vmap, or a strategy file.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every strategy.")] = False,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help="On this workload only; repeatable.  [default: small variants of all]"),
    ] = None,
    device: Device = "cpu",
    python: Pythons = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Are a strategy's rows right, and is its time true? What passed, what failed, and what to do about it.

    It is measured on the small variants of all workloads, with every check of a run; what lies inside the clock is
    printed. The exit status is 1 if something failed.

    Examples: `pergrad check jax/vmap`, `pergrad check my_idea.py`, `pergrad check --all`.
    """
    from harness.cli import checkup
    from harness.core import find_workloads
    from harness.core.domain import device_and_gpu
    from harness.core.records import Measurement
    from harness.frameworks import DeviceAbsent
    from harness.system import detect, lock

    options.device(device)
    options.use_pythons(python)
    if not names and not every:
        refuse("name a strategy or a file to check, as in `pergrad check jax/vmap`, or give --all")
    catalogue = discovered([*(plugin or []), *(Path(name) for name in names or [] if name.endswith(".py"))])
    chosen = (
        list(catalogue.strategies) if every else [found for name in names or [] for found in _named(catalogue, name)]
    )

    def say(row: Measurement) -> None:
        typer.echo(f"{row.strategy} on {row.workload} at batch size {row.batch_size}: {row.status}", err=True)

    results = []
    kind, gpu = device_and_gpu(device)
    try:
        if kind == "gpu":
            detect.require_gpu(detect.detect(sorted({strategy.framework for strategy in chosen}), None, gpu))
        found = [find_workloads.find(name) for name in workload] if workload else checkup.small_workloads()
        with tempfile.TemporaryDirectory(prefix="pergrad-") as folder, lock.only_run(Path("check")):
            quantities = sorted({strategy.quantity for strategy in chosen})
            typer.echo(f"Computing the reference of {len(found)} workloads ...", err=True)
            subjects = checkup.prepare(found, quantities, Path(folder))
            for strategy in chosen:
                results.append(checkup.check_strategy(strategy, subjects, say, kind, gpu))
                if not as_json:
                    typer.echo(f"\n{checkup.describe(results[-1])}")
    except (PluginError, DeviceAbsent, lock.Busy) as error:
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
