"""Measure a plan on the machines of a cluster: start a run or go on with one, and write the report."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client

from harness import session
from harness.core import store
from harness.core.domain import device_and_gpu
from harness.core.find_strategies import Catalogue
from harness.core.store import StoreError
from harness.fleet import files, kinds
from harness.fleet.cluster import connected
from harness.fleet.dispatch import Dispatch
from harness.fleet.kinds import FleetError, Kind
from harness.fleet.members import Members
from harness.fleet.team import Team
from harness.runner import prepare, progress
from harness.runner.ledger import OnRow
from harness.runner.plan import Plan, PlanError
from harness.runner.prepare import Prepared
from harness.system import diagnostics


@dataclass(frozen=True)
class Fleet:
    """How a cluster is used.

    Attributes:
        cluster: what `harness.fleet.cluster.connected` takes.
        each: whether every kind of machine measures the whole plan; otherwise heats are divided among those of one.
        across_versions: whether machines may differ in versions.
        prices: part of a kind's label -> what an hour of such a machine costs.
    """

    cluster: str
    each: bool = False
    across_versions: bool = False
    prices: Mapping[str, float] | None = None


def start(
    fleet: Fleet,
    wanted: Plan,
    catalogue: Catalogue,
    device: str | None,
    folder: Path,
    reports: Path,
    *,
    command: str,
    may_add_baseline: bool,
) -> int:
    """Measure a plan on a cluster; the exit status. With `each`, every kind has a folder, called after it.

    Raises:
        FleetError: if there is no cluster, it is not fit for this, or its scheduler is gone.
        PlanError, PluginError, StoreError: as `harness.runner.prepare.start` says.
    """
    store.check_writable(folder.parent)
    with connected(fleet.cluster) as client:
        members = Members(client, asked(prepare.frameworks_named(wanted, catalogue), device, wanted))
        found = _kinds(client, members, fleet, wanted)
        prices = kinds.price_of(fleet.prices or {}, found)
        measured = found if fleet.each else found[:1]
        prepared = [
            prepare.start(
                wanted,
                catalogue,
                device,
                folder.with_name(f"{folder.name}-{kind.label}") if fleet.each else folder,
                command=command,
                may_add_baseline=may_add_baseline,
                elsewhere=kind.look,
                about={"fleet": _described(kind, fleet.each, prices.get(kind.label))},
            )
            for kind in measured
        ]
        status = _measure(client, members, list(zip(prepared, measured, strict=True)), folder.name, reports)
    return status


def resume(
    fleet: Fleet, folder: Path, plugins: Sequence[Path], retry: bool, across_machines: bool, reports: Path
) -> int:
    """Go on with a run on the machines of a cluster that are like those it was started on; the exit status.

    Raises:
        FleetError, PlanError, PluginError, StoreError: as for `start`; also if no machine is like those.
    """
    run = store.load(folder)
    wanted = prepare.plan_of(run.info)
    device = "all" if len(wanted.devices) > 1 else f"{wanted.devices[0]}{wanted.gpu and f':{wanted.gpu}'}"
    with connected(fleet.cluster) as client:
        members = Members(client, asked(sorted(run.info["frameworks"]), device, wanted))
        found = _kinds(client, members, fleet, wanted)
        alike = [kind for kind in found if not prepare.differences(run.info, kind.look)]
        kind = (alike or found)[0]
        prepared = prepare.resume(folder, plugins, retry, across_machines, kind.look)
        return _measure(client, members, [(prepared, kind)], folder.name, reports)


def asked(names: Sequence[str], device: str | None, wanted: Plan) -> dict[str, Any]:
    """What machines are asked about themselves.

    Args:
        names: the frameworks that are wanted.
        device: what `device_and_gpu` takes; None for every kind that is found.

    Raises:
        PlanError: if there is no such device.
    """
    try:
        kind, gpu = device_and_gpu(device) if device else (None, "")
    except ValueError as error:
        raise PlanError(str(error)) from error
    return {
        "names": list(names),
        "asked": kind,
        "gpu": gpu,
        "threads": wanted.threads,
        "dtype": wanted.dtype,
        "ceilings": True,
    }


def _kinds(client: Client, members: Members, fleet: Fleet, wanted: Plan) -> list[Kind]:
    """The kinds of machine that are there, said, and refused where they do not fit."""
    print(f"Dask's dashboard: {client.dashboard_link}", file=sys.stderr)
    print("Looking at the machines ...", file=sys.stderr)
    machines = members.gather()
    members.look_again_without_ceilings()
    for name, why in members.faults.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    kinds.refuse_other_versions(machines, files.version(), fleet.across_versions)
    kinds.refuse_missing_cores(machines, wanted.cpus)
    found = kinds.kinds(machines)
    for kind in found:
        print(f"{kind.label}: {', '.join(machine.name for machine in kind.machines)}", file=sys.stderr)
    for machine in machines:
        for finding in machine.findings:
            if finding["level"] in (diagnostics.PROBLEM, diagnostics.WARNING):
                print(f"{machine.name}: {finding['what']}: {finding['found']}", file=sys.stderr)
    if len(found) > 1 and not fleet.each:
        print(
            f"Heats are divided among machines of one kind, {found[0].label}; the others are idle. --each has every "
            "kind measure the whole plan.",
            file=sys.stderr,
        )
    return found


def _described(kind: Kind, each: bool, price: float | None) -> dict[str, Any]:
    """What `run.json` keeps of a fleet."""
    return {
        "mode": "each" if each else "spread",
        "kind": kind.label,
        "price_per_hour": price,
        "machines": [
            {"name": machine.name, "ceilings": machine.look.ceilings, "findings": list(machine.findings)}
            for machine in kind.machines
        ],
    }


def _measure(
    client: Client, members: Members, measured: Sequence[tuple[Prepared, Kind]], name: str, reports: Path
) -> int:
    folders = [prepared.folder for prepared, _ in measured]
    for prepared, _ in measured:
        progress.announce(prepared, here=False)
    total = sum(progress.case_count(prepared.wanted) for prepared, _ in measured)
    done = sum(len(store.load(folder).rows) for folder in folders)
    again = " and ".join(f"`pergrad run --resume {folder.name}`" for folder in folders)
    state = "interrupted"
    with progress.shown(total, done, "computing references", naming=False) as (on_row, say):
        teams = [_team(prepared, kind, on_row) for prepared, kind in measured]
        for team in teams:
            team.ledger.open()
        try:
            Dispatch(client, members, teams, say).run()
            state = "complete"
        except FleetError as error:
            raise FleetError(
                f"{error}; what was measured is kept, go on with {again}, on another cluster or on this machine"
            ) from error
        except OSError as error:
            raise StoreError(f"the run stopped: {error}; what was measured is kept, go on with {again}") from error
        except KeyboardInterrupt:
            print(f"\nInterrupted. What was measured is kept; go on with {again}.", file=sys.stderr)
        finally:
            for team in teams:
                team.ledger.close(state)
    if state != "complete":
        session.write_report(folders, reports / name)
        return session.INTERRUPTED
    for folder in folders:
        progress.say_what_was_left_out(store.load(folder))
    return 1 if session.write_report(folders, reports / name) else 0


def _team(prepared: Prepared, kind: Kind, on_row: OnRow) -> Team:
    paths = [*(s.plugin for s in prepared.chosen), *map(prepared.wanted.source, prepared.wanted.workloads)]
    carried, left = files.pack(paths)
    for path in left:
        print(f"{path} is larger than {files.LARGEST >> 20} MiB and does not travel to the machines", file=sys.stderr)
    return Team(progress.ledger_of(prepared, on_row), kind, carried)
