"""A cluster for tests: a scheduler and machines that are processes here, each of which may be killed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

ROOT = Path(__file__).parent.parent

Process = subprocess.Popen[str]


class Cluster:
    """A scheduler and its machines; use as a context manager, which ends what is left of them.

    Attributes:
        machines: name -> the Dask worker that pretends to be it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.machines: dict[str, Process] = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    def __enter__(self) -> Cluster:
        self.start_scheduler()
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.machines.values(), self.scheduler]:
            end(process)

    def start_scheduler(self) -> None:
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler",
            *("--host", self.address, "--no-dashboard", "--no-show"),
            DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="2",
            DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="5s",
        )

    def start(self, name: str, processor: str = "Pretended 1", **versions: str) -> Process:
        """Start a machine: with its own lock, so that machines of one host measure at the same time."""
        claims: dict[str, Any] = {"machine": {"processor": processor}, "versions": versions}
        self.machines[name] = self._start(
            *("tests.pretend_machine", self.address, name, json.dumps(claims)),
            PERGRAD_LOCK=str(self.folder / f"{name}.lock"),
            DASK_TEMPORARY_DIRECTORY=str(self.folder / name),
        )
        return self.machines[name]

    def wait_for_machines(self) -> None:
        """Until all machines that were started have joined."""
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.machines), timeout=300)

    def _start(self, module: str, *arguments: str, **variables: str) -> Process:
        log = (self.folder / f"{module}-{time.monotonic_ns()}.log").open("w")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env={**environment, **variables},
            text=True,
        )


def end(process: Process) -> None:
    """Kill a process, stopped or not, and what it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


def measuring(machine: Process) -> list[psutil.Process]:
    """The strategies' workers of a machine."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [p for p in psutil.Process(machine.pid).children() if is_worker(p)]
    return []


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "harness.measure.worker" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    return False


def wait_for(condition: Callable[[], bool], limit_s: float = 300) -> None:
    end_s = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.02)
    assert condition()
