"""What the values of command-line options mean, and the one way to refuse them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from harness.run.plan import Plan

Results = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where runs are stored.")]
Reports = Annotated[Path, typer.Option("--reports", metavar="FOLDER", help="Where reports are written.")]

DTYPES = ("float32", "float64", "bfloat16")

ALLOCATORS = {"default": ("default",), "reuse": ("reuse",), "all": ("default", "reuse")}

DEFAULT_WORKLOADS = ("policy", "cnn", "mlp")
"""The smallest results first: a process that has freed large ones gets memory in another way afterwards."""


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


def workloads(given: Sequence[str]) -> dict[str, str]:
    """Name -> where it is found, of the workloads asked for; `all` means those that `pergrad list workloads` shows.

    Without any they are `DEFAULT_WORKLOADS` and those of the current folder and of installed packages.
    """
    from harness.core.find_workloads import builtin, find, others, unavailable

    found = [find(name) for name in given or DEFAULT_WORKLOADS if name != "all"]
    if "all" in given:
        found = [*map(find, DEFAULT_WORKLOADS), *builtin(), *found]
    if "all" in given or not given:
        found += others()
        for name, reason in unavailable().items():
            typer.echo(f"{name}: unavailable: {reason}", err=True)
    return {workload.name: workload.source for workload in found}


def bound(wanted: Plan) -> Plan:
    """The plan with its cores checked; `--threads N` alone binds to N cores, the only way to limit XLA's threads."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if wanted.cpus and not set(wanted.cpus) <= set(available):
        refuse(f"--cpus {','.join(map(str, wanted.cpus))}: available here are {','.join(map(str, available))}")
    if wanted.threads and not wanted.cpus and wanted.threads < len(available):
        return replace(wanted, cpus=tuple(available[: wanted.threads]))
    return wanted


def run_folder(given: str, results: Path) -> Path:
    """The folder of a run given by its name or path."""
    from harness.core import store
    from harness.core.plugins import suggestion

    for candidate in (Path(given), results / given):
        if (candidate / store.RUN_FILE).exists():
            return candidate
    refuse(f"there is no run {given!r} in {results}; {suggestion(given, [path.name for path in store.runs(results)])}")
