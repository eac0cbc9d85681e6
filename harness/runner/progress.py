"""Say what a run is about to measure, show how far it is, and what it left out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from harness.core import store
from harness.core.records import Measurement, SkipCause
from harness.core.store import Run
from harness.runner import execute, plan
from harness.runner.ledger import Ledger, OnRow
from harness.runner.plan import Plan
from harness.runner.prepare import Prepared
from harness.system import diagnostics, gpu


def announce(prepared: Prepared, here: bool = True) -> None:
    """Say what will be measured, and what cannot be.

    Args:
        here: whether it is measured on this machine, so that its GPUs are worth a look.
    """
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
                where = "on this machine" if here else "there"
                said = f"sees no {kind} {where}{why and f' ({why})'}; its cases are marked unavailable"
                print(f"{framework}: {said}", file=sys.stderr)
    for finding in diagnostics.gpus(gpu.cards(), prepared.seen) if here else ():
        if finding.level == diagnostics.WARNING:
            print(f"{finding.what}: {finding.found}; {finding.do}", file=sys.stderr)
    sizes = ", ".join(map(str, wanted.batch_sizes))
    print(
        f"Measuring {len(wanted.strategies)} strategies on {', '.join(wanted.workloads)} at batch sizes {sizes}, "
        f"on {' and '.join(wanted.devices)}, {wanted.passes} pass{'es' if wanted.passes > 1 else ''}, "
        f"into {prepared.folder}",
        file=sys.stderr,
    )
    there = [one for one in prepared.chosen if prepared.seen[one.framework]["status"] == "ok"]
    minutes = plan.expected_s(wanted, there) / 60
    print(f"This takes about {max(1, round(minutes))} min; Ctrl-C keeps what was measured.", file=sys.stderr)


def measure_with_progress(prepared: Prepared) -> None:
    """Run the sweep with a progress bar, or with a line per case where nobody watches a bar."""
    done = len(store.load(prepared.folder).rows)
    with shown(case_count(prepared.wanted), done, "computing the reference") as (on_row, _):
        execute.sweep(ledger_of(prepared, on_row))


def ledger_of(prepared: Prepared, on_row: OnRow) -> Ledger:
    """The ledger of a prepared run."""
    return Ledger(prepared.wanted, prepared.chosen, prepared.seen, prepared.folder, on_row, prepared.retry)


@contextlib.contextmanager
def shown(total: int, done: int, first: str, naming: bool = True) -> Iterator[tuple[OnRow, Callable[[str], None]]]:
    """A progress bar, or a line per case where nobody watches a bar: what is called for each row, and what says more.

    Args:
        total: rows of the finished run.
        done: rows that are there already.
        first: what stands beside the bar until there is something else to say.
        naming: whether the bar names the last row; otherwise only what is said stands there.
    """
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(first, total=total, completed=done)

        def on_row(row: Measurement) -> None:
            where = f" on {row.machine}" if row.machine else ""
            line = f"{row.workload} {row.strategy} B={row.batch_size} pass {row.pass_number}{where}: {row.status}"
            progress.update(bar, advance=1, description=line if naming else None)
            if row.status.is_failure or not console.is_terminal:
                console.print(
                    f"{line}{': ' if row.reason else ''}{row.reason}", markup=False, highlight=False, soft_wrap=True
                )

        yield on_row, lambda text: progress.update(bar, description=text)


def case_count(wanted: Plan) -> int:
    """How many rows a run of this plan has when it is complete."""
    conditions = sum(len(wanted.allocators_of(device)) for device in wanted.devices)
    return len(wanted.strategies) * wanted.passes * conditions * len(wanted.workloads) * len(wanted.batch_sizes)


def say_what_was_left_out(run: Run) -> None:
    """Say how many cases the budget left out, if any."""
    left_out = sum(row.skip_cause is SkipCause.BUDGET for row in run.rows)
    if left_out:
        print(f"The budget left out {left_out} of {len(run.rows)} cases; the report names them.", file=sys.stderr)
