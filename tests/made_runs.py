"""Made-up runs on disk, for the tests of the reading half: a normal one, one of everything and the ugliest one.

They are written through `harness.core.store`, as a sweep does. The times follow what was measured once on two cores,
with noise from a fixed seed, so every call makes the same run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import store
from harness.core.records import Mark, MarkKind, Measurement, Status

BATCH_SIZES = (1, 4, 16, 64, 256)

MICROSECONDS: Mapping[str, tuple[float | None, ...]] = {
    "tf1/session-loop": (519, 2060, 10202, 36100, 137643),
    "tf1/concurrent-sessions": (749, 2300, 10204, 40800, 163371),
    "tf1/unstack": (466, 1240, 3851, 12900, None),
    "tf2/jacobian": (501, 560, 826, 1710, 4992),
    "tf2/vectorized-map": (524, 510, 483, 540, 699),
    "jax/vmap": (74, 92, 101, 84, 72),
    "torch/func-vmap": (2146, 1900, 1628, 1500, 1332),
}
"""Time per call at each of `BATCH_SIZES`; None is a case that was skipped."""

BASELINE = "tf1/session-loop"

BUILD_S = {"tf1/unstack": (0.05, 0.12, 0.7, 7.0, None)}

CODE = '''"""Per-instance gradients with {name}."""

from harness import strategy


@strategy(framework="{framework}", source="{source}")
def {function}(problem):
    """{summary}"""
    import numpy as np  # inside, so that listing strategies loads nothing

    gradients = np.stack([problem.gradient(i) for i in range(problem.batch_size)])
    return lambda batch: gradients(problem.parameters, batch)
'''

HOSTILE = "<script>alert('pergrad')</script><img src=x onerror=alert(1)>\"'&amp;{{ 7*7 }}$\\frac{}$"


def normal(folder: Path, passes: int = 3, rounds: int = 40) -> Path:
    """Seven strategies on `policy` at five batch sizes; `tf1/unstack` is skipped at B=256."""
    store.create(folder, info(list(MICROSECONDS), passes=passes))
    rng = np.random.default_rng(0)
    for number in range(1, passes + 1):
        for strategy, times in MICROSECONDS.items():
            for position, batch_size in enumerate(BATCH_SIZES):
                microseconds = times[position]
                build = BUILD_S.get(strategy, (0.04,) * 5)[position]
                if microseconds is None:
                    reason = "B=64 took 8.1 s to build; 256 would pass the limit of 60 s"
                    row = failed(strategy, batch_size, number, Status.SKIPPED, reason)
                else:
                    row = ok(strategy, batch_size, number, noisy(rng, microseconds, rounds), build_s=build)
                store.append(folder, row)
    return folder


def two_devices(folder: Path) -> Path:
    """The same strategies on the CPU and on a GPU, where another one leads; one framework says why it sees none."""
    told = info(list(MICROSECONDS), passes=1)
    told["plan"]["devices"] = ["cpu", "gpu"]
    told["frameworks"]["torch"]["missing"] = {"gpu": "The NVIDIA driver on your system is too old"}
    store.create(folder, told)
    rng = np.random.default_rng(0)
    for device, leader in (("cpu", "jax/vmap"), ("gpu", "torch/func-vmap")):
        for strategy in ("tf1/session-loop", "jax/vmap", "torch/func-vmap"):
            microseconds = 10.0 if strategy == leader else 1000.0
            row = ok(strategy, 64, 1, noisy(rng, microseconds, 20), device=device)
            store.append(folder, row)
    return folder


def quantities(folder: Path) -> Path:
    """One workload with all four quantities, two allocators, ceilings, and a case marked as unstable."""
    given = {
        "gradients": {BASELINE: 137_643, "jax/vmap": 72, "torch/func-vmap": 1332},
        "weighted_sum": {"jax/batch-gradient": 30, "torch/batch-gradient": 180},
        "norms": {"torch/ghost-norms": 400},
        "clipped_sum": {"torch/ghost-clipping": 700},
    }
    names = [name for some in given.values() for name in some]
    values = info(names)
    values["ceilings"] = {"cpu": {"fill_reused": 1.9e10, "fill_fresh": 1.7e9, "flops": 6.1e10}}
    values["environment"] = {"OMP_NUM_THREADS": "2"}
    values["plan"] |= {"allocators": ["default", "reuse"]}
    store.create(folder, values)
    rng = np.random.default_rng(3)
    for quantity, times in given.items():
        for name, microseconds in times.items():
            for batch_size in (16, 256):
                for allocator, factor in (("default", 1.0), ("reuse", 0.5)):
                    time = factor * microseconds * (batch_size / 256) ** 0.5
                    rows = 180 * (batch_size if quantity == "gradients" else 1)
                    changes = {"quantity": quantity, "allocator": allocator, "output_bytes": rows, "floor_s": 1e-5}
                    if name == "jax/vmap" and batch_size == 16:
                        changes |= {
                            "marks": (Mark(MarkKind.UNSTABLE, "unstable: the machine was disturbed"),),
                            "retraces": 2,
                        }
                    store.append(folder, ok(name, batch_size, 1, noisy(rng, time, 30), **changes))
    return folder


def ugly(folder: Path) -> Path:
    """Everything that can go wrong with a run, in one run."""
    names = [f"odd/strategy-{number}" for number in range(34)] + [HOSTILE]
    entries = [entry(name) for name in names]
    entries[-1] |= {"summary": HOSTILE, "docstring": HOSTILE, "code": HOSTILE, "source": "javascript:alert(1)"}
    values = info(names, baseline="odd/strategy-0", strategies=[*entries, None, 7])
    values |= {"machine": {HOSTILE: HOSTILE}, "command": HOSTILE, "state": "interrupted", "finished": None}
    values["frameworks"] = {HOSTILE: {"status": "unavailable", "reason": HOSTILE}, "jax": None}
    values["unavailable"] = [{"name": HOSTILE, "reason": HOSTILE}]
    store.create(folder, values)
    for row in _ugly_rows(names):
        store.append(folder, row)
    return folder


def _ugly_rows(names: Sequence[str]) -> Iterable[Measurement]:
    rng = np.random.default_rng(1)
    for number, name in enumerate(names):  # 35 lines that all end at nearly the same height
        for batch_size in (1, 16, 256):
            yield ok(name, batch_size, 1, noisy(rng, 1000 + number, 5), framework=name.split("/")[0])
    for number, status in enumerate(Status):  # a workload on which nothing is ok
        if status is not Status.OK:
            yield failed(f"odd/strategy-{number}", 16, 1, status, HOSTILE * 3, workload="hopeless", detail="E " * 50000)
    yield ok("odd/strategy-0", 1, 1, [1500], workload="single")  # one sample only
    yield ok("odd/strategy-1", 1, 1, [1400], workload="single")
    yield ok("odd/strategy-0", 0, 1, [900, 901], workload="empty batch")  # B = 0 meets a log axis
    yield ok("odd/strategy-0", 4, 1, [], workload="nothing timed")  # ok, but without any sample
    yield ok("odd/strategy-0", 4, 1, [0, -5], workload="no time at all")
    yield ok("odd/strategy-0", 4, 1, [10**14], workload="slow", build_s=0.0, first_call_s=None, digits=None)
    yield ok(
        HOSTILE,
        4,
        1,
        [900, 950],
        workload=HOSTILE,
        marks=(Mark(MarkKind.SLOW_FALLBACK, HOSTILE),),
        facts={HOSTILE: HOSTILE},
    )


def empty(folder: Path) -> Path:
    """A run that was stopped before its first row, with nothing but a schema in `run.json`."""
    store.create(folder, {})
    return folder


def large(folder: Path, rows: int = 10_000, rounds: int = 300) -> Path:
    """`rows` rows with `rounds` samples each, written at once because forcing each to disk takes minutes."""
    names = [f"framework{number % 5}/strategy-{number}" for number in range(35)]
    store.create(folder, info(names, baseline=names[0]))
    rng = np.random.default_rng(2)
    made = (
        ok(names[number % 35], 2 ** (number // 35 % 6), 1 + number // 210 % 3, noisy(rng, 500 + number % 35, rounds))
        for number in range(rows)
    )
    renamed = (as_line(row, workload=f"workload-{number // 630}") for number, row in enumerate(made))
    (folder / store.ROWS_FILE).write_text("".join(renamed), encoding="utf-8")
    return folder


def as_line(row: Measurement, **changes: Any) -> str:
    """The row as one line of the file."""
    return json.dumps(row.as_json() | changes) + "\n"


def noisy(rng: np.random.Generator, microseconds: float, rounds: int) -> list[int]:
    """Right-skewed times in nanoseconds with a factor for the whole pass, as real ones have."""
    of_pass = rng.lognormal(0, 0.02)
    return [int(time) for time in microseconds * 1000 * of_pass * rng.lognormal(0, 0.05, rounds)]


def ok(strategy: str, batch_size: int, number: int, samples_ns: Sequence[int], **changes: Any) -> Measurement:
    """A row of a case that went well."""
    values: dict[str, Any] = {
        "workload": "policy",
        "strategy": strategy,
        "framework": strategy.split("/")[0],
        "quantity": "gradients",
        "device": "cpu",
        "dtype": "float32",
        "batch_size": batch_size,
        "pass_number": number,
        "status": Status.OK,
        "import_s": 2.1,
        "build_s": 0.04,
        "first_call_s": 0.3,
        "fetch_s": 2e-5,
        "case_s": 1.5,
        "samples_ns": tuple(samples_ns),
        "median_s": float(np.median(samples_ns)) * 1e-9 if samples_ns else None,
        "warmup_calls": 3,
        "stopping_rule": "time",
        "max_relative_error": 3e-7,
        "digits": 6.5,
        "worst_parameter": "hidden1.weight",
        "worst_instance": 0,
        "rows_checked": batch_size,
        "peak_bytes": 5_000_000,
        "output_bytes": 180 * batch_size,
        "minor_faults": 0.2,
        "cores_busy": 1.0,
        "system_share": 0.02,
        "device_name": "CPU",
        "started": "2026-12-01T04:05:00Z",
    }
    return Measurement(**(values | changes))


def failed(strategy: str, batch_size: int, number: int, status: Status, reason: str, **changes: Any) -> Measurement:
    """A row of a case that has no time."""
    values: dict[str, Any] = {
        "workload": "policy",
        "strategy": strategy,
        "framework": strategy.split("/")[0],
        "quantity": "gradients",
        "device": "cpu",
        "dtype": "float32",
        "batch_size": batch_size,
        "pass_number": number,
        "status": status,
        "reason": reason,
    }
    return Measurement(**(values | changes))


def entry(name: str) -> dict[str, Any]:
    """What `run.json` says about one strategy."""
    framework, _, rest = name.partition("/")
    function = rest.replace("-", "_") or "unnamed"
    summary = f"Differentiate one instance at a time with {name}."
    source = "JAX documentation, advanced autodiff: https://docs.jax.dev/en/latest/advanced-autodiff.html"
    return {
        "name": name,
        "framework": framework,
        "quantity": "gradients",
        "summary": summary,
        "docstring": f"{summary}\n\nThe batch is a Python loop, so every instance pays the overhead of one call.\n",
        "source": source,
        "code": CODE.format(name=name, framework=framework, function=function, summary=summary, source="docs"),
        "path": f"strategies/{framework}/{function}.py",
    }


def info(
    names: Sequence[str],
    baseline: str = "tf1/session-loop",
    strategies: Sequence[Any] | None = None,
    passes: int = 3,
) -> dict[str, Any]:
    """A `run.json` with every key."""
    return {
        "name": "2026-12-01-0405",
        "created": "2026-12-01T04:05:00Z",
        "finished": "2026-12-01T04:10:31Z",
        "state": "complete",
        "command": "pergrad run --batch-size 1,4,16,64,256 --passes 3",
        "pergrad": "0.1.0",
        "baseline": baseline,
        "machine": {
            "system": "Linux 6.1",
            "processor": "AMD EPYC 9R14",
            "cores_physical": 2,
            "cores_logical": 2,
            "memory_bytes": 16_000_000_000,
            "python": "3.11.7",
        },
        "versions": {"numpy": "2.4.6", "torch": "2.13.0", "jax": "0.10.2", "tensorflow": "2.21.0"},
        "frameworks": {
            "jax": {"status": "ok", "threads": {"intra": 2}, "devices": [{"kind": "cpu", "name": "TFRT_CPU_0"}]},
            "torch": {"status": "ok", "threads": {"intra": 2, "inter": 1}, "devices": [{"kind": "cpu", "name": "cpu"}]},
        },
        "plan": {
            "workloads": ["policy"],
            "strategies": list(names),
            "devices": ["cpu"],
            "dtype": "float32",
            "batch_sizes": list(BATCH_SIZES),
            "passes": passes,
            "limit_s": 60,
            "seed": 0,
            "allocator": "default",
        },
        "strategies": [entry(name) for name in names] if strategies is None else list(strategies),
        "workloads": [
            {
                "name": "policy",
                "summary": "The question's policy network: 4-4-4-1 with ELU.",
                "docstring": "The question's policy network: 4-4-4-1 with ELU.\n\nObservations are from CartPole-v1.",
                "parameters": {"hidden1.weight": [4, 4], "hidden1.bias": [4], "logit.weight": [4, 1]},
                "parameter_count": 45,
                "code": "def losses(ops, parameters, batch): ...\n",
            }
        ],
        "unavailable": [],
    }
