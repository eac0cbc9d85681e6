"""From the question of `pergrad advise` to its answer: the reference, the candidates, the race."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.advise import prior, race
from harness.advise.answer import Advice, advice
from harness.advise.prior import Model, PriorResult
from harness.advise.race import Question
from harness.analysis import compare
from harness.core import find_workloads, store
from harness.core.domain import device_and_gpu
from harness.core.find_strategies import Catalogue
from harness.core.plugins import PluginError
from harness.frameworks.child_process import ChildProcessFailed
from harness.reference import build, files, flops
from harness.system import detect, info, lock

NEWEST_RUNS = 5
"""How many earlier runs are read; older ones say little that these do not."""


def advise(
    catalogue: Catalogue,
    source: str,
    batch_size: int,
    quantity: str,
    dtype: str,
    until: float,
    results: Path,
    say: Callable[[str], None],
    device: str = "cpu",
    keep_results: bool = False,
) -> Advice:
    """Find the strategy to use.

    Args:
        source: the model, as `workloads.find` takes it.
        until: when the answer is due, on `time.monotonic()`; computing the reference is never cut short.
        results: the folder of earlier runs.
        say: told in a sentence what goes on.
        device: `cpu`, `gpu`, or one GPU, as `device_and_gpu` takes it.
        keep_results: whether strategies are left out whose result is valid until their next call only.

    Raises:
        DeviceAbsent: if no framework sees the device.
        PluginError: if there is no such model, or it has no reference.
        Busy: if a run is measuring on this machine.
    """
    workload = find_workloads.find(source)
    kind, gpu = device_and_gpu(device)
    if kind == "gpu":
        say("looking for a GPU")
        detect.require_gpu(detect.detect(workload.frameworks, None, gpu))
    try:
        with tempfile.TemporaryDirectory(prefix="pergrad-") as folder, lock.only_run(Path("advise")):
            say(f"computing the reference for {workload.name} at batch size {batch_size}")
            reference = Path(folder) / "reference.npz"
            build.write(reference, workload.source, batch_size, 0, dtype, [quantity], thorough=False)
            question = Question(
                name=workload.name,
                source=workload.source,
                frameworks=workload.frameworks,
                model=Model(_values(reference), flops.count(workload) if workload.through_ops else None),
                batch_size=batch_size,
                quantity=quantity,
                dtype=dtype,
                reference=str(reference),
                device=kind,
                gpu=gpu,
                through_ops=workload.through_ops,
            )
            found = race.candidates(catalogue, question, [*prior.bundled(), *own_prior_results(results, kind)])
            found = [entry for entry in found if not (keep_results and entry[0].reuses_output)]
            state = race.race(question, found, until, say)
    except ChildProcessFailed as error:
        raise PluginError(f"workload {workload.name} cannot be run here: {error}") from error
    return advice(state, catalogue.strategies, found)


def _values(reference: Path) -> int:
    """How many values one row has, read from the reference: a process that imports the framework would take seconds."""
    return sum(math.prod(value.shape[1:]) for value in files.load(reference)[0].rows.values())


def own_prior_results(results: Path, device: str = "cpu") -> list[PriorResult]:
    """What this machine's newest runs tell of a device; a run that cannot be read tells nothing."""
    here = info.describe()
    found: list[PriorResult] = []
    for path in store.runs(results)[-NEWEST_RUNS:]:
        with contextlib.suppress(store.StoreError):
            run = store.load(path)
            if not compare.machine_differences(here, run.info.get("machine") or {}):
                found += prior.of_runs([run], device)
    return found
