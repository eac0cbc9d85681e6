"""`pergrad doctor`: what is installed, and what will disturb a measurement here?"""

from __future__ import annotations

import json

import typer

from harness.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """What is installed, what each framework sees, what will disturb a measurement here, and what to do about it.

    The exit status is 1 if a run could not be trusted, or could not start.

    Example: `pergrad doctor`.
    """
    from harness.system import doctor as examination

    found = examination.examine()
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else found.text())
    raise typer.Exit(0 if found.ok else 1)
