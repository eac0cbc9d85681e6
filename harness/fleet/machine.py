"""What a machine of a fleet does, in Dask's worker: it looks at itself, computes references, measures heats.

Dask's process only supervises. Frameworks are imported in the same spawned workers as on one machine, and the machine's
lock is held meanwhile, so that two Dask workers of one machine take turns. What has been started is killed as soon as
nobody wants it any more: the client has cancelled it or is gone, or the scheduler is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Worker, get_worker
from distributed.core import Status as DaskStatus

from harness.core.domain import usable_cores
from harness.core.records import Status
from harness.core.task import Task
from harness.fleet import files
from harness.frameworks import DeviceAbsent, child_process
from harness.reference import build
from harness.runner import execute, one_heat
from harness.runner.look import look as look_here
from harness.runner.one_heat import Heat, Workers
from harness.runner.plan import Plan, cores_for
from harness.system import diagnostics, doctor, lock
from harness.system.gpu import cards
from harness.system.interference import UsualTime

IDLE_S = 20.0
"""How long workers stand ready for another heat of their group, and files for another of their run."""

POLL_S = 0.2
"""How often it is asked whether a task is still wanted, and whether the machine is free."""


class Unwanted(Exception):
    """Nobody waits for this any more."""


def look(asked: Mapping[str, Any]) -> dict[str, Any]:
    """This machine: its name, what `harness.runner.look` finds, what disturbs it, how many workers it can hold.

    Args:
        asked: the arguments of `harness.runner.look.look` by name.
    """
    worker = get_worker()
    forget_limits_of_the_nanny(worker)
    with _alone(worker):
        watched = doctor.watch()
        try:
            found = look_here(
                **{name: asked[name] for name in ("names", "asked", "gpu", "threads", "dtype", "ceilings")}
            )
        except DeviceAbsent as error:
            return {"name": name_of(worker), "absent": str(error)}
        seen = found.frameworks
        findings = (
            *diagnostics.installed(seen, found.versions),
            *diagnostics.gpus(cards(), seen),
            *doctor.surroundings(watched, found.machine),
        )
        wanted = Plan((), (), found.devices, gpu=asked["gpu"])
        return {
            "name": name_of(worker),
            "pergrad": files.version(),
            "look": found.as_json(),
            "findings": [asdict(finding) for finding in findings],
            "most_workers": execute.most_workers(wanted),
            "cores": usable_cores(),
        }


def adopt(kind: str) -> str:
    """Have this machine take heats that are for machines of a kind; its address."""
    worker = get_worker()
    asyncio.run_coroutine_threadsafe(worker.set_resources(**{kind: 1}), worker.loop.asyncio_loop).result(60)
    return str(worker.address)


def reference(
    run: str, source: str, size: int, seed: int, dtype: str, quantities: Sequence[str], carried: Mapping[str, bytes]
) -> dict[str, Any]:
    """The reference for one batch size: the bytes of its file, or status and reason of the cases that have none.

    Args:
        run: whose folder on this machine takes the files.
        source: what `find_workloads.find` takes, with `files.TRAVELLING` before a file that was carried here.
        carried: what `files.pack` made.
    """
    worker = get_worker()
    forget_limits_of_the_nanny(worker)
    with _alone(worker) as still_wanted, _folder(worker, run) as folder:
        files.unpack(carried, folder)
        path = folder / f"reference-{os.getpid()}.npz"
        target = "harness.fleet.machine:write_reference"
        arguments = (str(path), files.here(source, folder), size, seed, dtype, list(quantities))
        try:
            why_not = child_process.call(target, *arguments, framework="numpy", dtype=dtype, limit_s=2 * build.LIMIT_S)
        except child_process.ChildProcessFailed as error:
            still_wanted()
            why_not = [Status.UNSUPPORTED.value, str(error)]
        if why_not:
            return {"refused": why_not}
        written = path.read_bytes()
        path.unlink()
        return {"file": written}


def write_reference(
    path: str, source: str, size: int, seed: int, dtype: str, quantities: Sequence[str]
) -> list[str] | None:
    """Write a reference in this process; status and reason of the cases if there is none."""
    refused = build.write_or_say_why_not({size: Path(path)}, source, seed, dtype, quantities)
    return [str(refused[size][0].value), refused[size][1]] if refused else None


def measure(
    run: str, number: int, described: Mapping[str, Any], reference: Mapping[str, Any], carried: Mapping[str, bytes]
) -> dict[str, Any]:
    """Measure one heat: the machine's name, and its rows as JSON.

    Args:
        run: whose files and workers they are.
        number: the heat, as the client counts them.
        described: a `Heat` as JSON, as `files.travelling` left it.
        reference: what `reference` returned for its batch.
        carried: what `files.pack` made.
    """
    worker = get_worker()
    name = name_of(worker)
    worker.log_event(topic(run), {"heat": number, "machine": name, "address": str(worker.address)})
    forget_limits_of_the_nanny(worker)
    heat = Heat.from_json(described)
    if "refused" in reference:
        status, reason = reference["refused"]
        rows = [task.row(task.batch_sizes[0], Status(status), reason) for task in heat.tasks]
        return {"machine": name, "rows": [row.as_json() for row in rows]}
    with _alone(worker) as still_wanted, _folder(worker, run) as folder:
        files.unpack(carried, folder)
        path = folder / f"{heat.tasks[0].workload}-{heat.tasks[0].batch_sizes[0]}.npz"
        if not path.exists():
            path.write_bytes(reference["file"])
        heat = replace(heat, tasks=tuple(_here(task, folder, path) for task in heat.tasks))
        workers, usual = _standing.take((run, heat.group))
        rows = []
        try:
            for row in one_heat.measure(heat, workers, usual):
                still_wanted()
                rows.append(row)
        except BaseException:
            _standing.dismiss()
            raise
        return {"machine": name, "rows": [row.as_json() for row in rows]}


def topic(run: str) -> str:
    """Under what Dask's events say which machine has begun which heat of a run."""
    return f"pergrad-{run}"


