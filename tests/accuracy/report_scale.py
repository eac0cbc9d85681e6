"""How long does a report over many rows take, and how much memory?

Run as `python -m tests.accuracy.report_scale RUN ROWS`, such as `... results/sample 100000`. The rows of the run are
repeated as those of more models and more batch sizes: one run that a fleet might bring, with as many models as batch
sizes.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import tempfile
import time
from pathlib import Path

from harness import report
from harness.core import store


def enlarged(run: Path, rows: int, folder: Path) -> int:
    """Write a run with at least so many rows into `folder`; how many there are."""
    info = json.loads((run / store.RUN_FILE).read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (run / store.ROWS_FILE).read_text(encoding="utf-8").splitlines()]
    times = math.ceil(math.sqrt(rows / len(lines)))
    sizes = info["plan"]["batch_sizes"]
    step = max(sizes) * 2
    info["plan"]["workloads"] = [f"{name}-{copy}" for copy in range(times) for name in info["plan"]["workloads"]]
    info["plan"]["batch_sizes"] = [size + step * copy for copy in range(times) for size in sizes]
    info["workloads"] = [
        {**workload, "name": f"{workload['name']}-{copy}"} for copy in range(times) for workload in info["workloads"]
    ]
    folder.mkdir(parents=True)
    (folder / store.RUN_FILE).write_text(json.dumps(info), encoding="utf-8")
    with (folder / store.ROWS_FILE).open("w", encoding="utf-8") as file:
        for model in range(times):
            for larger in range(times):
                for line in lines:
                    changed = {
                        "workload": f"{line['workload']}-{model}",
                        "batch_size": line["batch_size"] + step * larger,
                    }
                    file.write(json.dumps(line | changed) + "\n")
    return times * times * len(lines)


def main() -> None:
    """Print what a report took."""
    run, rows = Path(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        many = enlarged(run, rows, Path(scratch) / "many")
        started = time.perf_counter()
        index = report.write([Path(scratch) / "many"], Path(scratch) / "report")
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        page = index.stat().st_size / 1e6
        print(f"{many:,} rows: {seconds:.0f} s, {peak:.2f} GiB at most, a page of {page:.1f} MB")


if __name__ == "__main__":
    main()
