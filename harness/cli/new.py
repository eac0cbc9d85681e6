"""`pergrad new`: files that already run, to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import refuse
from harness.core.find_strategies import LOCAL_FOLDER
from harness.core.find_workloads import LOCAL_FOLDER as WORKLOADS
from harness.core.framework import framework as known_framework
from harness.core.framework import framework_names
from harness.core.plugins import PluginError, suggestion

TEMPLATES = Path(__file__).parent / "templates"


def write_strategy(name: str) -> Path:
    """Write `strategies/<framework>/<name>.py` below the current folder: one loop over the instances.

    Raises:
        PluginError: if the name is none, or the file exists.
    """
    framework, _, own = name.partition("/")
    if framework not in framework_names() or not own:
        raise PluginError(
            f"{name!r} is no name of a strategy: it is <framework>/<name>, as in torch/my-idea; "
            f"frameworks are {', '.join(framework_names())}"
        )
    return _write(LOCAL_FOLDER / framework, own, f"strategy_{framework}.py")


def write_workload(name: str, framework: str | None) -> Path:
    """Write `workloads/<name>.py` below the current folder, for one framework, or through `ops` for all.

    Raises:
        PluginError: if the name or the framework is none, or the file exists.
    """
    if framework is not None and framework not in framework_names():
        raise PluginError(f"unknown framework {framework!r}; {suggestion(framework, framework_names())}")
    template = "ops" if framework is None else known_framework(framework).workload_template
    return _write(WORKLOADS, name, f"workload_{template}.py")


def _write(folder: Path, name: str, template: str) -> Path:
    identifier = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", identifier):
        raise PluginError(f"{name!r} is no name: lower-case letters, digits and hyphens, as in my-idea")
    path = folder / f"{identifier}.py"
    if path.exists():
        raise PluginError(f"{path} exists already; choose another name, or edit it")
    if not (TEMPLATES / template).is_file():
        raise PluginError(f"pergrad has no template for this framework; copy a file of another in {TEMPLATES}")
    text = (TEMPLATES / template).read_text(encoding="utf-8").replace("my_idea", identifier)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


app = typer.Typer(help="Write a file that already runs, to start from.", no_args_is_help=True)


@app.command("strategy")
def new_strategy(name: Annotated[str, typer.Argument(metavar="FRAMEWORK/NAME", help="Such as torch/my-idea.")]) -> None:
    """Write strategies/<framework>/<name>.py below the current folder.

    Example: `pergrad new strategy torch/my-idea`.
    """
    try:
        path = write_strategy(name)
    except PluginError as error:
        refuse(str(error))
    typer.echo(f"{path} is a strategy that runs. Next: edit it, then\n\n    pergrad check {name}\n")


@app.command("workload")
def new_workload(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as my-model.")],
    framework: Annotated[
        str | None,
        typer.Option(metavar="FRAMEWORK", help="Written in it.  [default: through ops, for all]"),
    ] = None,
) -> None:
    """Write workloads/<name>.py below the current folder.

    Example: `pergrad new workload my-model --framework torch`.
    """
    try:
        path = write_workload(name, framework)
    except PluginError as error:
        refuse(str(error))
    typer.echo(
        f"{path} is a workload that runs. Next: edit it, then\n\n    pergrad advise --workload {name} --batch-size 64\n"
    )
