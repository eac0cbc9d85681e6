"""Have the heats of a plan measured by the machines of a cluster, and keep their rows as they arrive.

Which machine takes which heat, and where one goes whose machine has died, is Dask's: a heat asks for one machine of a
kind, as a resource. Here as many heats are under way as there are machines, so that what the last rows have shown, such
as that a case is hopeless, decides on the next heat.
"""

from __future__ import annotations

import contextlib
import queue
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

from distributed import Client, Future, KilledWorker

from harness.core.records import Measurement, Status
from harness.fleet import files
from harness.fleet import machine as on_machine
from harness.fleet.cluster import MOST_DEATHS, RESOURCE
from harness.fleet.kinds import FleetError, Machine
from harness.fleet.members import Members
from harness.fleet.team import Flight, Team
from harness.runner import execute
from harness.runner.one_heat import Heat

TICK_S = 1.0
"""How often it is asked which machines are there, in a cluster of up to `FEW`; in larger ones less often."""

FEW = 100

Measure = Callable[..., Mapping[str, Any]]
Say = Callable[[str], None]


class Dispatch:
    """Heats under way in a cluster.

    Args:
        say: told what each machine is at.
        measure: what a machine does with a heat; another one in simulations.
        reference: what it does for a batch.
    """

    def __init__(
        self,
        client: Client,
        members: Members,
        teams: Sequence[Team],
        say: Say,
        measure: Measure = on_machine.measure,
        reference: Measure = on_machine.reference,
    ) -> None:
        self._client, self._members, self._teams, self._say = client, members, teams, say
        self._measure, self._reference = measure, reference
        self._run = uuid.uuid4().hex[:12]
        self._done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._adopting: dict[Future, tuple[Team, Machine]] = {}
        self._files: dict[str, Future] = {}
        self._flights: dict[str, tuple[Team, Flight]] = {}
        self._tick = 0.0

    def run(self) -> None:
        """Measure what the ledgers lack; whatever ends it, nothing of it goes on.

        Raises:
            FleetError: if the scheduler is gone.
        """
        topic = on_machine.topic(self._run)
        self._client.subscribe_topic(topic, lambda event: self._done.put(("begun", event[1])))
        try:
            for machine in self._members.machines.values():
                self._adopt(machine)
            while self._goes_on():
                self._notice_machines()
                for team in self._teams:
                    self._top_up(team)
                self._take()
        finally:
            self._client.unsubscribe_topic(topic)
            self._members.close()
            under_way = [*self._adopting, *(future for team in self._teams for future in team.flying)]
            references = [future for team in self._teams for future in team.references.values()]
            self._client.cancel([*under_way, *references, *self._files.values()])

    def _goes_on(self) -> bool:
        """Whether anything is under way or left; asks for what is left where there are machines."""
        return any(team.flying or team.again or not self._is_finished(team) for team in self._teams)

    def _is_finished(self, team: Team) -> bool:
        """Whether no heat is left, which is known for sure only by taking one."""
        if flight := team.next():
            team.again.appendleft(flight)
            return False
        return True

    def _notice_machines(self) -> None:
        if time.monotonic() < self._tick:
            return
        self._refuse_lost_scheduler()
        for machine in self._members.update():
            self._adopt(machine)
        there = self._members.machines
        for team in self._teams:
            team.ready = {address: machine for address, machine in team.ready.items() if address in there}
        for future in [f for f, (_, machine) in self._adopting.items() if machine.address not in there]:
            del self._adopting[future]
            self._client.cancel([future])
        self._tick = time.monotonic() + TICK_S * max(1.0, len(there) / FEW)
        self._say(self._what_machines_are_at())

    def _refuse_lost_scheduler(self) -> None:
        if self._client.status != "running":
            raise FleetError(f"the scheduler {self._client.scheduler.address} is gone")

    def _adopt(self, machine: Machine) -> None:
        """Have a machine take heats, if it is of a kind that is measured."""
        team = next((team for team in self._teams if team.kind.has(machine)), None)
        if team is None:
            return
        future = self._client.submit(
            on_machine.adopt,
            team.kind.resource,
            key=f"pergrad-adopt-{uuid.uuid4().hex}",
            workers=[machine.address],
            priority=100,
            pure=False,
        )
        self._adopting[future] = team, machine
        self._watch(future)

    def _watch(self, future: Future) -> None:
        future.add_done_callback(lambda done: self._done.put(("done", done)))

    def _top_up(self, team: Team) -> None:
        while len(team.flying) < len(team.ready):
            flight = team.next()
            if flight is None:
                return
            if len(flight.begun) >= MOST_DEATHS:
                self._give_up(team, flight, f"its machine died {MOST_DEATHS} times, last {flight.begun[-1]}")
            else:
                self._submit(team, flight)

    def _submit(self, team: Team, flight: Flight) -> None:
        heat = files.travelling(flight.heat)
        number = f"{self._teams.index(team)}-{flight.number}"
        self._flights[number] = team, flight
        future = self._client.submit(
            self._measure,
            self._run,
            number,
            heat.as_json(),
            self._reference_of(team, heat),
            self._files_of(team),
            key=f"pergrad-heat-{uuid.uuid4().hex}",
            resources={RESOURCE: 1, team.kind.resource: 1},
            pure=False,
        )
        team.flying[future] = flight
        self._watch(future)

    def _reference_of(self, team: Team, heat: Heat) -> Future:
        """The reference for a heat's batch: computed by the first machine that has time for it, once per kind."""
        task, wanted = heat.tasks[0], team.ledger.wanted
        key = task.workload, task.batch_sizes[0]
        found = team.references.get(key)
        if found is None or found.status in ("error", "cancelled", "lost"):
            found = self._client.submit(
                self._reference,
                self._run,
                task.source,
                task.batch_sizes[0],
                wanted.seed,
                wanted.dtype,
                execute.quantities_of(team.ledger),
                self._files_of(team),
                key=f"pergrad-reference-{uuid.uuid4().hex}",
                resources={RESOURCE: 1, team.kind.resource: 1},
                priority=10,
                pure=False,
            )
            team.references[key] = found
        return found

    def _files_of(self, team: Team) -> Future | dict[str, bytes]:
        """The files that travel, as a task's result: Dask brings it to machines, and makes it anew if it is lost."""
        if not team.carried:
            return {}
        key = f"pergrad-files-{self._run}-{files.digest(team.carried)}"
        if key not in self._files:
            self._files[key] = self._client.submit(dict, team.carried, key=key, resources={RESOURCE: 1}, priority=20)
        return self._files[key]

    def _take(self) -> None:
        """Take what has arrived, waiting for it a little."""
        try:
            what, found = self._done.get(timeout=min(0.5, max(0.0, self._tick - time.monotonic())) or 0.01)
        except queue.Empty:
            return
        arrived = [(what, found)]
        with contextlib.suppress(queue.Empty):
            while True:
                arrived.append(self._done.get_nowait())
        for event in (found for what, found in arrived if what == "begun"):
            self._note_begun(event)
        done = [found for what, found in arrived if what == "done"]
        results = self._results([future for future in done if future.status == "finished"])
        for future in done:
            self._note_done(future, results.get(future))

    def _results(self, futures: Sequence[Future]) -> dict[Future, Any]:
        """What tasks have returned, fetched at once; nothing if one is lost, so that each is asked for alone."""
        try:
            return dict(zip(futures, self._client.gather(list(futures)), strict=True))
        except Exception:
            return {}

    def _note_begun(self, event: Mapping[str, Any]) -> None:
        team, flight = self._flights.get(event["heat"], (None, None))
        if team is None or flight is None:
            return
        flight.begun.append(event["machine"])
        if len(flight.begun) > MOST_DEATHS and (future := _key_of(team.flying, flight)):
            del team.flying[future]
            self._client.cancel([future], force=True)
            self._give_up(team, flight, f"its machine died {MOST_DEATHS} times, last {flight.begun[-2]}")

    def _note_done(self, future: Future, found: Mapping[str, Any] | None) -> None:
        if future in self._adopting:
            self._note_adopted(future)
            return
        team = next((team for team in self._teams if future in team.flying), None)
        if team is None:
            return
        flight = team.flying.pop(future)
        try:
            found = found or future.result()
        except Exception as error:
            self._note_failed(team, flight, error)
            return
        for row in found["rows"]:
            team.ledger.keep(replace(Measurement.from_json(row), heat=flight.number, machine=str(found["machine"])))
        del self._flights[f"{self._teams.index(team)}-{flight.number}"]

    def _note_failed(self, team: Team, flight: Flight, error: Exception) -> None:
        if isinstance(error, CancelledError | OSError):
            self._refuse_lost_scheduler()
        if isinstance(error, on_machine.Unwanted | CancelledError | OSError):
            team.again.append(flight)
        elif isinstance(error, KilledWorker):
            last = flight.begun[-1] if flight.begun else error.last_worker.address
            self._give_up(team, flight, f"its machine died {error.allowed_failures + 1} times, last {last}")
        else:
            where = flight.begun[-1] if flight.begun else "the machine"
            self._give_up(team, flight, f"{where} failed: {type(error).__name__}: {error}")

    def _note_adopted(self, future: Future) -> None:
        team, machine = self._adopting.pop(future)
        if future.status != "finished":
            return
        if self._is_deserted(team):
            # Heats that found no machine wait for one that joins with the resource, and this one was given it later.
            stranded = list(team.flying)
            team.again.extend(team.flying[one] for one in stranded)
            waiting = [one for one in team.references.values() if one.status == "pending"]
            team.references = {key: one for key, one in team.references.items() if one.status != "pending"}
            team.flying.clear()
            self._client.cancel([*stranded, *waiting], force=True)
        team.ready[machine.address] = machine

    def _is_deserted(self, team: Team) -> bool:
        """Whether no machine of a team is left. Of many some are: then the cluster is not asked."""
        if len(team.ready) > FEW:
            return False
        workers = self._client.scheduler_info()["workers"] if team.flying else self._members.machines
        return not any(address in workers for address in team.ready)

    def _give_up(self, team: Team, flight: Flight, reason: str) -> None:
        for task in flight.heat.tasks:
            machine = flight.begun[-1] if flight.begun else ""
            team.ledger.keep(task.row(task.batch_sizes[0], Status.CRASHED, reason, heat=flight.number, machine=machine))

    def _what_machines_are_at(self) -> str:
        at = {flight.begun[-1]: flight.title for team in self._teams for flight in team.flying.values() if flight.begun}
        idle = len({machine.address for team in self._teams for machine in team.ready.values()}) - len(at)
        said = [f"{name}: {title}" for name, title in sorted(at.items())][:4]
        more = [f"{len(at) - 4} more at work"] if len(at) > 4 else []
        return "; ".join([*said, *more, *([f"{idle} idle"] if idle > 0 else [])]) or "no machine is there"


def _key_of(flying: Mapping[Future, Flight], flight: Flight) -> Future | None:
    return next((future for future, one in flying.items() if one is flight), None)
