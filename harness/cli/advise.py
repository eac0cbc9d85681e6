"""`pergrad advise`: which strategy for this model?"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import options
from harness.cli.options import Device, Json, Plugins, Pythons, discovered, refuse
from harness.core.domain import DTYPES, QUANTITIES
from harness.core.plugins import PluginError


def advise(
    workload: Annotated[str, typer.Option(metavar="NAME|FILE", help="The model: a workload, or your own in a file.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Instances in a batch.")],
    quantity: Annotated[
        str, typer.Option(metavar="|".join(QUANTITIES), help="What is needed of the gradients.")
    ] = "gradients",
    within: Annotated[str, typer.Option(metavar="TIME", help="What the whole answer may take.")] = "60s",
    dtype: Annotated[str, typer.Option(metavar="float32|float64|bfloat16", help="Dtype of everything.")] = "float32",
    device: Device = "cpu",
    python: Pythons = None,
    plugin: Plugins = None,
    keep_results: Annotated[
        bool, typer.Option("--keep-results", help="Only strategies whose result outlives their next call.")
    ] = False,
    as_json: Json = False,
    results: options.Results = Path("results"),
) -> None:
    """Which strategy for this model? The most promising are measured first, and dropped when they cannot win any more.

    Example: `pergrad advise --workload my_model.py --batch-size 256 --within 60s`.
    """
    began = time.monotonic()
    from harness.advise import advise as find_answer
    from harness.advise import answer
    from harness.frameworks import DeviceAbsent
    from harness.system.lock import Busy

    options.one_of("--quantity", quantity, tuple(QUANTITIES))
    options.one_of("--dtype", dtype, tuple(DTYPES))
    options.device(device)
    options.use_pythons(python)
    until = began + options.seconds("--within", within)
    catalogue = discovered(plugin)
    try:
        found = find_answer(
            *(catalogue, workload, batch_size, quantity, dtype, until, results),
            lambda line: typer.echo(line, err=True),
            device,
            keep_results,
        )
    except (PluginError, DeviceAbsent, Busy) as error:
        refuse(str(error))
    typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False) if as_json else answer.as_text(found))
    raise typer.Exit(0 if found.ranking or found.expected else 1)
