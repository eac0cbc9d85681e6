"""Runs a plan: heat after heat, every row on disk before the next heat begins."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.analysis import predict
from harness.frameworks import child_process
from harness.reference import build
from harness.runner import one_heat, plan
from harness.runner.ledger import Ledger
from harness.runner.one_heat import Workers
from harness.runner.plan import Plan
from harness.system import gpu
from harness.system.info import available_bytes
from harness.system.interference import UsualTime

GPU_WORKER_BYTES = 3 << 29
"""Memory of a GPU that a worker takes: CUDA's context, the libraries' workspaces, and the results of a case."""

WORKER_BYTES = 600 << 20
"""What a worker takes that waits for its turn: its framework, its parameters and batches, what it keeps."""


def sweep(ledger: Ledger) -> None:
    """Measure whatever the ledger's folder does not hold yet.

    Whatever ends the sweep, Ctrl-C and a full disk included, leaves a run folder that can be read.
    """
    ledger.open()
    state = "interrupted"
    try:
        with tempfile.TemporaryDirectory(prefix="pergrad-") as scratch:
            usual = UsualTime()
            references = _write_references(ledger, Path(scratch))
            for group in plan.groups(ledger.wanted, ledger.chosen, references, most_workers(ledger.wanted)):
                heat_number = ledger.next_heat()
                with Workers() as workers:
                    for number in range(len(group.heats)):
                        if heat := ledger.heat(group, number):
                            for row in one_heat.measure(heat, workers, usual):
                                ledger.keep(replace(row, heat=heat_number))
        state = "complete"
    finally:
        ledger.close(state)


def _write_references(ledger: Ledger, folder: Path) -> dict[str, dict[int, str]]:
    """Compute the reference for every batch once, into files that all workers read: workload -> size -> file.

    A workload without a reference (its instances are coupled, its gradient is not finite, its framework fails) is
    remembered with the reason, for that batch size.
    """
    wanted = ledger.wanted
    quantities = quantities_of(ledger)
    references: dict[str, dict[int, str]] = {}
    for name in wanted.workloads:
        paths = {size: folder / f"{name}-{size}.npz" for size in sizes_with_reference(ledger, name)}
        without = build.write_or_say_why_not(paths, wanted.source(name), wanted.seed, wanted.dtype, quantities)
        ledger.without_reference |= {(name, size): why_not for size, why_not in without.items()}
        references[name] = {size: str(path) for size, path in paths.items() if path.exists()}
    return references


def quantities_of(ledger: Ledger) -> list[str]:
    """What the reference is asked about."""
    return sorted({strategy.quantity for strategy in ledger.chosen})


def sizes_with_reference(ledger: Ledger, workload: str) -> list[int]:
    """The batch sizes for which a reference is computed: none where a result would be too large to be measured."""
    sizes = sorted(ledger.wanted.batch_sizes)
    if quantities_of(ledger) != ["gradients"]:
        return sizes
    row_bytes = ledger.facts[workload].gradient_bytes(ledger.wanted.dtype)
    return [size for size in sizes if not predict.too_large(row_bytes, size)]


def most_workers(wanted: Plan) -> int:
    """How many workers may stand ready at the same time: the free memory, and the GPU's, holds more by a third."""
    count = available_bytes() * 3 // 4 // WORKER_BYTES
    if "gpu" in wanted.devices:
        card = gpu.card(child_process.visible("gpu", wanted.gpu, os.environ))
        if card and card.free_bytes is not None:
            count = min(count, card.free_bytes * 3 // 4 // GPU_WORKER_BYTES)
    return max(2, count)
