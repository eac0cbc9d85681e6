"""`pergrad list`: what can be measured, without loading any framework."""

from __future__ import annotations

import json
from typing import Any

import typer

from harness.analysis import formats
from harness.cli.options import Json, Plugins, discovered
from harness.core import find_workloads
from harness.core.plugins import PluginError

app = typer.Typer(help="List what can be measured, without loading any framework.", no_args_is_help=True)


@app.command("strategies")
def list_strategies(as_json: Json = False, plugin: Plugins = None) -> None:
    """Every strategy that can be measured."""
    catalogue = discovered(plugin)
    entries: list[dict[str, Any]] = [
        {
            "name": s.name,
            "framework": s.framework,
            "quantity": s.quantity,
            "summary": s.summary,
            "source": s.source,
            "reuses_output": s.reuses_output,
            "full_only": s.full_only,
        }
        for s in catalogue.strategies
    ]
    entries += [
        {"name": u.name, "framework": u.name.partition("/")[0], "summary": f"unavailable: {u.reason}"}
        for u in catalogue.unavailable
    ]
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    names = [formats.marked(entry["name"], entry.get("reuses_output", False)) for entry in entries]
    width = max(map(len, names), default=0)
    for name, entry in zip(names, entries, strict=True):
        typer.echo(f"{name:<{width}}  {entry['summary']}")


@app.command("workloads")
def list_workloads(as_json: Json = False) -> None:
    """Every workload: a model, its loss, its parameters and its batches."""
    from harness.frameworks.child_process import ChildProcessFailed
    from harness.reference.workload_info import workload_info

    entries: list[dict[str, Any]] = []
    for workload in [*find_workloads.builtin(), *find_workloads.others()]:
        try:
            known = workload_info(workload)
        except (PluginError, ChildProcessFailed) as error:
            entries.append({"name": workload.name, "summary": f"unavailable: {error}"})
            continue
        entries.append(
            {
                "name": workload.name,
                "framework": ", ".join(known.frameworks),
                "summary": workload.summary,
                "parameters": known.parameter_count,
                "gradient_bytes_per_instance": known.gradient_bytes(),
                "flops_per_instance": known.flops,
            }
        )
    for name, reason in find_workloads.unavailable().items():
        entries.append({"name": name, "summary": f"unavailable: {reason}"})
    if as_json:
        typer.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    for entry in entries:
        typer.echo(f"{entry['name']}\n  {entry['summary']}")
        if "framework" not in entry:
            continue
        typer.echo(
            f"  per instance: {entry['gradient_bytes_per_instance'] / 1e3:,.1f} kB of gradients, "
            f"{(entry['flops_per_instance'] or 0) / 1e6:,.3g} Mflop; runs in {entry['framework']}"
        )