def name_of(worker: Worker) -> str:
    """The host's name, with that of the Dask worker where somebody gave it one."""
    own = str(worker.name)
    return socket.gethostname() if "://" in own else f"{socket.gethostname()}/{own}"


def forget_limits_of_the_nanny(worker: Worker) -> None:
    """Take back the variables that Dask's nanny sets for its worker, such as OMP_NUM_THREADS=1.

    What is measured would inherit them. The environment that the nanny itself was started with is what its user meant.
    """
    if not worker.nanny:
        return
    try:
        given = psutil.Process(os.getppid()).environ()
    except psutil.Error:
        given = {}
    for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items():
        if os.environ.get(name) == str(value) != given.get(name):
            os.environ.pop(name)
            os.environ |= {name: given[name]} if name in given else {}


def _here(task: Task, folder: Path, reference: Path) -> Task:
    """The task with the paths of this machine, bound to as many of its cores as it has threads."""
    return replace(
        task,
        plugin=files.here(task.plugin, folder),
        source=files.here(task.source, folder),
        references={task.batch_sizes[0]: str(reference)},
        cpus=task.cpus or cores_for(task.threads),
    )


class Standing:
    """The workers of the group that was measured last, until another comes or none for a while."""

    def __init__(self) -> None:
        self._group: tuple[str, str] | None = None
        self._workers = Workers()
        self._usual: UsualTime | None = None

    def take(self, group: tuple[str, str]) -> tuple[Workers, UsualTime]:
        """The workers of that group, those of another one being ended; and this machine's usual time."""
        if group != self._group:
            self.dismiss()
            self._group, self._workers = group, Workers()
        self._usual = self._usual or UsualTime()
        return self._workers, self._usual

    def dismiss(self) -> None:
        """End them."""
        self._workers.kill()
        self._group = None


_standing = Standing()
_idle: dict[str, threading.Timer] = {}


@contextlib.contextmanager
def _folder(worker: Worker, run: str) -> Iterator[Path]:
    """The run's folder on this machine; it goes, as the workers do, when there was nothing to do for a while.

    It lies in Dask's own folder, which goes with Dask's worker.
    """
    for timer in list(_idle.values()):
        timer.cancel()
    _idle.clear()
    folder = Path(worker.local_directory) / f"pergrad-{run}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:

        def leave() -> None:
            _standing.dismiss()
            shutil.rmtree(folder, ignore_errors=True)

        _idle[run] = threading.Timer(IDLE_S, leave)
        _idle[run].daemon = True
        _idle[run].start()


@contextlib.contextmanager
def _alone(worker: Worker) -> Iterator[Callable[[], None]]:
    """Hold the machine's lock for the task that runs in this thread; yields what raises if it is not wanted any more.

    Raises:
        Unwanted: if nobody waits for the task any more.
    """
    key, ended = worker.get_current_task(), threading.Event()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        running = worker.status in (DaskStatus.running, DaskStatus.paused)
        return running and task is not None and task.state != "cancelled"

    def still_wanted() -> None:
        if not wanted():
            raise Unwanted(f"{key} is not wanted any more")

    def watch() -> None:
        while not ended.wait(POLL_S):
            if not wanted():
                _kill_ours()

    with contextlib.ExitStack() as held:
        while True:
            still_wanted()
            try:
                held.enter_context(lock.only_run(Path(worker.local_directory)))
                break
            except lock.Busy as busy:
                if isinstance(busy.__cause__, OSError):
                    raise
                time.sleep(POLL_S)
        threading.Thread(target=watch, daemon=True).start()
        try:
            yield still_wanted
        finally:
            ended.set()


def _kill_ours() -> None:
    """Kill the processes of pergrad that this one has started, whatever they are at."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(argument.startswith("harness.") for argument in child.cmdline()):
                child.kill()
