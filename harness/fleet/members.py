"""The machines of a cluster: who is there, who has been looked at, who has gone."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client, Future

from harness.fleet import machine as on_machine
from harness.fleet.cluster import RESOURCE
from harness.fleet.kinds import FleetError, Machine

LOOK_S = 300.0
"""A machine that takes longer to look at itself is gone on without."""

Look = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Members:
    """The machines of a cluster, each looked at once, by a task that runs on it.

    Attributes:
        machines: address -> machine, of those that are there and were looked at.
        faults: name of a machine -> why it is left out.
    """

    def __init__(self, client: Client, asked: Mapping[str, Any], look: Look = on_machine.look) -> None:
        """`asked`: what `harness.fleet.machine.look` takes."""
        self._client, self._asked, self._look = client, asked, look
        self._looking: dict[str, tuple[Future, float]] = {}
        self._strangers: set[str] = set()
        self.machines: dict[str, Machine] = {}
        self.faults: dict[str, str] = {}

    def update(self) -> list[Machine]:
        """Notice who has come and who has gone; the machines that were looked at since the last time."""
        workers = self._client.scheduler_info()["workers"]
        for address in [*self._looking, *self.machines]:
            if address not in workers:
                self._forget(address)
        for address, worker in workers.items():
            known = address in self.machines or address in self._looking or address in self._strangers
            if known or worker.get("status", "running") != "running":
                continue
            if RESOURCE not in worker["resources"]:
                self._strangers.add(address)
                self.faults[str(worker["name"])] = (
                    f"its Dask worker has no resource {RESOURCE}: start it with --resources {RESOURCE}=1"
                )
                continue
            self._looking[address] = self._submit(address), time.monotonic()
        return [machine for address in list(self._looking) if (machine := self._arrived(address))]

    def gather(self) -> list[Machine]:
        """Wait until there is a machine, and every one that is there has been looked at; ordered by name.

        Raises:
            FleetError: if there are machines and none of them can be measured on.
        """
        said = False
        self.update()
        while self._looking or not self.machines:
            if not self._looking and self.faults:
                raise FleetError("; ".join(f"{name}: {why}" for name, why in self.faults.items()))
            if not self._looking and not said:
                print("Waiting for a machine to join the cluster; Ctrl-C ends that.", file=sys.stderr)
                said = True
            time.sleep(0.2)
            self.update()
        return sorted(self.machines.values(), key=lambda machine: machine.name)

    def close(self) -> None:
        """Cancel what is under way."""
        self._client.cancel([future for future, _ in self._looking.values()])

    def look_again_without_ceilings(self) -> None:
        """From now on newcomers are only recognised, which takes less long."""
        self._asked = {**self._asked, "ceilings": False}

    def _submit(self, address: str) -> Future:
        return self._client.submit(
            self._look,
            dict(self._asked),
            key=f"pergrad-look-{uuid.uuid4().hex}",
            workers=[address],
            resources={RESOURCE: 1},
            priority=100,
            pure=False,
        )

    def _arrived(self, address: str) -> Machine | None:
        future, since = self._looking[address]
        if not future.done():
            if time.monotonic() - since > LOOK_S:
                self._refuse(address, address, f"it has not answered for {LOOK_S:.0f} s")
            return None
        if future.status != "finished":
            error = future.exception() if future.status == "error" else future.status
            self._refuse(
                address, address, f"pergrad cannot be run there ({type(error).__name__}: {error}); install it there too"
            )
            return None
        found = future.result()
        if "absent" in found:
            self._refuse(address, found["name"], found["absent"])
            return None
        del self._looking[address]
        self.machines[address] = Machine.from_json(address, found)
        return self.machines[address]

    def _refuse(self, address: str, name: str, why: str) -> None:
        self.faults[name] = why
        self._strangers.add(address)
        self._forget(address)

    def _forget(self, address: str) -> None:
        self.machines.pop(address, None)
        if address in self._looking:
            self._client.cancel([self._looking.pop(address)[0]])
