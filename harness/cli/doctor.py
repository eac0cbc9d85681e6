"""`pergrad doctor`: what is installed, and what will disturb a measurement here?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from harness.cli.options import Json, refuse


def doctor(
    as_json: Json = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="local:2|ADDRESS|FILE", help="Look at the machines of this Dask cluster instead."),
    ] = None,
) -> None:
    """What is installed, what each framework sees, what will disturb a measurement here, and what to do about it.

    The exit status is 1 if a run could not be trusted, or could not start.

    Examples: `pergrad doctor`, `pergrad doctor --cluster tcp://host:8786`.
    """
    from harness.cli import fleet
    from harness.fleet.kinds import FleetError
    from harness.system import doctor as examination

    try:
        found = examination.examine() if cluster is None else fleet.engine("doctor").examine(cluster)
    except FleetError as error:
        refuse(str(error))
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else found.text())
    raise typer.Exit(0 if found.ok else 1)
