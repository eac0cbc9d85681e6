"""What the values of command-line options mean, and the one way to refuse them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from harness.core import find_strategies
from harness.core.find_strategies import Catalogue
from harness.core.plugins import PluginError

Plugins = Annotated[
    list[Path] | None, typer.Option("--plugin", metavar="FILE", help="A strategy file outside strategies/; repeatable.")
]
Device = Annotated[str, typer.Option("--device", metavar="cpu|gpu|gpu:1", help="Where; gpu:UUID is one, too.")]
Pythons = Annotated[
    list[str] | None,
    typer.Option(
        "--python", metavar="NAME=PATH", help="The interpreter a framework is installed for, as jax=venv/bin/python."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")]
Results = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where runs are stored.")]
Reports = Annotated[Path, typer.Option("--reports", metavar="FOLDER", help="Where reports are written.")]

ALLOCATORS = {"default": ("default",), "reuse": ("reuse",), "all": ("default", "reuse")}


def refuse(message: str) -> NoReturn:
    """End with exit status 2 and one line that says what was given, what is allowed and what to do."""
    typer.echo(f"pergrad: {message}", err=True)
    raise typer.Exit(2)


def one_of(option: str, given: str, allowed: Sequence[str]) -> str:
    """The value, if it is allowed."""
    if given not in allowed:
        refuse(f"{option} {given} is not one of {', '.join(allowed)}")
    return given


def numbers(option: str, text: str, least: int) -> tuple[int, ...]:
    """Whole numbers separated by commas, each once, ascending."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not part.isdecimal() or int(part) < least:
            refuse(f"{option} {text}: {part or 'nothing'!r} is not a whole number from {least} up, as in 1,8,64")
    return tuple(sorted({int(part) for part in parts}))


def device(given: str, allowed: Sequence[str] = ("cpu", "gpu")) -> str:
    """The value of `--device`, if it names a kind of device that is allowed, or one GPU."""
    from harness.core.domain import device_and_gpu

    try:
        kind, _ = device_and_gpu(given)
    except ValueError as error:
        refuse(str(error))
    return given if kind in allowed else one_of("--device", given, allowed)


def use_pythons(given: Sequence[str] | None) -> None:
    """Have the interpreters that `--python` names used for their frameworks."""
    from harness.core.framework import framework, framework_names
    from harness.frameworks.child_process import PYTHON

    allowed = dict.fromkeys(known for name in framework_names() for known in (name, framework(name).package))
    for entry in given or ():
        name, _, path = entry.partition("=")
        if name not in allowed or not os.access(path, os.X_OK):
            refuse(f"--python {entry}: give one of {', '.join(allowed)} and an interpreter, as in jax=venv/bin/python")
        os.environ[f"{PYTHON}{name.upper()}"] = str(Path(path).absolute())


def seconds(option: str, text: str) -> float:
    """A time such as 90, 90s, 1.5min or 2h, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(s|min|h)?", text.strip())
    found = float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    if not found:
        refuse(f"{option} {text} is not a time above zero, as in 90s, 5min or 1h")
    return found


def percent(option: str, text: str) -> float:
    """A percentage such as 10% or 10, as a fraction."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if not match:
        refuse(f"{option} {text} is not a percentage, as in 10%")
    return float(match[1]) / 100


def run_folder(given: str, results: Path) -> Path:
    """The folder of a run given by its name or path."""
    from harness.core import store
    from harness.core.plugins import suggestion

    for candidate in (Path(given), results / given):
        if (candidate / store.RUN_FILE).exists():
            return candidate
    refuse(f"there is no run {given!r} in {results}; {suggestion(given, [path.name for path in store.runs(results)])}")


def discovered(plugins: list[Path] | None) -> Catalogue:
    """The catalogue, or a refusal that says what is wrong with a plugin."""
    try:
        return find_strategies.discover(plugins or ())
    except PluginError as error:
        refuse(str(error))
