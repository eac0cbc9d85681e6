"""A run on disk: one folder with `run.json`, `measurements.jsonl` and `pytest-benchmark.json`.

`measurements.jsonl` is the only source: rows are appended and flushed one by one, and everything else
is derived from them, so a killed run loses at most the case under way. All files are strict JSON.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.records import SCHEMA_VERSION, Measurement, Status, plain

RUN_FILE = "run.json"
ROWS_FILE = "measurements.jsonl"
BENCHMARK_FILE = "pytest-benchmark.json"


class StoreError(Exception):
    """A run folder that cannot be written or read; the message says what to do."""


@dataclass(frozen=True)
class Run:
    """A run that was read back: what was planned and where, and every row in the order it was measured."""

    path: Path
    info: Mapping[str, Any]
    rows: tuple[Measurement, ...]
    unreadable: tuple[str, ...] = ()
    """What is wrong with lines of its rows that are none; the report goes on without them, and says so."""

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.path.name


def check_writable(results: Path) -> None:
    """Make sure that runs can be stored in `results`, before anything is measured.

    Raises:
        StoreError: if they cannot.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=results):
            pass
    except OSError as error:
        raise _unwritable(results, error) from error


def create(path: Path, info: Mapping[str, Any]) -> None:
    """Make the folder of a new run and write its `run.json`.

    Raises:
        StoreError: if the folder already holds a run or cannot be written; said before anything is measured.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if (path / RUN_FILE).exists():
            raise StoreError(f"{path} already holds a run; give another name with --name")
        (path / ROWS_FILE).touch()
        write_info(path, info)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_info(path: Path, info: Mapping[str, Any]) -> None:
    """Replace `run.json` in one step, so that no reader ever meets half a file."""
    _replace(path / RUN_FILE, _dumps({"schema": SCHEMA_VERSION, **info}, indent=2) + "\n")


def append(path: Path, row: Measurement) -> None:
    """Add one row and force it to disk before returning.

    Raises:
        StoreError: if that is not possible, as when the disk is full; the run stays readable without the row.
    """
    try:
        with (path / ROWS_FILE).open("a", encoding="utf-8") as file:
            file.write(_dumps(row.as_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(
            f"cannot add a row to {path / ROWS_FILE}: {error.strerror or error}; "
            f"make room, then go on with `pergrad run --resume {path.name}`"
        ) from error


def load(path: Path) -> Run:
    """Read a run.

    A torn last line, left by a kill in the middle of a write, is ignored.

    Raises:
        StoreError: if there is no run at `path`, its `run.json` cannot be read, or a newer version of pergrad wrote it.
    """
    try:
        info = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
        lines = (path / ROWS_FILE).read_bytes().split(b"\n")
    except FileNotFoundError as error:
        raise StoreError(f"{path} is not a run: it has no {Path(error.filename).name}") from error
    except ValueError as error:  # not JSON, or not even UTF-8
        raise StoreError(f"{path / RUN_FILE} is not valid JSON: {error}") from error
    if not isinstance(info, dict) or not isinstance(info.get("schema", 0), int):
        raise StoreError(f"{path / RUN_FILE} does not describe a run: it is no object with a schema number")
    if info.get("schema", 0) > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written with schema {info['schema']}, this pergrad reads up to {SCHEMA_VERSION}; "
            "update pergrad to read it"
        )
    rows, unreadable = _parse(lines)
    return Run(path, info, tuple(rows), tuple(unreadable))


def repair(path: Path, keep: Callable[[Measurement], bool]) -> Run:
    """Rewrite the rows of a run without a torn last line and without those that are not to be kept.

    Raises:
        StoreError: if another line cannot be read, which would be lost.
    """
    run = load(path)
    if run.unreadable:
        raise StoreError(
            f"{path / ROWS_FILE} has rows that cannot be read ({run.unreadable[0]}); remove or repair them"
        )
    kept = tuple(row for row in run.rows if keep(row))
    _replace(path / ROWS_FILE, "".join(_dumps(row.as_json()) + "\n" for row in kept))
    return Run(path, run.info, kept)


def runs(results: Path) -> list[Path]:
    """The folders of all runs under `results`, oldest first."""
    found = [folder.parent for folder in results.glob(f"*/{RUN_FILE}")]
    return sorted(found, key=lambda folder: (folder / RUN_FILE).stat().st_mtime)


def write_benchmark_file(run: Run) -> None:
    """Write `pytest-benchmark.json`, which `pytest-benchmark compare` reads, from the rows of `run`."""
    document = {
        "machine_info": {"node": "", **run.info.get("machine", {})},
        "commit_info": {"id": "unversioned", "dirty": False},
        "benchmarks": [_benchmark(row) for row in run.rows if row.status is Status.OK and row.samples_ns],
        "datetime": run.info.get("created", ""),
        "version": run.info.get("versions", {}).get("pytest-benchmark", ""),
    }
    _replace(run.path / BENCHMARK_FILE, _dumps(document) + "\n")


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write results to {path}: {error.strerror or error}; "
        "choose a folder you may write to with --results FOLDER"
    )


def _parse(lines: list[bytes]) -> tuple[list[Measurement], list[str]]:
    """The rows, and for each line that is none what is wrong with it."""
    rows, unreadable = [], []
    last = len(lines) - 1
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            rows.append(Measurement.from_json(json.loads(line)))
        except (KeyError, TypeError, ValueError) as error:  # ValueError: not UTF-8, not JSON, or a wrong value
            if number < last:  # the last has no newline after it: torn by a kill
                unreadable.append(f"line {number + 1}: {error}")
    return rows, unreadable


def _benchmark(row: Measurement) -> dict[str, Any]:
    from pytest_benchmark.stats import Stats  # imports much, and only the end of a run needs it

    stats = Stats()
    stats.data = [sample * 1e-9 for sample in row.samples_ns]
    name = f"gradients[{row.workload}-{row.strategy}-{row.device}-{row.dtype}-B{row.batch_size}]"
    return {
        "group": f"{row.workload} {row.quantity} {row.device} B={row.batch_size}",
        "name": f"{name}-pass{row.pass_number}",
        "fullname": f"pergrad::{name}-pass{row.pass_number}",
        "params": {"strategy": row.strategy, "batch_size": row.batch_size, "pass": row.pass_number},
        "param": f"{row.strategy}-{row.batch_size}",
        "extra_info": {},
        "options": {"disable_gc": True, "timer": "perf_counter", "min_rounds": 3, "max_time": 0, "warmup": True},
        "stats": {**stats.as_dict(), "iterations": 1},
    }


def _dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=False, indent=indent)


def _replace(path: Path, text: str) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
