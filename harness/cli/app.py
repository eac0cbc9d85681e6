"""The command `pergrad`. Only what a command needs is imported, and never a framework."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import list as list_command
from harness.cli import new
from harness.cli.advise import advise
from harness.cli.check import check
from harness.cli.doctor import doctor
from harness.cli.report import compare, report
from harness.cli.run import run
from harness.cli.show import show
from harness.core.domain import __version__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


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


for command in (run, report, show, compare, advise, check, doctor):
    app.command()(command)
app.add_typer(list_command.app, name="list")
app.add_typer(new.app, name="new")


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
