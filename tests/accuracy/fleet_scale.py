"""What does a fleet cost by itself? Simulated machines, heats that only wait: seconds per heat, memory of the client.

Run as `python -m tests.accuracy.fleet_scale MACHINES HEATS [MACHINES HEATS ...]`, such as `... 500 20000`. Scheduler,
client and all simulated machines share this process's cores, so that figures are upper bounds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, Worker, get_worker

from harness.core import find_strategies, store
from harness.core.records import Status
from harness.fleet import kinds, members
from harness.fleet.dispatch import Dispatch
from harness.fleet.machine import name_of, topic
from harness.fleet.team import Team
from harness.runner.ledger import Ledger
from harness.runner.look import Look
from harness.runner.one_heat import Heat
from harness.runner.plan import Plan

HEAT_S = 2.0
"""What a simulated heat waits; real ones take from ten seconds to some minutes."""

SIZES = tuple(range(1, 21))
"""Batch sizes, each of which has a reference of its own."""

REFERENCE_BYTES = 1 << 20

CARD = {
    "processor": "simulated",
    "architecture": "x86_64",
    "cores_physical": 2,
    "cores_logical": 2,
    "cores_available": 2,
    "memory_bytes": 8 << 30,
    "gpus": None,
    "python": "3.11",
}
SEEN = {"status": "ok", "reason": "", "devices": [{"kind": "cpu", "name": "cpu"}], "threads": {}, "missing": {}}
STRATEGY = "numpy/autograd-loop"


def look(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Takes the place of `harness.fleet.machine.look`."""
    found = Look(("cpu",), CARD, (), {}, {}, {"numpy": SEEN}, {})
    described = {"pergrad": "simulated", "look": found.as_json(), "findings": [], "most_workers": 9, "cores": [0, 1]}
    return {"name": name_of(get_worker()), **described}


def reference(*_: Any) -> dict[str, Any]:
    """Takes the place of `harness.fleet.machine.reference`."""
    return {"file": bytes(REFERENCE_BYTES)}


def measure(run: str, number: str, described: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    """Takes the place of `harness.fleet.machine.measure`: says that it begins, waits, and has a row per task."""
    worker = get_worker()
    name = name_of(worker)
    worker.log_event(topic(run), {"heat": number, "machine": name, "address": str(worker.address)})
    time.sleep(HEAT_S)
    heat = Heat.from_json(described)
    return {"machine": name, "rows": [task.row(task.batch_sizes[0], Status.OK).as_json() for task in heat.tasks]}


@dataclass(frozen=True)
class Cost:
    """What a fleet of that size took."""

    machines: int
    heats: int
    looked_at_s: float
    measured_s: float
    ideal_s: float
    overhead_per_heat_ms: float
    client_mib: float
    scheduler_mib: float


def ideal_s(machines: int, heats: int) -> float:
    """What the heats take where nothing but waiting takes time."""
    return -(-heats // machines) * HEAT_S


def cost(machines: int, heats: int) -> Cost:
    """Have simulated machines measure a plan with that many heats, a multiple of 20."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, address = Path(scratch) / "run", Path(scratch) / "scheduler.json"
        port = ("--no-dashboard", "--port", "0", "--scheduler-file", str(address))
        scheduler = _quietly("distributed.cli.dask_scheduler", *port)
        others = _quietly("tests.accuracy.fleet_scale", "serve", str(address), str(machines))
        try:
            while not address.exists():
                time.sleep(0.1)
            with Client(scheduler_file=str(address), set_as_default=False) as client:
                client.wait_for_workers(machines)
                return _measured(client, scheduler.pid, folder, machines, heats)
        finally:
            others.kill()
            scheduler.kill()


def _quietly(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)


def _measured(client: Client, scheduler: int, folder: Path, machines: int, heats: int) -> Cost:
    wanted = Plan(("policy",), (STRATEGY,), ("cpu",), batch_sizes=SIZES, passes=heats // len(SIZES), baseline=STRATEGY)
    store.create(folder, {"ceilings": {}, "plan": asdict(wanted), "state": "running"})
    started = time.monotonic()
    there = members.Members(client, {}, look)
    (kind,) = kinds.kinds(there.gather())
    looked = time.monotonic()
    chosen = [find_strategies.discover().find(STRATEGY)]
    ledger = Ledger(wanted, chosen, {"numpy": SEEN}, folder, lambda row: None)
    ledger.open()
    most, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(1):
            most[0] = max(most[0], psutil.Process().memory_info().rss / (1 << 20))

    threading.Thread(target=watch, daemon=True).start()
    began = time.monotonic()
    Dispatch(client, there, [Team(ledger, kind)], lambda text: None, measure, reference).run()
    took = time.monotonic() - began
    ended.set()
    rows = store.load(folder).rows
    assert len({(row.batch_size, row.pass_number) for row in rows}) == len(rows) == heats
    ideal = ideal_s(machines, heats)
    memory = psutil.Process(scheduler).memory_info().rss / (1 << 20)
    overhead = 1e3 * (took - ideal) / heats
    return Cost(machines, heats, looked - started, took, ideal, overhead, most[0], memory)


async def serve(address: str, count: int) -> None:
    """Be that many machines, in one process."""
    settings = {"distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "60s"}
    with dask.config.set(settings):
        for start in range(0, count, 50):
            await asyncio.gather(*(_worker(address, number) for number in range(start, min(count, start + 50))))
        await asyncio.Event().wait()


_kept: list[Worker] = []


async def _worker(address: str, number: int) -> None:
    resources = {"pergrad": 1}
    worker = Worker(
        scheduler_file=address, name=f"m{number}", nthreads=1, resources=resources, memory_limit=0, dashboard=False
    )
    _kept.append(await worker)


def main() -> None:
    """Print one line of JSON per fleet."""
    if sys.argv[1] == "serve":
        address = Path(sys.argv[2])
        while not address.exists():
            time.sleep(0.1)
        asyncio.run(serve(str(address), int(sys.argv[3])))
        return
    sizes = [int(word) for word in sys.argv[1:]]
    for machines, heats in zip(sizes[::2], sizes[1::2], strict=True):
        print(json.dumps(asdict(cost(machines, heats))), flush=True)


if __name__ == "__main__":
    main()
