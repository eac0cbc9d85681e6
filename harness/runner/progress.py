"""Say what a run is about to measure, show how far it is, and what it left out."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.core import store
from harness.core.records import Measurement, SkipCause
from harness.core.store import Run
from harness.runner import execute, plan
from harness.runner.ledger import Ledger
from harness.runner.plan import Plan
from harness.runner.prepare import Prepared
from harness.system import diagnostics, gpu


def announce(prepared: Prepared) -> None:
    """Say what will be measured, and what cannot be."""
    wanted = prepared.wanted
    for broken in prepared.catalogue.unavailable:
        print(f"{broken.name}: unavailable: {broken.reason}", file=sys.stderr)
    for framework, answer in prepared.seen.items():
        if answer["status"] != "ok":
            print(f"{framework}: unavailable: {answer['reason']}", file=sys.stderr)
            continue
        for kind in wanted.devices:
            if kind not in {device["kind"] for device in answer["devices"]}:
                why = (answer.get("missing") or {}).get(kind, "")
                said = f"sees no {kind} on this machine{why and f' ({why})'}; its cases are marked unavailable"
                print(f"{framework}: {said}", file=sys.stderr)
    for finding in diagnostics.gpus(gpu.cards(), prepared.seen):
        if finding.level == diagnostics.WARNING:
            print(f"{finding.what}: {finding.found}; {finding.do}", file=sys.stderr)
    sizes = ", ".join(map(str, wanted.batch_sizes))
    print(
        f"Measuring {len(wanted.strategies)} strategies on {', '.join(wanted.workloads)} at batch sizes {sizes}, "
        f"on {' and '.join(wanted.devices)}, {wanted.passes} pass{'es' if wanted.passes > 1 else ''}, "
        f"into {prepared.folder}",
        file=sys.stderr,
    )
    minutes = plan.expected_s(wanted, prepared.chosen) / 60
    print(f"This takes about {max(1, round(minutes))} min; Ctrl-C keeps what was measured.", file=sys.stderr)


def measure_with_progress(prepared: Prepared) -> None:
    """Run the sweep with a progress bar, or with a line per case where nobody watches a bar."""
    console = Console(stderr=True)
    total = case_count(prepared.wanted)
    done = len(store.load(prepared.folder).rows)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("computing the reference", total=total, completed=done)

        def on_row(row: Measurement) -> None:
            line = f"{row.workload} {row.strategy} B={row.batch_size} pass {row.pass_number}: {row.status}"
            progress.update(bar, advance=1, description=line)
            if row.status.is_failure or not console.is_terminal:
                console.print(
                    f"{line}{': ' if row.reason else ''}{row.reason}", markup=False, highlight=False, soft_wrap=True
                )

        execute.sweep(Ledger(prepared.wanted, prepared.chosen, prepared.seen, prepared.folder, on_row, prepared.retry))


def case_count(wanted: Plan) -> int:
    """How many rows a run of this plan has when it is complete."""
    conditions = sum(len(wanted.allocators_of(device)) for device in wanted.devices)
    return len(wanted.strategies) * wanted.passes * conditions * len(wanted.workloads) * len(wanted.batch_sizes)


def say_what_was_left_out(run: Run) -> None:
    """Say how many cases the budget left out, if any."""
    left_out = sum(row.skip_cause is SkipCause.BUDGET for row in run.rows)
    if left_out:
        print(f"The budget left out {left_out} of {len(run.rows)} cases; the report names them.", file=sys.stderr)
