"""What earlier runs let us expect of a strategy on a model that has not been measured yet.

A strategy's time relative to the fastest of its kind is remembered for every workload and batch size. For a new
model these ratios are averaged, with more weight for workloads that resemble it in the number of parameters and in
the arithmetic per parameter, and for batch sizes near the one asked for. `experience.json` holds the ratios of a run
of everything and travels with pergrad; a machine's own runs are added to it.

To make the file anew: `python -m harness.advise.prior RUN [RUN ...] > harness/advise/prior.json`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis import panels
from harness.core import store
from harness.core.store import Run

FILE = Path(__file__).with_name("prior.json")


@dataclass(frozen=True)
class Model:
    """What is known of a model before it is measured: values in a row of gradients, flops of an instance."""

    parameters: int
    flops: int | None

    def distance(self, other: Model) -> float:
        """How little two models resemble each other, in natural logarithms of what they are known by."""
        size = abs(math.log(self.parameters / other.parameters))
        if not self.flops or not other.flops:
            return size
        return size + abs(math.log(self.flops / self.parameters) - math.log(other.flops / other.parameters))


@dataclass(frozen=True)
class PriorResult:
    """One strategy in one case of an earlier run; `ratio` is its time over that of the fastest of its quantity."""

    strategy: str
    quantity: str
    parameters: int
    flops: int | None
    batch_size: int
    ratio: float


def bundled() -> list[PriorResult]:
    """What travels with pergrad."""
    return [
        PriorResult(strategy, case["quantity"], case["parameters"], case["flops"], case["batch_size"], ratio)
        for case in json.loads(FILE.read_text(encoding="utf-8"))
        for strategy, ratio in case["ratios"].items()
    ]


def grouped(prior_results: Iterable[PriorResult]) -> list[dict[str, Any]]:
    """The same as `FILE` holds it: strategies by what they have in common. Of two of a kind the later one stays."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for memory in prior_results:
        case = (memory.quantity, memory.parameters, memory.flops, memory.batch_size)
        found.setdefault(case, {})[memory.strategy] = memory.ratio
    names = ("quantity", "parameters", "flops", "batch_size")
    return [{**dict(zip(names, case, strict=True)), "ratios": ratios} for case, ratios in found.items()]


def of_runs(runs: Iterable[Run], device: str = "cpu") -> list[PriorResult]:
    """What these runs tell of a kind of device."""
    found = []
    for run in runs:
        models = {
            entry["name"]: Model(entry["parameter_count"], entry.get("flops_per_instance"))
            for entry in run.info.get("workloads", ())
        }
        for panel in panels.panels([run]):
            model = models.get(panel.conditions.workload)
            if model is None or panel.conditions.device != device:
                continue
            for size in panel.timed_sizes:
                lines = panel.at(size)
                found += [
                    PriorResult(
                        strategy=str(line.strategy),
                        quantity=panel.conditions.quantity,
                        parameters=model.parameters,
                        flops=model.flops,
                        batch_size=size,
                        ratio=round(float(line.time_s) / float(lines[0].time_s), 3),
                    )
                    for line in lines
                ]
    return found


def expected_ratio(prior_results: Sequence[PriorResult], strategy: str, model: Model, batch_size: int) -> float | None:
    """The time to expect of a strategy over that of the fastest; None if it is in no earlier run."""
    weighted = [
        (math.exp(-model.distance(Model(m.parameters, m.flops)) - abs(math.log(batch_size / m.batch_size))), m.ratio)
        for m in prior_results
        if m.strategy == strategy
    ]
    total = sum(weight for weight, _ in weighted)
    return math.exp(sum(weight * math.log(ratio) for weight, ratio in weighted) / total) if total else None


if __name__ == "__main__":
    print(json.dumps(grouped(of_runs(store.load(Path(given)) for given in sys.argv[1:])), indent=1))
