"""From the question of `pergrad advise` to its answer: the truth, the candidates, the contest."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import compare, contest, experience, lock, machine, reference, store, workloads
from harness.advice import Advice, advice
from harness.contest import Question
from harness.experience import Memory, Model
from harness.facts import facts
from harness.isolated import IsolatedError
from harness.strategies import Catalogue, PluginError

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
) -> Advice:
    """Find the strategy to use.

    Args:
        source: the model, as `workloads.find` takes it.
        until: when the answer is due, on `time.monotonic()`; computing the truth is never cut short.
        results: the folder of earlier runs.
        say: told in a sentence what goes on.

    Raises:
        PluginError: if there is no such model, or it has no truth.
        Busy: if a run is measuring on this machine.
    """
    workload = workloads.find(source)
    try:
        known = facts(workload)
        with tempfile.TemporaryDirectory(prefix="pergrad-") as folder, lock.only_run(Path("advise")):
            say(f"computing the truth about {workload.name} at batch size {batch_size}")
            truth = Path(folder) / "truth.npz"
            reference.write(truth, workload.source, batch_size, 0, dtype, [quantity], thorough=False)
            question = Question(
                name=workload.name,
                source=workload.source,
                frameworks=workload.frameworks,
                model=Model(known.parameter_count, known.flops),
                batch_size=batch_size,
                quantity=quantity,
                dtype=dtype,
                truth=str(truth),
            )
            found = contest.candidates(catalogue, question, [*experience.packaged(), *own_memories(results)])
            state = contest.contest(question, found, until, say)
    except IsolatedError as error:
        raise PluginError(f"workload {workload.name} cannot be run here: {error}") from error
    return advice(state, catalogue.strategies, found)


def own_memories(results: Path) -> list[Memory]:
    """What this machine's newest runs tell; a run that cannot be read tells nothing."""
    here = machine.describe()
    found: list[Memory] = []
    for path in store.runs(results)[-NEWEST_RUNS:]:
        with contextlib.suppress(store.StoreError):
            run = store.load(path)
            if not compare.machine_differences(here, run.info.get("machine") or {}):
                found += experience.of_runs([run])
    return found
