"""`pergrad show`: print one strategy with its code."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from harness.cli.options import Json, Plugins, discovered, refuse


def show(
    name: Annotated[str, typer.Argument(metavar="STRATEGY", help="Such as jax/vmap.")],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Print a strategy as a file of its own, which runs with your model and the framework alone.

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
    typer.echo(found.code, nl=False)
